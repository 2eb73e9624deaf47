//! Documents as pages of a site, in one [frame](PageHead), and as self-contained files.

mod assets;
mod carried;
mod content;
mod frame;
mod html;
mod standalone;
mod table;

pub use assets::Asset;
pub use carried::CarriedParameters;
pub use content::{body, paged_body};
pub use frame::{NavLink, PageHead, policy};
pub use html::Html;
pub use standalone::{Section, to_page, to_page_of_sections};
pub use table::{PagedRows, path_segment};
