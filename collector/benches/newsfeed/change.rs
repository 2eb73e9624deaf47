//! Injected changes, with the correct answers.

/// A change that is injected into all requests of the later period.
pub(crate) struct Change {
    pub(crate) name: &'static str,
    /// Argument of `demo --fault`.
    pub(crate) fault: &'static str,
    /// Services and operations that a correct answer may name.
    pub(crate) operations: &'static [(&'static str, &'static str)],
    /// True if the change only makes an operation slower, and the structure stays.
    pub(crate) keeps_structure: bool,
    /// Attribute whose value distinguishes requests with the change; `None` if there is none.
    pub(crate) parameter: Option<&'static str>,
}

const fn delay(name: &'static str, fault: &'static str) -> Change {
    Change {
        name,
        fault,
        operations: &[("store", "read")],
        keeps_structure: true,
        parameter: None,
    }
}

const fn structure(
    name: &'static str,
    fault: &'static str,
    operations: &'static [(&'static str, &'static str)],
) -> Change {
    Change {
        name,
        fault,
        operations,
        keeps_structure: false,
        parameter: None,
    }
}

impl Change {
    pub(crate) const ALL: [Change; 8] = [
        delay("read-100us", "store.read=+100us"),
        delay("read-500us", "store.read=+500us"),
        delay("read-1ms", "store.read=+1ms"),
        structure(
            "extra-call",
            "ranker.extra-call",
            &[("ranker", "candidates"), ("ranker", "trending")],
        ),
        structure(
            "cache-miss",
            "ranker.cache-miss",
            &[
                ("ranker", "newsfeed.v1.Ranker/Rank"),
                ("ranker", "load_model"),
            ],
        ),
        Change {
            parameter: Some("count"),
            ..structure(
                "small-count",
                "client.small-count",
                &[("web", "newsfeed.v1.Page/Load"), ("web", "amend")],
            )
        },
        structure(
            "other-shard",
            "store.archive-shard",
            &[("store", "read"), ("store", "archive")],
        ),
        structure(
            "longer-loop",
            "ranker.longer-loop",
            &[
                ("ranker", "friends"),
                ("ranker", "pages"),
                ("ranker", "ads"),
                ("ranker", "newsfeed.v1.Store/Read"),
            ],
        ),
    ];

    /// Reports whether a correct answer may name this row's operation.
    pub(crate) fn is_of(&self, row: &serde_json::Value) -> bool {
        self.operations.iter().any(|(service, operation)| {
            row["service"] == *service && row["operation"] == *operation
        })
    }

    /// Reports whether a divergence, such as `service:name now also does …`, is at one of the
    /// operations.
    pub(crate) fn is_parted_at(&self, divergence: &str) -> bool {
        self.operations.iter().any(|(service, operation)| {
            let name = format!("{service}:{operation}");
            divergence
                .strip_prefix(&name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        })
    }
}
