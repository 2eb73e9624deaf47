//! Documents as pages: those of a site, in one [frame](PageHead), and files that need nothing else.

mod assets;
mod frame;
mod html;
mod standalone;

pub use assets::Asset;
pub use frame::{NavLink, PageHead};
pub use html::Html;
pub use standalone::{Section, body, to_page, to_page_of_sections};
