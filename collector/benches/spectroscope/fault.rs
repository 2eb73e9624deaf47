//! Injected changes, with the correct answers.

/// Change that is injected into the later period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// No change in the requests, but half as many again.
    MoreRequests,
    /// One operation takes 0.1 ms longer.
    SlightlySlow,
    /// One operation takes 0.5 ms longer.
    SlowOperation,
    /// Messages from one service to another take 1 ms longer.
    SlowLink,
    /// One additional remote call.
    ExtraCall,
    /// A cache misses 60 % of lookups instead of 5 %.
    CacheMiss,
    /// A loop has 6 to 12 calls instead of 3 to 6.
    LongerLoop,
}

/// Location of a fault, as a correct answer names it.
pub(crate) struct Truth {
    /// Services and operations that a correct answer may name as the cause.
    pub(crate) operations: &'static [(&'static str, &'static str)],
    /// Boundaries of the edge that takes longer, each as service, operation, and true for the end;
    /// `None` if no edge does, or if the structure changes.
    pub(crate) edge: Option<[(&'static str, &'static str, bool); 2]>,
}

impl Fault {
    pub(crate) const ALL: [Fault; 8] = [
        Fault::SlightlySlow,
        Fault::SlowOperation,
        Fault::SlowLink,
        Fault::ExtraCall,
        Fault::CacheMiss,
        Fault::LongerLoop,
        Fault::None,
        Fault::MoreRequests,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::None => "none",
            Fault::MoreRequests => "more-requests",
            Fault::SlightlySlow => "slightly-slow",
            Fault::SlowOperation => "slow-operation",
            Fault::SlowLink => "slow-link",
            Fault::ExtraCall => "extra-call",
            Fault::CacheMiss => "cache-miss",
            Fault::LongerLoop => "longer-loop",
        }
    }

    pub(crate) fn truth(self) -> Truth {
        match self {
            Fault::None | Fault::MoreRequests => Truth {
                operations: &[],
                edge: None,
            },
            Fault::SlightlySlow | Fault::SlowOperation => Truth {
                operations: &[("store", "read")],
                edge: Some([("store", "read", false), ("store", "read", true)]),
            },
            Fault::SlowLink => Truth {
                operations: &[("feed", "assemble")],
                edge: Some([("web", "call feed", false), ("feed", "assemble", false)]),
            },
            Fault::ExtraCall => Truth {
                operations: &[
                    ("payment", "charge"),
                    ("payment", "call fraud"),
                    ("fraud", "check"),
                ],
                edge: None,
            },
            Fault::CacheMiss => Truth {
                operations: &[
                    ("catalog", "get item"),
                    ("catalog", "call store"),
                    ("store", "read"),
                    ("store", "read item"),
                ],
                edge: None,
            },
            Fault::LongerLoop => Truth {
                operations: &[
                    ("catalog", "list items"),
                    ("catalog", "call store"),
                    ("store", "read row"),
                ],
                edge: None,
            },
        }
    }
}
