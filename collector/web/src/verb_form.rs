//! HTML form for a subcommand's options, submitted as a GET query.

use stroboscope_render::page::Html;

use crate::scope::{Scope, is_of_scope};
use stroboscope_reports::form::{Field, FieldKind, VerbPage};

/// Value names of options that take a name from the store, each with the id of its suggestions.
const SUGGESTED: [(&str, &str); 2] = [("ATTRIBUTE", "attributes"), ("OPERATION", "operations")];
/// Value name of an option that takes a range of times.
const PERIOD: &str = "PERIOD";
/// Maximum number of names that a form suggests for a field.
const SUGGESTIONS_MAX: usize = 500;

/// Builds the form, filled in with the current options. Sends time range and root operation along
/// as hidden fields, because the strip above the page has their form.
pub(crate) fn form(page: &VerbPage, asked: &[(String, String)], scope: &Scope) -> Html {
    let mut html = Html::new();
    let submits_itself = page
        .fields
        .iter()
        .any(|field| field.kind == FieldKind::Factor);
    html.markup("<form class=\"options\" method=\"get\" action=\"/")
        .text(page.name)
        .markup("\"")
        .markup(if submits_itself {
            " data-auto-submit=\"\""
        } else {
            ""
        })
        .markup(">");
    let fields = page.fields.iter().filter(|field| !is_of_scope(&field.name));
    let (common, own): (Vec<&Field>, Vec<&Field>) = fields.partition(|field| field.is_common);
    let (first, more): (Vec<&Field>, Vec<&Field>) =
        own.into_iter().partition(|field| is_first(field));
    html.markup("<div class=\"fields\">");
    for field in first {
        write_field(&mut html, field, asked);
    }
    html.markup("</div>");
    for (summary, fields) in [("More options", more), ("Which requests", common)] {
        if fields.is_empty() {
            continue;
        }
        // The fold stays closed even if options are given, because its summary lists them, and
        // readers want the answer.
        html.markup("<details><summary>")
            .markup(summary)
            .text(&said(&fields, asked))
            .markup("</summary><div class=\"fields\">");
        for field in fields {
            write_field(&mut html, field, asked);
        }
        html.markup("</div></details>");
    }
    scope.hidden(&mut html);
    html.markup("<p class=\"go\"><button>Show</button></p></form>\n");
    html
}

/// Reports whether the form shows the option outside of folds: it is required, positional, a
/// factor, or one of the most used.
fn is_first(field: &Field) -> bool {
    field.is_required
        || field.is_positional
        || field.kind == FieldKind::Factor
        || [
            "by",
            "before",
            "after",
            "operation",
            "segment",
            "category",
            "slowest",
            "focus",
            "all",
            "trace",
            "control",
            "test",
        ]
        .contains(&&*field.name)
}

fn given<'a>(field: &'a Field, asked: &'a [(String, String)]) -> impl Iterator<Item = &'a str> {
    asked
        .iter()
        .filter(|(name, _)| *name == field.name)
        .map(|(_, value)| value.as_str())
}

/// Maximum number of characters of a value in the summary of a fold.
const SAID_CHARS_MAX: usize = 40;

/// Lists the given options among these fields, with their values; flags have none.
fn said(fields: &[&Field], asked: &[(String, String)]) -> String {
    let given = fields.iter().flat_map(|field| {
        given(field, asked).map(|value| {
            let short: String = value.chars().take(SAID_CHARS_MAX).collect();
            let more = if short.len() < value.len() { "…" } else { "" };
            match field.kind {
                FieldKind::Flag => label(field),
                _ => format!("{} {short}{more}", label(field)),
            }
        })
    });
    let given: Vec<String> = given.collect();
    match given.is_empty() {
        true => String::new(),
        false => format!(": {}", given.join(", ")),
    }
}

