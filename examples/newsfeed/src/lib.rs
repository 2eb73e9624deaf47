//! A newsfeed of several processes, as a subject for Stroboscope's analyses. Faults can be injected
//! into it.
//!
//! Each process runs one *role* of a single binary. The roles talk gRPC over real sockets:
//!
//! ```text
//! client ──page──▶ edge ──▶ web ──read (one call per property)──▶ store
//!    ▲                       ├──rank──▶ ranker ──read (three generators at once)──▶ store
//!    └───── pagelets, each as soon as it is ready
//! ```
//!
//! An analysis finds in it:
//! - a page over a fast link waits for scoring in the ranker; over a slow link the server has slack
//!   (Chow et al., OSDI 2014, §5.2);
//! - pagelets are generated, downloaded and executed in a pipeline, and a page's scripts exclude
//!   each other;
//! - the web server reads properties one call at a time (Ardelean et al., NSDI 2018, §3.3.2);
//! - the generators contend for one lock of the store.
//!
//! Faults ([`Fault`]) add problems to find. [`Fleet`] starts and stops all roles; [`run_role`] runs
//! one process.

mod browser;
mod client;
mod copies;
mod cpu;
mod delay;
mod edge;
mod engine;
mod fault;
mod fleet;
mod generator;
mod index;
mod key;
mod link;
mod load;
mod member;
mod model_cache;
mod notice;
mod pagelet;
mod random;
mod rank_load;
mod ranker;
mod reader;
mod report;
mod role;
mod role_error;
mod schedule;
mod scorer;
mod server;
mod session;
mod stop;
mod store;
mod story;
mod supervisor;
mod upstream;
mod values;
mod web;
mod wide;
mod wire;

pub use client::ClientOptions;
pub use edge::EdgeOptions;
pub use fault::{Fault, FaultError, FaultPoint};
pub use fleet::{Fleet, FleetError, FleetOptions};
pub use link::{LinkKind, Mix, MixError};
pub use member::{ExitReport, MemberError};
pub use rank_load::{RankLoad, RankLoadError, RankResponse};
pub use ranker::RankerOptions;
pub use report::{Latency, LinkReport, LoadReport};
pub use role::{Role, run_role};
pub use role_error::RoleError;
pub use schedule::ScheduleError;
pub use server::ServeError;
pub use store::StoreOptions;
pub use supervisor::run;
pub use upstream::UpstreamError;
pub use values::ValuesError;
pub use web::WebOptions;
