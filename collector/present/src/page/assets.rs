//! What pages consist of beside their text: one stylesheet and three modules, part of the program.

use std::sync::LazyLock;

use twox_hash::XxHash3_128;

/// A file that pages load, under a name that changes with it: whoever has it once never asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asset {
    /// How everything looks.
    Style,
    /// The timeline of one trace.
    Timeline,
    /// Selection in a heatmap.
    Heatmap,
    /// Tables, graphs, forms and fragments.
    Tables,
}

impl Asset {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Style, Self::Timeline, Self::Heatmap, Self::Tables];

    /// What is in it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Style => concat!(
                include_str!("../../assets/palette.css"),
                include_str!("../../assets/style.css")
            ),
            Self::Timeline => include_str!("../../assets/timeline.js"),
            Self::Heatmap => include_str!("../../assets/heatmap.js"),
            Self::Tables => include_str!("../../assets/tables.js"),
        }
    }

    /// Its kind, for HTTP.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Style => "text/css; charset=utf-8",
            _ => "text/javascript; charset=utf-8",
        }
    }

    /// Its path on a site, with a hash of what is in it.
    #[must_use]
    pub fn path(self) -> &'static str {
        static PATHS: LazyLock<[String; 4]> = LazyLock::new(|| {
            Asset::ALL.map(|asset| {
                let (name, extension) = match asset {
                    Asset::Style => ("style", "css"),
                    Asset::Timeline => ("timeline", "js"),
                    Asset::Heatmap => ("heatmap", "js"),
                    Asset::Tables => ("tables", "js"),
                };
                let hash = XxHash3_128::oneshot(asset.text().as_bytes()) as u64;
                format!("/assets/{name}-{hash:016x}.{extension}")
            })
        });
        &PATHS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_path() {
        let paths = Asset::ALL.map(Asset::path);
        assert!(paths[0].starts_with("/assets/style-") && paths[0].ends_with(".css"));
        assert!(paths[3].starts_with("/assets/tables-") && paths[3].ends_with(".js"));
    }
}
