//! The stylesheet inlined in each page, and the modules that pages load. Both are part of the
//! program.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use twox_hash::XxHash3_128;

/// Stylesheet of all pages. It is inlined, which saves one request before the first paint, and a
/// route for stylesheets. On one machine the paint came little sooner: after 192 ms in the median
/// of 20 pages, and after 204 ms with a stylesheet in a file. A blank page took 72 to 108 ms.
pub(super) const STYLE: &str = concat!(
    include_str!("../../assets/palette.css"),
    include_str!("../../assets/style.css"),
    include_str!("../../assets/timeline.css")
);

/// Returns the source of a Content-Security-Policy that allows this text of an inline `<style>` or
/// `<script>`.
pub(crate) fn inline_source(text: &str) -> String {
    format!(
        "'sha256-{}'",
        STANDARD.encode(digest(&SHA256, text.as_bytes()))
    )
}

/// Declares the modules, each with its file.
macro_rules! assets {
    ($($(#[$doc:meta])* $asset:ident = $file:literal,)*) => {
        /// Module that pages load from a directory named by a hash of all modules, so that a
        /// browser may keep it in its cache. The modules share the directory, because they import
        /// each other.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Asset {
            $($(#[$doc])* $asset,)*
        }

        impl Asset {
            /// Number of the modules.
            pub const COUNT: usize = [$($file),*].len();
            /// List of the modules.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$asset),*];

            fn file(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$asset => ($file, include_str!(concat!("../../assets/", $file))),)*
                }
            }
        }
    };
}

assets! {
    /// The timeline of one request.
    Timeline = "timeline.js",
    /// Module that the timeline imports, like each variant up to
    /// [`TimelineState`](Self::TimelineState).
    TimelineColumns = "timeline-columns.js",
    TimelineDetails = "timeline-details.js",
    TimelineDrawing = "timeline-drawing.js",
    TimelineFrame = "timeline-frame.js",
    TimelinePointing = "timeline-pointing.js",
    TimelineRows = "timeline-rows.js",
    TimelineState = "timeline-state.js",
    /// Selection in a heatmap.
    Heatmap = "heatmap.js",
    /// Tables, graphs, forms and fragments.
    Tables = "tables.js",
    /// The time range above each page.
    Range = "range.js",
    /// Passes traces to the page of Perfetto's UI.
    Perfetto = "perfetto.js",
    /// Shows a page again once its missing content is ready.
    Awaited = "awaited.js",
}

impl Asset {
    /// Returns the JavaScript source of the module.
    pub fn text(self) -> &'static str {
        self.file().1
    }

    /// Returns the module's path on a site, in a directory named by a hash of all modules.
    pub fn path(self) -> &'static str {
        static PATHS: LazyLock<[String; Asset::COUNT]> = LazyLock::new(|| {
            let all: Vec<&str> = Asset::ALL.iter().map(|asset| asset.text()).collect();
            let hash = XxHash3_128::oneshot(all.join("\0").as_bytes()) as u64;
            Asset::ALL.map(|asset| format!("/assets/{hash:016x}/{}", asset.file().0))
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
        assert!(paths[0].starts_with("/assets/") && paths[0].ends_with("/timeline.js"));
        for (at, asset) in Asset::ALL.into_iter().enumerate() {
            assert_eq!((asset as usize, asset.path()), (at, paths[at]));
            assert!(!paths[..at].contains(&paths[at]), "{asset:?}");
        }
    }

    #[test]
    fn modules_name_modules_that_there_are() {
        for asset in Asset::ALL.into_iter() {
            for line in asset
                .text()
                .lines()
                .filter(|line| line.starts_with("import "))
            {
                let named = line
                    .rsplit('"')
                    .nth(1)
                    .and_then(|name| name.strip_prefix("./"));
                let named = named.unwrap_or_else(|| panic!("{asset:?}: {line}"));
                let is_there = |asset: &Asset| asset.path().ends_with(&format!("/{named}"));
                assert!(Asset::ALL.iter().any(is_there), "{asset:?}: {line}");
            }
        }
    }
}
