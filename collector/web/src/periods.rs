//! Two periods as they stand in the addresses of `compare` and `explain`.

use stroboscope_present::page::Html;
use stroboscope_reports::time::written;
use url::form_urlencoded::Serializer;

/// An earlier and a later period, ns since the Unix epoch; the earlier one may begin with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TwoPeriods<'a> {
    pub(crate) before: (Option<i64>, i64),
    pub(crate) after: (i64, i64),
    /// Of these requests alone.
    pub(crate) root: Option<&'a str>,
}

impl TwoPeriods<'_> {
    /// The form of a verb, filled in and sent.
    pub(crate) fn address(&self, verb: &str) -> String {
        let mut form = Serializer::new(String::new());
        let before = self.before.0.map_or_else(String::new, written);
        form.append_pair("before", &format!("{before}..{}", written(self.before.1)));
        let (from_ns, until_ns) = self.after;
        let after = format!("{}..{}", written(from_ns), written(until_ns));
        form.append_pair("after", &after);
        if let Some(root) = self.root {
            form.append_pair("root", root);
        }
        format!("/{verb}?{}", form.finish())
    }

    /// A link to it.
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
            before: (None, 1_500_000_000),
            after: (1_500_000_000, 3_000_000_001),
            root: Some("web:a&b"),
        };
        assert_eq!(
            periods.address("compare"),
            "/compare?before=..1970-01-01T00%3A00%3A01.500Z&after=1970-01-01T00%3A00%3A01.500Z..1970-01-01T00%3A00%3A03.000000001Z\
             &root=web%3Aa%26b"
        );
    }
}
