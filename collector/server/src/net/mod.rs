//! The ports: listening sockets with access control and limits.
//!
//! `listening` accepts connections, over TLS if there are certificates (`tls`). `connection` serves
//! one and closes it if it is slow or idle (`activity`). `http2_authority` repairs the `:authority`
//! headers of clients on unix sockets. `admission` admits requests, by tokens (`tokens`), by the
//! host names they use, and by the origins of pages that send (`cors`). `login` is the cookie of a
//! browser, `session` issues it for a token, and `attempts` counts failed logins. `body` counts the
//! bytes of requests while they arrive. `unpack` decompresses bodies and counts the result, and
//! `messages` applies it to gRPC messages. `revocation` ends requests whose token has become
//! invalid. `ports` contains the state that all ports share, and reloads changed files.
//! `rejections` counts rejections by cause, and `wrong_port` answers gRPC calls at ports that do
//! not serve gRPC.

mod activity;
mod admission;
mod attempts;
mod body;
mod connection;
mod cors;
mod http2_authority;
mod listening;
mod login;
mod messages;
mod ports;
mod rejections;
mod revocation;
mod session;
mod tls;
mod tokens;
mod unpack;
mod wrong_port;

pub(crate) use admission::Rejection;
pub(crate) use body::BodyShare;
pub(crate) use connection::{Answer, FORWARD, until_true};
pub use cors::{BadOrigin, CorsOrigin};
pub(crate) use listening::{Listener, ListenerSetup};
#[cfg(feature = "simulation")]
pub use listening::{SimulatedListener, SimulatedStream};
pub(crate) use login::{LOGIN_PATH, LOGOUT_PATH};
pub(crate) use messages::unpack_messages;
pub use ports::{DoorError, NetSettings, Ports};
pub use rejections::{PortName, RejectionCause, RejectionCounters};
pub use tls::{BadTls, TlsClient, TlsClientError, TlsFiles};
pub use tokens::{BadTokens, Role};
pub(crate) use unpack::{ContentCoding, UnpackError, unpack_beside};
pub(crate) use wrong_port::{refusal, wrong_port};
