//! Wraps texts to fit a terminal.

use unicode_width::UnicodeWidthStr as _;

/// Indentation of the second and later lines of a cell, which distinguishes them from rows.
const CELL_INDENT: &str = "  ";

/// Returns the width of a text, in columns of a terminal.
pub(super) fn columns(text: &str) -> usize {
    text.width()
}

pub(super) fn padded(text: &str, width: usize) -> String {
    text.to_owned() + &" ".repeat(width.saturating_sub(columns(text)))
}

/// Wraps sentences to lines of at most `width` columns; a word that does not fit makes a line
/// longer. Continuation lines keep the indent of a line that begins with spaces. Text between
/// backticks stays in one line, regardless of its length, so that a command can be copied.
pub fn sentences(text: &str, width: usize) -> String {
    let lines = text.split('\n').flat_map(|line| {
        let indent = &line[..line.len() - line.trim_start_matches(' ').len()];
        filled(line, width, indent, &[words])
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Wraps a column's head to lines of at most `width` columns. A longer word has a line of its own.
pub(super) fn head(text: &str, width: usize) -> Vec<String> {
    filled(text, width, "", &[words])
}

/// Wraps a cell to lines of at most `width` columns, or to single characters if there is no room.
/// Drops only spaces at ends of lines, and indentation beyond half of the width. Lines break where
/// tasks of a path join, or else between words, parts of a name or characters.
pub(super) fn cell(text: &str, width: usize) -> Vec<String> {
    let nested = text.len() - text.trim_start_matches(' ').len();
    // At least half of each line remains for the text of a deeply nested cell.
    let kept = match columns(text) <= width {
        true => nested,
        false => nested.min(width / 2),
    };
    filled(
        &text[nested - kept..],
        width,
        &(" ".repeat(kept) + CELL_INDENT),
        &[
            |text| text.split_inclusive(" > ").collect(),
            words,
            |text| text.split_inclusive(':').collect(),
            |text| {
                text.split_inclusive(['/', '.', '-', '_', ',', '='])
                    .collect()
            },
            |text| text.split_inclusive(|_| true).collect(),
        ],
    )
}

/// Cuts a text into pieces after which a line may end.
type Splitter = fn(&str) -> Vec<&str>;

fn words(text: &str) -> Vec<&str> {
    let mut is_command = false;
    let is_end = |c: char| {
        is_command ^= c == '`';
        c == ' ' && !is_command
    };
    text.split_inclusive(is_end).collect()
}

/// Wraps a text. If it is longer than a line, cuts it by the first of `cuts`, and cuts a piece that
/// is longer than a line by the next.
fn filled(text: &str, width: usize, indent: &str, cuts: &[Splitter]) -> Vec<String> {
    let mut lines = Lines {
        ended: Vec::new(),
        last: String::new(),
        width,
        indent,
    };
    lines.put(text, cuts);
    lines.end();
    lines.ended
}

struct Lines<'a> {
    ended: Vec<String>,
    last: String,
    width: usize,
    indent: &'a str,
}

impl Lines<'_> {
    fn put(&mut self, text: &str, cuts: &[Splitter]) {
        let needed = columns(text.trim_end_matches(' '));
        let is_begun = !self.last.trim_start_matches(' ').is_empty();
        if columns(&self.last) + needed <= self.width {
            self.last += text;
        } else if is_begun && (columns(self.indent) + needed <= self.width || cuts.is_empty()) {
            self.end();
            self.last = self.indent.to_owned() + text;
        } else if let [cut, finer @ ..] = cuts {
            cut(text)
                .into_iter()
                .for_each(|piece| self.put(piece, finer));
        } else {
            self.last += text;
        }
    }

    fn end(&mut self) {
        self.ended.push(self.last.trim_end_matches(' ').to_owned());
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_lines_between_words() {
        let check = |text: &str, width, expected: &str| {
            assert_eq!(sentences(text, width), expected);
        };
        check("", 5, "");
        check("one two\n\nthree", 80, "one two\n\nthree");
        check("one two three", 7, "one two\nthree");
        check("one two three", 8, "one two\nthree");
        check("  one two three", 9, "  one two\n  three");
        check("see `a b --c` for it", 9, "see\n`a b --c`\nfor it");
        check("see `a b --cc` for it", 5, "see\n`a b --cc`\nfor\nit");
        check("見る 見る", 5, "見る\n見る");
    }

    #[test]
    fn cells_keep_all_of_their_characters() {
        let check = |text: &str, width, expected: &[&str]| {
            let lines = cell(text, width);
            assert_eq!(lines, expected);
            let without = |text: &str| text.replace(' ', "");
            assert_eq!(without(&lines.concat()), without(text));
        };
        check("a:x > b:y", 9, &["a:x > b:y"]);
        check("a:x > b:y", 7, &["a:x >", "  b:y"]);
        check(
            "shop-cart:GET /items",
            11,
            &["shop-cart:", "  GET", "  /items"],
        );
        check("shop-cart:GET /items", 14, &["shop-cart:GET", "  /items"]);
        check("  nested name", 10, &["  nested", "    name"]);
        check("       nested name", 12, &["      nested", "        name"]);
        let deep = " ".repeat(90) + "name";
        check(&deep, 12, &["      name"]);
        check(&deep, 94, &[&*deep]);
        check("abcdefghij", 5, &["abcde", "  fgh", "  ij"]);
        check("abc", 1, &["a", "  b", "  c"]);
    }
}
