//! The doors: sockets of the collector, who comes in by them, and how much at a time.
//!
//! `listening` takes connections, over TLS where there are certificates (`tls`); `connection` serves one, and ends what is slow
//! or idle; `authority` mends what clients of unix sockets send; `guard` says whether a request may go on, by tokens (`tokens`)
//! and by the names under which it came; `login` is the cookie of a browser, `session` gives it for a token, and `attempts` counts
//! wrong ones; `body` counts bytes while they arrive, and `unpack` those that it unpacks, of gRPC for `messages`; `withdrawal` ends
//! requests whose token is not good any more. `settings` has what all doors share, and reads files again that change; what is
//! turned away is counted by name in `refused`.

mod attempts;
mod authority;
mod body;
mod connection;
mod guard;
mod listening;
mod login;
mod messages;
mod refused;
mod session;
mod settings;
mod tls;
mod tokens;
mod unpack;
mod withdrawal;
mod wrong_port;

pub(crate) use body::Reading;
pub(crate) use connection::{Answer, until_true};
pub(crate) use guard::Denied;
pub(crate) use listening::{Listening, Opening};
#[cfg(feature = "simulation")]
pub use listening::{SimulatedListener, SimulatedStream};
pub(crate) use login::{LOGIN_PATH, LOGOUT_PATH};
pub(crate) use messages::unpack_messages;
pub use refused::{DoorCause, DoorName, Refused};
pub use settings::{DoorError, DoorSettings, Doors};
pub use tls::{BadTls, TlsFiles};
pub use tokens::{BadTokens, Role};
pub(crate) use unpack::{Packing, UnpackError, unpack_beside};
pub(crate) use wrong_port::{refusal, wrong_port};
