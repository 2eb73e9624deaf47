//! Builds the command line that gives the content of a page.

use stroboscope_reports::form::{FieldKind, VerbPage};

/// Returns the command, for a Unix shell.
pub(crate) fn command_line(page: &VerbPage, data: &str, asked: &[(String, String)]) -> String {
    let mut line = format!("stroboscope {} --data {}", page.words, quoted(data));
    let mut last = String::new();
    for (name, value) in asked {
        let Some(field) = page.fields.iter().find(|field| field.name == *name) else {
            continue;
        };
        match (&field.kind, field.is_positional) {
            (FieldKind::Flag, _) => line += &format!(" --{name}"),
            // An option's value may begin with a dash.
            (_, false) if value.starts_with('-') => line += &format!(" --{name}={}", quoted(value)),
            (_, false) => line += &format!(" --{name} {}", quoted(value)),
            (_, true) if value.starts_with('-') => last += &format!(" -- {}", quoted(value)),
            (_, true) => last += &format!(" {}", quoted(value)),
        }
    }
    line + &last
}

/// Quotes a word for a shell, if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_reports::form::Field;

    #[test]
    fn commands_can_be_pasted() {
        let field = |name: &str, kind, is_positional| Field {
            name: name.to_owned(),
            help: String::new(),
            kind,
            default: None,
            is_positional,
            is_required: false,
            is_list: false,
            is_common: false,
        };
        let page = VerbPage {
            name: "search",
            words: "search",
            about: String::new(),
            more: String::new(),
            fields: vec![
                field("formula", FieldKind::Text("FORMULA".into()), true),
                field("bursts", FieldKind::Flag, false),
                field("root", FieldKind::Text("OPERATION".into()), false),
            ],
        };
        let check = |asked: &[(&str, &str)], expected: &str| {
            let asked: Vec<_> = asked
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect();
            assert_eq!(command_line(&page, "my data", &asked), expected);
        };
        check(&[], "stroboscope search --data 'my data'");
        check(
            &[
                ("formula", "{ name = \"it's\" }"),
                ("bursts", "on"),
                ("root", "web:page"),
            ],
            "stroboscope search --data 'my data' --bursts --root web:page '{ name = \"it'\\''s\" }'",
        );
        check(
            &[("root", "-x; rm *")],
            "stroboscope search --data 'my data' --root='-x; rm *'",
        );
    }
}
