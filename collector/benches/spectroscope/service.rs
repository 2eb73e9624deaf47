//! The shop's services.

#[derive(Clone, Copy)]
pub(crate) enum Service {
    Gateway,
    Web,
    Catalog,
    Cache,
    Store,
    Profile,
    Feed,
    Ads,
    Orders,
    Inventory,
    Payment,
    Fraud,
    Search,
    Index,
    Auth,
}

impl Service {
    /// Returns the service's name, and the name of a call to it.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        match self {
            Service::Gateway => ("gateway", "call gateway"),
            Service::Web => ("web", "call web"),
            Service::Catalog => ("catalog", "call catalog"),
            Service::Cache => ("cache", "call cache"),
            Service::Store => ("store", "call store"),
            Service::Profile => ("profile", "call profile"),
            Service::Feed => ("feed", "call feed"),
            Service::Ads => ("ads", "call ads"),
            Service::Orders => ("orders", "call orders"),
            Service::Inventory => ("inventory", "call inventory"),
            Service::Payment => ("payment", "call payment"),
            Service::Fraud => ("fraud", "call fraud"),
            Service::Search => ("search", "call search"),
            Service::Index => ("index", "call index"),
            Service::Auth => ("auth", "call auth"),
        }
    }
}
