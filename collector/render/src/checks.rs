//! Outcomes of checks, as JUnit XML and as Markdown for CI systems.
//!
//! JUnit XML has no standard. Jenkins reads the message of an outcome from an attribute, GitLab
//! from the text, so it is in both. Jenkins rejects files without a test case, and both show the
//! class name as the suite.

use std::fmt::Write as _;

use crate::page::Html;
use crate::show::{scrubbed, shortened};

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckOutcome {
    Failed,
    /// There is no verdict, and that fails the pipeline.
    Error,
    /// There is no verdict, and that does not fail the pipeline.
    Skipped,
    Passed,
}

/// Check of one thing, such as the requests of a root operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Name of the thing, which may be any text.
    pub name: String,
    pub outcome: CheckOutcome,
    pub reasons: Vec<String>,
}

/// Checks of one run of a subcommand; at least one if they are written to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckList {
    /// Name of the subcommand.
    pub verb: &'static str,
    /// Verdict on all checks together.
    pub sentence: String,
    pub checks: Vec<Check>,
}

/// Maximum number of checks in Markdown. GitHub discards a summary of more than 1 MiB.
const CHECKS_SHOWN_MAX: usize = 50;
/// Maximum number of reasons for each check in Markdown.
const REASONS_SHOWN_MAX: usize = 3;
/// Maximum number of characters of each text in Markdown, before escaping.
const CHARACTERS_SHOWN_MAX: usize = 500;

impl CheckOutcome {
    /// Returns the beginning and the end of the element in JUnit XML; `None` for a passed check,
    /// which has none.
    const fn element(self) -> Option<[&'static str; 2]> {
        match self {
            Self::Failed => Some(["<failure type=\"failed\" message=\"", "</failure>"]),
            Self::Error => Some(["<error type=\"unknown\" message=\"", "</error>"]),
            Self::Skipped => Some(["<skipped type=\"unknown\" message=\"", "</skipped>"]),
            Self::Passed => None,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Failed => "❌ failed",
            Self::Error => "❓ unknown",
            Self::Skipped => "⚠️ unknown",
            Self::Passed => "✅ passed",
        }
    }
}

impl Check {
    /// Creates a check that passed.
    pub fn passed(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            outcome: CheckOutcome::Passed,
            reasons: Vec::new(),
        }
    }
}

impl CheckList {
    fn count(&self, outcome: CheckOutcome) -> usize {
        let all = self.checks.iter();
        all.filter(|check| check.outcome == outcome).count()
    }

    /// Formats the checks as JUnit XML, with a test case for each.
    pub fn to_junit(&self) -> String {
        let mut xml = Html::new();
        xml.markup("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
        xml.markup("<testsuite name=\"stroboscope ").text(self.verb);
        xml.markup("\" tests=\"").shown(self.checks.len());
        xml.markup("\" failures=\"")
            .shown(self.count(CheckOutcome::Failed));
        xml.markup("\" errors=\"")
            .shown(self.count(CheckOutcome::Error));
        xml.markup("\" skipped=\"")
            .shown(self.count(CheckOutcome::Skipped));
        xml.markup("\" time=\"0\">\n");
        for check in &self.checks {
            xml.markup("<testcase classname=\"stroboscope.")
                .text(self.verb);
            xml.markup("\" name=\"").text(&scrubbed(&check.name));
            xml.markup("\" time=\"0\">");
            if let Some([open, close]) = check.outcome.element() {
                let reasons = check.reasons.iter().map(|reason| scrubbed(reason));
                let reasons: Vec<String> = reasons.collect();
                xml.markup(open).text(&reasons.join("; ")).markup("\">");
                xml.text(&reasons.join("\n")).markup(close);
            }
            xml.markup("</testcase>\n");
        }
        xml.markup("<system-out>").text(&scrubbed(&self.sentence));
        xml.markup("</system-out>\n</testsuite>\n</testsuites>\n");
        xml.into_string()
    }

    /// Formats the checks as a section of GitHub Flavored Markdown that may follow any other
    /// section. Lists the worst checks first.
    pub fn to_markdown(&self) -> String {
        let mut checks: Vec<&Check> = self.checks.iter().collect();
        checks.sort_by_key(|check| check.outcome);
        let sentence = plain(&self.sentence);
        // The first line feed ends the last line of the file if that has none.
        let mut text = format!("\n### stroboscope {}\n\n{sentence}\n\n", self.verb);
        text += "| outcome | of | reason |\n|---|---|---|\n";
        for check in checks.iter().take(CHECKS_SHOWN_MAX) {
            let reasons = check.reasons.iter().map(|reason| plain(reason));
            let mut reasons: Vec<String> = reasons.take(REASONS_SHOWN_MAX).collect();
            let more = check.reasons.len().saturating_sub(REASONS_SHOWN_MAX);
            if more > 0 {
                reasons.push(format!("and {more} more"));
            }
            let (word, name) = (check.outcome.word(), plain(&check.name));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "| {word} | {name} | {} |", reasons.join("<br>"));
        }
        let more = checks.len().saturating_sub(CHECKS_SHOWN_MAX);
        if more > 0 {
            let _ = writeln!(text, "\nand {more} more");
        }
        text
    }
}

