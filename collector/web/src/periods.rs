//! Two periods in the addresses of `compare` and `explain`.

use stroboscope_render::page::Html;
use stroboscope_reports::time::written_periods;
use url::form_urlencoded::Serializer;

/// An earlier and a later period, ns since the Unix epoch. Without `before_from_ns`, the earlier
/// one begins with the store. Without `until_ns`, the later one ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TwoPeriods<'a> {
    pub(crate) before_from_ns: Option<i64>,
    /// End of the earlier period, and beginning of the later one.
    pub(crate) at_ns: i64,
    pub(crate) until_ns: Option<i64>,
    /// Restricts both periods to requests of this root operation; `None` for all requests.
    pub(crate) root: Option<&'a str>,
}

impl TwoPeriods<'_> {
    /// Returns the address of a subcommand's page with its form filled in.
    pub(crate) fn address(&self, verb: &str) -> String {
        let mut form = Serializer::new(String::new());
        let (from_ns, until_ns) = (self.before_from_ns, self.until_ns);
        let ends_ns = [
            from_ns.unwrap_or_default(),
            self.at_ns,
            until_ns.unwrap_or_default(),
        ];
        let [from, at, until] = written_periods(ends_ns);
        let from = from_ns.map_or_else(String::new, |_| from);
        let until = until_ns.map_or_else(String::new, |_| until);
        form.append_pair("before", &format!("{from}..{at}"));
        form.append_pair("after", &format!("{at}..{until}"));
        if let Some(root) = self.root {
            form.append_pair("root", root);
        }
        format!("/{verb}?{}", form.finish())
    }

    /// Writes a link to the address of a subcommand's page, with this text.
    pub(crate) fn link(&self, html: &mut Html, verb: &str, said: &str) {
        html.markup("<a href=\"")
            .text(&self.address(verb))
            .markup("\">")
            .text(said)
            .markup("</a>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_those_that_verbs_read() {
        let periods = TwoPeriods {
            before_from_ns: None,
            at_ns: 1_500_000_001,
            until_ns: Some(3_000_000_001),
            root: Some("web:a&b"),
        };
        assert_eq!(
            periods.address("compare"),
            "/compare?before=..1970-01-01T00%3A00%3A01.500Z&after=1970-01-01T00%3A00%3A01.500Z..1970-01-01T00%3A00%3A03.001Z\
             &root=web%3Aa%26b"
        );
    }
}
