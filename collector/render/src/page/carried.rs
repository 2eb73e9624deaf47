//! Parameters of an address that links of its page carry along.

use url::form_urlencoded;

/// Names of the parameters for the time range, two compared periods, and the root operation.
const NAMES: [&str; 5] = ["since", "until", "root", BEFORE, AFTER];
const BEFORE: &str = "before";
const AFTER: &str = "after";
/// Pages that compare two periods. Links to other pages take the period `after` as their range, if
/// it has the form `SINCE..UNTIL`.
const COMPARING: [&str; 2] = ["/compare", "/explain"];
/// Alternative names of the parameters for the ends of a range, with the usual names.
const OTHER_NAMES: [(&str, &str); 2] = [("from", "since"), ("to", "until")];
/// Beginnings of the HTML attributes to whose addresses parameters are added.
const ATTRIBUTES: [&str; 5] = [
    "href=\"",
    "data-live=\"",
    "data-select=\"",
    "data-compare=\"",
    "data-explain=\"",
];
/// Prefixes of paths that are not pages, without the leading slash; `NO_PAGE_ENDS` has suffixes of
/// such paths.
const NO_PAGES: [&str; 1] = ["assets/"];
const NO_PAGE_ENDS: [&str; 2] = ["/perfetto", "/columns"];

/// Maximum length of a value, in bytes; many links of a page contain the value.
const VALUE_BYTES_MAX: usize = 1_024;

/// Time range, periods and root operation of an address, for the links of its page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CarriedParameters {
    given: Vec<Parameter>,
    /// Parameters for links to pages that do not compare two periods; `given` has those for pages
    /// that do.
    elsewhere: Vec<Parameter>,
}

/// A parameter that has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    name: &'static str,
    value: String,
    /// URL-encoded value.
    encoded: String,
}

impl CarriedParameters {
    /// Reads the parameters from the query of an address; the first non-empty value of a name
    /// counts.
    ///
    /// # Errors
    /// Fails if the value of such a parameter has more than 1,024 bytes.
    pub fn of(query: &str) -> Result<Self, String> {
        let mut carried = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let (name, value) = (name_of(&name), value.trim());
            let Some(name) = NAMES.into_iter().find(|known| *known == name) else {
                continue;
            };
            if value.len() > VALUE_BYTES_MAX {
                return Err(format!(
                    "{name} is {} bytes long; the limit is {VALUE_BYTES_MAX}",
                    value.len()
                ));
            }
            if !value.is_empty() && carried.value(name).is_empty() {
                carried.given.push(Parameter::of(name, value));
            }
        }
        carried.elsewhere = carried.taken_elsewhere();
        Ok(carried)
    }

    /// Returns the value of a parameter; empty if it has none.
    pub fn value(&self, name: &str) -> &str {
        let parameter = self.given.iter().find(|parameter| parameter.name == name);
        parameter.map_or("", |parameter| &parameter.value)
    }

    /// Returns the parameters that a link to the page at `path` carries.
    fn taken_by(&self, path: &str) -> &[Parameter] {
        match COMPARING.contains(&path) {
            true => &self.given,
            false => &self.elsewhere,
        }
    }

    /// Returns the parameters for pages that do not compare. Their range is the period `after`, if
    /// it has the form `SINCE..UNTIL`.
    fn taken_elsewhere(&self) -> Vec<Parameter> {
        let given = self.given.iter();
        let Some((since, until)) = self.value(AFTER).split_once("..") else {
            let is_compared = |name| name == BEFORE || name == AFTER;
            return given.filter(|of| !is_compared(of.name)).cloned().collect();
        };
        let ends = [("since", since.trim()), ("until", until.trim())];
        let ends = ends.into_iter().filter(|(_, value)| !value.is_empty());
        let root = given.filter(|of| of.name == "root").cloned();
        ends.map(|(name, value)| Parameter::of(name, value))
            .chain(root)
            .collect()
    }

    /// Returns the path with these parameters, not escaped as markup.
    pub fn address(&self, path: &str) -> String {
        let mut address = path.to_owned();
        for (at, Parameter { name, encoded, .. }) in self.taken_by(path).iter().enumerate() {
            let mark = if at == 0 { "?" } else { "&" };
            address.extend([mark, *name, "=", encoded.as_str()]);
        }
        address
    }

    /// Adds these parameters to each link to a page of the site whose address begins with `/`. A
    /// link with an end of a range gets no further end, one with a period no further period, and
    /// one with a root operation no other.
    pub fn carry(&self, markup: &str) -> String {
        if self.given.is_empty() {
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
        let is_page = !NO_PAGES
            .iter()
            .any(|directory| path[1..].starts_with(directory))
            && !NO_PAGE_ENDS.iter().any(|end| path.ends_with(end));
        if is_page {
            let own = |wanted: &str| {
                let names = query.split("&amp;").filter_map(|pair| pair.split_once('='));
                names.into_iter().any(|(name, _)| name_of(name) == wanted)
            };
            let has_range = own("since") || own("until");
            let has_periods = own(BEFORE) || own(AFTER);
            let mut mark = if query.is_empty() { "?" } else { "&amp;" };
            for Parameter { name, encoded, .. } in self.taken_by(path) {
                let is_own = match *name {
                    BEFORE | AFTER => has_periods,
                    "root" => own(name),
                    _ => has_range,
                };
                if !is_own {
                    carried.extend([mark, *name, "=", encoded.as_str()]);
                    mark = "&amp;";
                }
            }
        }
        carried.push_str(fragment);
    }
}

impl Parameter {
    fn of(name: &'static str, value: &str) -> Self {
        Self {
            name,
            value: value.to_owned(),
            encoded: form_urlencoded::byte_serialize(value.as_bytes()).collect(),
        }
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
            let carried = CarriedParameters::of(query).unwrap();
            assert_eq!(carried.carry(&markup), expected, "{query}");
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
            "href=\"/a?root=%22%3E%3Cb%3E\"",
        );
        let compared = "before=3h..2h&after=2h..1h&root=a&since=9h";
        let both = "before=3h..2h&amp;after=2h..1h&amp;root=a";
        check(
            compared,
            "href=\"/explain\"",
            &format!("href=\"/explain?{both}&amp;since=9h\""),
        );
        check(
            compared,
            "href=\"/compare?before=..1h\"",
            "href=\"/compare?before=..1h&amp;root=a&amp;since=9h\"",
        );
        check(
            compared,
            "href=\"/failures?top=5\"",
            "href=\"/failures?top=5&amp;since=2h&amp;until=1h&amp;root=a\"",
        );
        check("after=2h..", "href=\"/\"", "href=\"/?since=2h\"");
        check("before=v%3D1", "href=\"/\"", "href=\"/\"");
        check(
            "before=v%3D1&after=v%3D2&since=1h",
            "href=\"/\"",
            "href=\"/?since=1h\"",
        );
        let carried = CarriedParameters::of("since=+1h&root=a+b%26&since=2h").unwrap();
        assert_eq!(carried.address("/a"), "/a?since=1h&root=a+b%26");
        assert_eq!(carried.value("root"), "a b&");
    }

    #[test]
    fn long_values_are_refused() {
        for (bytes, is_taken) in [(VALUE_BYTES_MAX, true), (VALUE_BYTES_MAX + 1, false)] {
            let query = format!("root={}", "a".repeat(bytes));
            assert_eq!(CarriedParameters::of(&query).is_ok(), is_taken, "{bytes}");
        }
    }
}
