//! Request flows: the structure of requests, categories of equal structure, and the time that their
//! requests spend (Spectroscope, Diagnosing performance changes by comparing system behaviours,
//! §2.1, §4.1).

mod build;
mod category_id;
mod digest;
mod edge;
mod finder;
mod operation;
mod order;
mod period;
mod shape;

pub use build::{DEPTH_MAX, ERROR, FlowBuilder, FlowSettings, Zoom, failed_spans, is_failure};
pub use category_id::CategoryId;
pub use edge::{EdgeId, EdgeTable, FlowEdge};
pub use finder::{FlowFinder, RequestFlow};
pub use order::{KnownOrders, SiblingOrders};
pub use period::{
    ARRIVALS_MAX, CATEGORIES_MAX, FlowCategory, FlowPass, PeriodFlows, ROOTS_MAX, Request,
    RootFlows, SAMPLE_MAX,
};
pub use shape::{Fold, Operation, Part, Repeats, Shape, ShapeOf, Symbol};