/// Shortens an untrusted text to one line of Markdown, without formatting, bracketed links and
/// columns.
fn plain(text: &str) -> String {
    let text = shortened(&scrubbed(text), CHARACTERS_SHOWN_MAX);
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // A zero-width space prevents mentions of users and issues, which GitHub finds after it
            // removed escapes.
            '@' | '#' => plain.extend([c, '\u{200b}']),
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '&' | '~' | '$' => {
                plain.extend(['\\', c]);
            }
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(checks: &[(&str, CheckOutcome, &[&str])]) -> CheckList {
        let checks = checks.iter().map(|(name, outcome, reasons)| Check {
            name: (*name).to_owned(),
            outcome: *outcome,
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        });
        CheckList {
            verb: "compare",
            sentence: "Worse: a | b.".to_owned(),
            checks: checks.collect(),
        }
    }

    #[test]
    fn each_check_is_a_test_case() {
        let list = list(&[
            ("web:/feed", CheckOutcome::Failed, &["rose", "fails"]),
            ("web:/a", CheckOutcome::Passed, &[]),
            ("web:/b", CheckOutcome::Skipped, &["few"]),
            ("data", CheckOutcome::Error, &["cut"]),
        ]);
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites>
<testsuite name=\"stroboscope compare\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\" time=\"0\">
<testcase classname=\"stroboscope.compare\" name=\"web:/feed\" time=\"0\"><failure type=\"failed\" message=\"rose; fails\">rose
fails</failure></testcase>
<testcase classname=\"stroboscope.compare\" name=\"web:/a\" time=\"0\"></testcase>
<testcase classname=\"stroboscope.compare\" name=\"web:/b\" time=\"0\"><skipped type=\"unknown\" message=\"few\">few</skipped></testcase>
<testcase classname=\"stroboscope.compare\" name=\"data\" time=\"0\"><error type=\"unknown\" message=\"cut\">cut</error></testcase>
<system-out>Worse: a | b.</system-out>
</testsuite>
</testsuites>
";
        assert_eq!(list.to_junit(), expected);
        let expected = "
### stroboscope compare

Worse: a \\| b.

| outcome | of | reason |
|---|---|---|
| ❌ failed | web:/feed | rose<br>fails |
| ❓ unknown | data | cut |
| ⚠️ unknown | web:/b | few |
| ✅ passed | web:/a |  |
";
        assert_eq!(list.to_markdown(), expected);
    }

    #[test]
    fn untrusted_texts_stay_texts() {
        let name = "]]>\"'&<b>|`\n*\u{0}\u{1b}\u{ffff}\u{202e}😀";
        let list = list(&[(name, CheckOutcome::Failed, &[name])]);
        let escaped =
            "]]&gt;&quot;&#39;&amp;&lt;b&gt;|`\u{fffd}*\u{fffd}\u{fffd}\u{fffd}\u{fffd}😀";
        let xml = list.to_junit();
        assert_eq!(xml.matches(escaped).count(), 3, "{xml}");
        let row = list.to_markdown();
        let row = row.lines().last().unwrap_or_default();
        let escaped = "\\]\\]\\>\"'\\&\\<b\\>\\|\\`\u{fffd}\\*\u{fffd}\u{fffd}\u{ffff}\u{fffd}😀";
        assert_eq!(row, format!("| ❌ failed | {escaped} | {escaped} |"));
    }

    #[test]
    fn a_summary_fits_into_a_mebibyte() {
        let long = "|".repeat(10_000);
        let reasons = [&*long; 9];
        let many = vec![(&*long, CheckOutcome::Failed, &reasons[..]); 1_000];
        let text = list(&many).to_markdown();
        assert!(text.len() < 1 << 19, "{}", text.len());
        assert!(text.ends_with("\nand 950 more\n"), "{text}");
        assert!(text.contains("<br>and 6 more |"), "{text}");
    }
}
