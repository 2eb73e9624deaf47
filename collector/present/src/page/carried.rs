//! The part of an address that all links of a page take along.

use super::html::Html;

/// Names of the parameters of the time range and the root operation.
const NAMES: [&str; 3] = ["since", "until", "root"];
/// Other names that a link gives the ends of its range.
const OTHER_NAMES: [(&str, &str); 2] = [("from", "since"), ("to", "until")];
/// Attributes that hold an address.
const ATTRIBUTES: [&str; 5] = [
    "href=\"",
    "data-live=\"",
    "data-select=\"",
    "data-compare=\"",
    "data-explain=\"",
];
/// Addresses below these paths, or that end so, are no pages.
const NO_PAGES: [&str; 1] = ["assets/"];
const NO_PAGE_ENDS: [&str; 2] = ["/perfetto", "/columns"];

/// Time range and root operation as an address has them, for the links of its page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried(Vec<(&'static str, String)>);

impl Carried {
    /// Takes them from the part of an address behind `?`; values stay encoded as they are.
    #[must_use]
    pub fn of(query: &str) -> Self {
        let mut carried: Vec<(&str, String)> = Vec::new();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let is_known = carried.iter().any(|(known, _)| *known == name_of(name));
            if let Some(name) = NAMES.into_iter().find(|known| *known == name_of(name))
                && !value.is_empty()
                && !is_known
            {
                carried.push((name, value.to_owned()));
            }
        }
        Self(carried)
    }

    /// Returns the markup with these parameters in each link to a page of the site. A link that gives an end of a range has a range of
    /// its own, and one that gives a root operation that.
    #[must_use]
    pub fn carry(&self, markup: &str) -> String {
        if self.0.is_empty() {
            return markup.to_owned();
        }
        let mut carried = String::with_capacity(markup.len() + markup.len() / 8);
        let mut rest = markup;
        while let Some(at) = rest.find("=\"/") {
            let (before, from) = rest.split_at(at + 2);
            carried.push_str(before);
            let Some((address, after)) = from.split_once('"') else {
                rest = from;
                break;
            };
            match ATTRIBUTES
                .iter()
                .any(|attribute| before.ends_with(attribute))
            {
                true => self.add_to(&mut carried, address),
                false => carried.push_str(address),
            }
            carried.push('"');
            rest = after;
        }
        carried.push_str(rest);
        carried
    }

    fn add_to(&self, carried: &mut String, address: &str) {
        let (address, fragment) = address
            .find('#')
            .map_or((address, ""), |at| address.split_at(at));
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        carried.push_str(address);
        let is_page = !NO_PAGES.iter().any(|folder| path[1..].starts_with(folder))
            && !NO_PAGE_ENDS.iter().any(|end| path.ends_with(end));
        if is_page {
            let own = |wanted: &str| {
                let names = query.split("&amp;").filter_map(|pair| pair.split_once('='));
                names.into_iter().any(|(name, _)| name_of(name) == wanted)
            };
            let has_range = own("since") || own("until");
            let mut mark = if query.is_empty() { "?" } else { "&amp;" };
            for (name, value) in &self.0 {
                let is_own = if *name == "root" {
                    own(name)
                } else {
                    has_range
                };
                if !is_own {
                    carried.push_str(mark);
                    carried.push_str(name);
                    carried.push('=');
                    let mut escaped = Html::new();
                    escaped.text(value);
                    carried.push_str(escaped.as_str());
                    mark = "&amp;";
                }
            }
        }
        carried.push_str(fragment);
    }
}

fn name_of(name: &str) -> &str {
    let other = OTHER_NAMES.iter().find(|(other, _)| *other == name);
    other.map_or(name, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_take_range_and_root_along() {
        let check = |query: &str, link: &str, expected: &str| {
            let markup = format!("<p title=\"/x\"><a {link}>a</a>=\"/</p>");
            let expected = format!("<p title=\"/x\"><a {expected}>a</a>=\"/</p>");
            assert_eq!(Carried::of(query).carry(&markup), expected, "{query}");
        };
        let query = "top=5&since=1h&root=web%3Aa&until=";
        check(query, "href=\"/\"", "href=\"/?since=1h&amp;root=web%3Aa\"");
        check(
            query,
            "href=\"/slack?top=5#part-2\"",
            "href=\"/slack?top=5&amp;since=1h&amp;root=web%3Aa#part-2\"",
        );
        check(
            query,
            "href=\"/traces?from=1&amp;to=2\"",
            "href=\"/traces?from=1&amp;to=2&amp;root=web%3Aa\"",
        );
        check(
            query,
            "data-compare=\"/compare?root=b\"",
            "data-compare=\"/compare?root=b&amp;since=1h\"",
        );
        for own in [
            "href=\"/traces/1/perfetto\"",
            "src=\"/assets/1/a.js\"",
            "href=\"/assets/1/a.css\"",
            "href=\"?since=2h\"",
            "action=\"/slack\"",
        ] {
            check(query, own, own);
            check("", own, own);
        }
        check("from=7&since=8", "href=\"/a\"", "href=\"/a?since=7\"");
        check(
            "root=\"><b>",
            "href=\"/a\"",
            "href=\"/a?root=&quot;&gt;&lt;b&gt;\"",
        );
    }
}
