//! Agent: forwards its log to another collector, and relays that collector's directives.
//!
//! One task, the uplink, keeps a connection to one of the gateways and follows its directives. The
//! flushing thread forwards closed segments over the same connection. If a gateway fails for either
//! of them, the uplink moves on to the next gateway, if there are several.

mod delivery;
mod gateway;
mod uplink;

pub use delivery::{Delivery, ForwardCounters};
pub use gateway::{ForwardSettings, Gateway, GatewayError};
pub use uplink::Uplink;