/// Formats an option's name for people.
fn label(field: &Field) -> String {
    let name = field.name.replace('-', " ");
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

fn write_field(html: &mut Html, field: &Field, asked: &[(String, String)]) {
    let value = given(field, asked).next();
    let is_flag = field.kind == FieldKind::Flag;
    html.markup(match &field.kind {
        FieldKind::Flag => "<div class=\"field flag\">",
        FieldKind::Text(called) if called == PERIOD => "<div class=\"field long\">",
        _ => "<div class=\"field\">",
    });
    if is_flag {
        write_input(html, field, value);
    }
    html.markup("<label for=\"f-")
        .text(&field.name)
        .markup("\">")
        .text(&label(field))
        .markup("</label>");
    if !is_flag {
        write_input(html, field, value);
        write_further(html, field, asked);
    }
    html.markup("<span class=\"hint\" id=\"h-")
        .text(&field.name)
        .markup("\">")
        .text(&field.help.replace('`', ""))
        .markup("</span></div>\n");
}

/// Writes inputs for the further values of a list, and an empty one to add a value. Without them,
/// the form would send only the first value.
fn write_further(html: &mut Html, field: &Field, asked: &[(String, String)]) {
    let is_text = matches!(field.kind, FieldKind::Text(_) | FieldKind::Number);
    let values = given(field, asked).chain([""]).skip(1);
    for value in values.filter(|_| field.is_list && is_text) {
        html.markup("<input type=\"text\" autocomplete=\"off\" spellcheck=\"false\" name=\"")
            .text(&field.name)
            .markup("\" aria-label=\"")
            .text(&format!("{}, another one", label(field)))
            .markup("\" value=\"")
            .text(value)
            .markup("\"/>");
    }
}

fn write_input(html: &mut Html, field: &Field, value: Option<&str>) {
    let shown = value.or(field.default.as_deref()).unwrap_or_default();
    let named = |html: &mut Html| {
        html.markup(" id=\"f-")
            .text(&field.name)
            .markup("\" name=\"")
            .text(&field.name)
            .markup("\" aria-describedby=\"h-")
            .text(&field.name)
            .markup("\"");
    };
    match &field.kind {
        FieldKind::Flag => {
            html.markup("<input type=\"checkbox\"");
            named(html);
            html.markup(if value.is_some() {
                " checked=\"\"/>"
            } else {
                "/>"
            });
        }
        FieldKind::Choice(choices) => {
            html.markup("<select");
            named(html);
            html.markup(">");
            for choice in choices {
                html.markup("<option")
                    .markup(if choice == shown {
                        " selected=\"\">"
                    } else {
                        ">"
                    })
                    .text(choice)
                    .markup("</option>");
            }
            html.markup("</select>");
        }
        FieldKind::Factor => {
            let shown = value.unwrap_or("0.5");
            html.markup("<span class=\"slider\"><input type=\"range\" min=\"0\" max=\"2\" step=\"0.05\" value=\"")
                .text(shown)
                .markup("\"");
            named(html);
            html.markup("/><output for=\"f-")
                .text(&field.name)
                .markup("\">× ")
                .text(shown)
                .markup("</output></span>");
        }
        FieldKind::Number => {
            html.markup("<input type=\"number\" step=\"any\" value=\"")
                .text(shown)
                .markup("\"");
            named(html);
            html.markup("/>");
        }
        FieldKind::Text(called) => {
            html.markup(
                "<input type=\"text\" autocomplete=\"off\" spellcheck=\"false\" placeholder=\"",
            )
            .text(&called.to_lowercase())
            .markup("\" value=\"")
            .text(shown)
            .markup("\"");
            named(html);
            if let Some((_, list)) = SUGGESTED.iter().find(|(value, _)| value == called) {
                html.markup(" list=\"").markup(list).markup("\"");
            }
            html.markup("/>");
        }
    }
}

/// Returns the suggestions for the fields of a form. `names` lists the names for an id such as
/// `attributes`. The answer contains the suggestions, so that the form need not wait for the store.
pub(crate) fn suggestions(page: &VerbPage, names: impl Fn(&str) -> Vec<String>) -> Html {
    let fields = page.fields.iter().filter(|field| !is_of_scope(&field.name));
    let kinds: Vec<&FieldKind> = fields.map(|field| &field.kind).collect();
    let mut html = Html::new();
    for (value, id) in SUGGESTED {
        if kinds.contains(&&FieldKind::Text(value.to_owned())) {
            write_suggestions(&mut html, id, &names(id));
        }
    }
    html
}

fn write_suggestions(html: &mut Html, id: &'static str, names: &[String]) {
    html.markup("<datalist id=\"").markup(id).markup("\">");
    for name in names.iter().take(SUGGESTIONS_MAX) {
        html.markup("<option value=\"")
            .text(name)
            .markup("\"></option>");
    }
    html.markup("</datalist>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_an_input_for_each_value_and_for_another_one() {
        let field = Field {
            name: "control".to_owned(),
            help: String::new(),
            kind: FieldKind::Text("VALUE".to_owned()),
            default: None,
            is_positional: false,
            is_required: true,
            is_list: true,
            is_common: false,
        };
        let page = VerbPage {
            name: "experiment",
            words: "experiment",
            about: String::new(),
            more: String::new(),
            fields: vec![field],
        };
        let inputs = |values: &[&str]| {
            let asked = values
                .iter()
                .map(|value| ("control".to_owned(), (*value).to_owned()));
            let asked: Vec<(String, String)> = asked.collect();
            let html = form(&page, &asked, &Scope::default()).into_string();
            for value in values {
                assert!(html.contains(&format!("value=\"{value}\"")), "{html}");
            }
            html.matches(" name=\"control\"").count()
        };
        assert_eq!(inputs(&[]), 1);
        assert_eq!(inputs(&["a"]), 2);
        assert_eq!(inputs(&["a", "b"]), 3);
    }
}
