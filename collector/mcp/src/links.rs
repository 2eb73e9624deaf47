//! Addresses of the pages that show the content of an answer.

use stroboscope_reports::verb::Page;
use url::form_urlencoded::Serializer;

/// Arguments that a richer page (`Page::richer_path`) understands, too.
const OF_EVERY_PAGE: [&str; 3] = ["since", "until", "root"];

/// Returns the address of the page on the site at `base`, with those arguments that the page takes.
pub(crate) fn page_address(base: &str, page: &Page, arguments: &[(String, String)]) -> String {
    let path = page
        .richer_path
        .map_or_else(|| format!("/{}", page.name), str::to_owned);
    let is_taken = |name: &str| page.richer_path.is_none() || OF_EVERY_PAGE.contains(&name);
    let taken = arguments.iter().filter(|(name, _)| is_taken(name));
    let query = Serializer::new(String::new()).extend_pairs(taken).finish();
    match query.is_empty() {
        true => format!("{base}{path}"),
        false => format!("{base}{path}?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_reports::registry::tools;

    use super::*;

    #[test]
    fn addresses_hold_the_arguments_that_pages_take() {
        let check = |name: &str, arguments: &[(&str, &str)], expected: &str| {
            let page = tools()
                .find(|entry| entry.name == name)
                .unwrap()
                .page
                .unwrap();
            let arguments: Vec<_> = arguments
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            assert_eq!(page_address("http://h:1", &page, &arguments), expected);
        };
        check("operations", &[], "http://h:1/operations");
        check(
            "search",
            &[("formula", "{ duration > 1ms }"), ("bursts", "on")],
            "http://h:1/search?formula=%7B+duration+%3E+1ms+%7D&bursts=on",
        );
        check("overview", &[("since", "1h")], "http://h:1/?since=1h");
        check("requests", &[("top", "3")], "http://h:1/traces");
    }
}
