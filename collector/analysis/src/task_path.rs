//! Text of task paths, such as `client:page > edge:newsfeed.v1.Page/Load > web:auth#2`.
//!
//! Components are joined by ` > `. A `>` inside a component looks like a joint if spaces or the
//! component's edges surround it. Such a `>` is escaped as `\>`. If backslashes already precede it,
//! it gets one more, so that every path can be parsed back.

use std::borrow::Cow;

/// Separator of the components of a task's path.
pub const JOINT: &str = " > ";

/// Returns the component as it is written in a path.
pub fn escape(component: &str) -> Cow<'_, str> {
    rewrite(component, |backslashes| backslashes + 1)
}

/// Returns the original text of an escaped component.
pub(crate) fn unescape(component: &str) -> Cow<'_, str> {
    rewrite(component, |backslashes| backslashes.saturating_sub(1))
}

/// Returns the last component of a path, still escaped.
pub fn last_component(path: &str) -> &str {
    path.rfind(JOINT)
        .map_or(path, |at| &path[at + JOINT.len()..])
}

/// Returns a component of a path, or a boundary, without its number among siblings. A name with a
/// colon that itself ends in `#` and a number, or in `#*`, also loses that end.
pub(crate) fn unnumbered(text: &str) -> &str {
    let is_number = |number: &str| {
        number == "*" || (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    match text.rsplit_once('#') {
        // Only components of spans are numbered, and these contain a colon after the service.
        Some((base, number)) if base.contains(':') && is_number(number) => base,
        _ => text,
    }
}

/// Changes the number of backslashes in each word that consists of backslashes and one final `>`.
fn rewrite(component: &str, backslashes: impl Fn(usize) -> usize) -> Cow<'_, str> {
    // Most names contain no `>`.
    if !component.contains('>') {
        return Cow::Borrowed(component);
    }
    let mut words = Vec::new();
    for word in component.split(' ') {
        let before = word.len().saturating_sub(1);
        let alone = word.ends_with('>') && word[..before].bytes().all(|b| b == b'\\');
        words.push(match alone {
            true => Cow::Owned("\\".repeat(backslashes(before)) + ">"),
            false => Cow::Borrowed(word),
        });
    }
    Cow::Owned(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(component: &str, escaped: &str) {
        assert_eq!(escape(component), escaped);
        assert_eq!(unescape(escaped), component);
    }

    #[test]
    fn only_what_reads_as_a_joint_is_escaped() {
        check("web:GET /home", "web:GET /home");
        check("a:x->y", "a:x->y");
        check("a:x>", "a:x>");
        check("a:x > y", r"a:x \> y");
        check("a:x >", r"a:x \>");
        check("> >", r"\> \>");
        check(r"a:x \> y", r"a:x \\> y");
        check(r"a:\ > ", r"a:\ \> ");
        check("", "");
    }

    proptest! {
        #[test]
        fn paths_are_read_back(components in proptest::collection::vec(r"[a> \\]{0,6}", 1..5)) {
            // A service's name and a colon come first.
            let components: Vec<String> = components.into_iter().map(|c| format!("s:{c}")).collect();
            let path = components.iter().map(|c| escape(c)).collect::<Vec<_>>().join(JOINT);
            let read: Vec<_> = path.split(JOINT).map(|c| unescape(c).into_owned()).collect();
            prop_assert_eq!(unescape(last_component(&path)).into_owned(), read[read.len() - 1].clone());
            prop_assert_eq!(read, components);
        }
    }
}
