//! Commands in the documents: their subcommands and flags are those of the help.

use std::collections::BTreeMap;

use crate::{documents, read, root};

/// Tokens that end a command in a shell.
const ENDS: [&str; 7] = ["|", "||", "&", "&&", ";", ">", "2>"];

/// Splits a line as a shell does, without its comment: quotes join words.
fn tokens(line: &str) -> Vec<String> {
    let (mut tokens, mut token, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                token.get_or_insert_default();
            }
            None if c == '#' && token.is_none() => break,
            None if c.is_whitespace() => tokens.extend(token.take()),
            _ => token.get_or_insert_default().push(c),
        }
    }
    tokens.extend(token);
    tokens
}

/// Returns the arguments of each call of `stroboscope` in a line.
fn calls(line: &str) -> Vec<Vec<String>> {
    let tokens = tokens(line);
    let begins = |at: usize| {
        let before = at.checked_sub(1).map(|before| tokens[before].as_str());
        before.is_none_or(|before| {
            ENDS.contains(&before) || ["$", "sudo"].contains(&before) || before.contains('=')
        })
    };
    (0..tokens.len())
        .filter(|at| tokens[*at] == "stroboscope" && begins(*at))
        .map(|at| {
            let rest = tokens[at + 1..].iter();
            rest.take_while(|token| !ENDS.contains(&token.as_str()))
                .cloned()
                .collect()
        })
        .collect()
}

/// Returns the fault of a call, by the help: an unknown subcommand, or a flag that the subcommand
/// lacks.
fn fault(help: &BTreeMap<String, String>, arguments: &[String]) -> Option<String> {
    let mut name = "stroboscope".to_owned();
    for argument in arguments {
        let longer = format!("{name} {argument}");
        match help.contains_key(&longer) {
            true => name = longer,
            false => break,
        }
    }
    let is_variable = |word: &str| word.starts_with('$') || word.chars().all(char::is_uppercase);
    let is_any = |word: &str| word == "…" || is_variable(word);
    if name == "stroboscope"
        && let Some(first) = arguments.first().filter(|first| !first.starts_with('-'))
    {
        return (!is_any(first)).then(|| format!("there is no subcommand {first}"));
    }
    let flags = arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .filter(|argument| argument.starts_with("--"))
        .map(|flag| flag.split('=').next().unwrap_or_default());
    let is_unknown = |flag: &&str| {
        let mut after = help[&name].split(*flag).skip(1);
        !after.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-'))
    };
    let mut unknown = flags.filter(is_unknown);
    unknown.next().map(|flag| format!("{name} has no {flag}"))
}

/// Returns the commands of a document: the lines of its blocks for a shell, and code in its text
/// that has flags.
fn commands(text: &str) -> Vec<String> {
    let (mut found, mut fence, mut open) = (Vec::new(), None, String::new());
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = match fence {
                None => Some(language),
                Some(_) => None,
            };
        } else if fence.is_some_and(|language| ["console", "sh"].contains(&language)) {
            open.push_str(line);
            match open.strip_suffix('\\') {
                Some(continued) => open.truncate(continued.len()),
                None => found.push(std::mem::take(&mut open)),
            }
        } else if fence.is_none() {
            let code = line.split('`').skip(1).step_by(2);
            let has_flags = |code: &&str| code.starts_with("stroboscope ") && code.contains(" --");
            found.extend(code.filter(has_flags).map(str::to_owned));
        }
    }
    found
}

fn help() -> BTreeMap<String, String> {
    let page = read(&root().join("collector/docs/cli.md"));
    let sections = page.split("\n## ").skip(1);
    sections
        .filter_map(|section| section.split_once('\n'))
        .map(|(name, text)| (name.trim().to_owned(), text.to_owned()))
        .collect()
}

#[test]
fn a_wrong_command_is_found() {
    let help = help();
    let check = |line: &str| -> Vec<Option<String>> {
        let calls = calls(line);
        calls.iter().map(|call| fault(&help, call)).collect()
    };
    assert_eq!(
        check("$ sudo stroboscope kernel record --name 'a | b'  # --wrong"),
        [None]
    );
    let wrong = Some("stroboscope top has no --onc".to_owned());
    assert_eq!(check("$ X=1 stroboscope top --onc --once=1"), [wrong]);
    let wrong = Some("there is no subcommand colect".to_owned());
    assert_eq!(
        check("$ stroboscope colect && stroboscope compare …"),
        [wrong, None]
    );
    assert!(check("$ cargo install --path stroboscope/collector").is_empty());
}

#[test]
fn commands_in_the_documents_exist() {
    let help = help();
    let mut looked = 0;
    for document in documents() {
        // The changelog describes older versions, and the page of the help is where this looks.
        if ["CHANGELOG.md", "collector/docs/cli.md"].contains(&document.as_str()) {
            continue;
        }
        for command in commands(&read(&root().join(&document))) {
            for call in calls(&command) {
                looked += 1;
                let fault = fault(&help, &call);
                assert!(fault.is_none(), "{document}: {command}: {fault:?}");
            }
        }
    }
    assert!(looked > 100, "{looked}");
}
