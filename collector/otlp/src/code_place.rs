//! Qualifies names of functions with their module or class, by OpenTelemetry's attributes for
//! source code.
//!
//! Two functions of a service may have the same name: `get::apply` and `set::apply`. If a span is
//! named like its function, this module puts the last part of the function's module or class before
//! its name. The SDK does the same for spans of `tracing`.

/// Maximum length of a function's name, and of the part before it. With the default limits, no
/// qualified name is too long.
const NAME_BYTES_MAX: usize = 128;

/// Place in the source code, as far as a span's attributes give it. A field is `None` if its
/// attribute is missing or not a text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CodePlace<'a> {
    /// `code.function.name`: the function with its module or class.
    full_name: Option<&'a str>,
    /// `code.function`, of older conventions.
    function: Option<&'a str>,
    /// `code.namespace`, of older conventions, or `code.module.name`, of tracing-opentelemetry.
    module: Option<&'a str>,
}

impl<'a> CodePlace<'a> {
    /// Stores the text of an attribute whose key names a function or its module; ignores other
    /// keys.
    pub(super) fn see(&mut self, key: &str, text: &'a str) {
        let known = match key {
            "code.function.name" => &mut self.full_name,
            "code.function" => &mut self.function,
            "code.namespace" | "code.module.name" => &mut self.module,
            _ => return,
        };
        *known = Some(text);
    }

    /// Returns a function's name with the last part of its module or class. Returns `None` if the
    /// span is not named like its function, if that part is unknown (or only the crate, in spans of
    /// `tracing`), or if either is too long or has characters that such names do not have.
    pub(super) fn qualified(&self, name: &str) -> Option<String> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_of_name) {
            return None;
        }
        let (module, separator) = match (self.full_name, self.module, self.function) {
            (Some(full), ..) => {
                let before = full.strip_suffix(name)?;
                let mut separators = SEPARATORS.iter().copied();
                separators
                    .find_map(|separator| Some((before.strip_suffix(separator)?, separator)))?
            }
            (None, Some(module), Some(function)) if function == name => {
                let is_path = module.contains("::") || module.contains('\\');
                (module, if is_path { "::" } else { "." })
            }
            // Spans of `tracing`. A module without a parent is the crate, whose name adds nothing
            // to the service's.
            (None, Some(module), None) if module.contains("::") && is_function(name) => {
                (module, "::")
            }
            _ => return None,
        };
        let last =
            module.rsplit(|of: char| SEPARATORS.iter().any(|separator| separator.contains(of)));
        let last = last.into_iter().next()?;
        let is_part =
            !last.is_empty() && last.len() <= NAME_BYTES_MAX && last.chars().all(is_of_name);
        is_part.then(|| format!("{last}{separator}{name}"))
    }
}

/// Separators between the parts of a name, in various programming languages.
const SEPARATORS: [&str; 5] = ["::", ".", "\\", "#", "/"];

fn is_of_name(of: char) -> bool {
    of.is_alphanumeric() || of == '_' || of == '$'
}

/// Reports whether the name has the style of Rust functions. Returns false for the names that web
/// frameworks give to the spans of requests.
fn is_function(name: &str) -> bool {
    let is_of_function =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(is_of_function) && !["request", "http_request", "http"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_module_they_are_in() {
        let check = |name: &str, attributes: &[(&str, &str)], expected: &str| {
            let mut place = CodePlace::default();
            for (key, text) in attributes {
                place.see(key, text);
            }
            let qualified = place.qualified(name);
            let got = qualified.as_deref().unwrap_or(name);
            assert_eq!(got, expected, "{attributes:?}");
        };
        let (full, module) = ("code.function.name", "code.module.name");
        let (namespace, function) = ("code.namespace", "code.function");
        // Two versions of tracing-opentelemetry; the crate's root.
        check("apply", &[(module, "redis::cmd::get")], "get::apply");
        check("apply", &[(namespace, "redis::cmd::get")], "get::apply");
        check("run", &[(module, "redis")], "run");
        check("request", &[(module, "tower_http::trace")], "request");
        // Other producers that use older conventions.
        check(
            "pay",
            &[(namespace, "com.shop.Cart"), (function, "pay")],
            "Cart.pay",
        );
        check("pay", &[(function, "pay"), (namespace, "cart")], "cart.pay");
        check(
            "pay",
            &[(namespace, "App\\Cart"), (function, "pay")],
            "Cart::pay",
        );
        check(
            "Cart.pay",
            &[(namespace, "com.Cart"), (function, "pay")],
            "Cart.pay",
        );
        check("Check Out", &[(namespace, "a::b")], "Check Out");
        check(
            "GET /a",
            &[(namespace, "a::b"), (function, "GET /a")],
            "GET /a",
        );
        check("pay", &[(function, "pay")], "pay");
        check("pay", &[(namespace, "com.shop.Cart")], "pay");
        // Stable conventions.
        check("pay", &[(full, "com.shop.Cart.pay")], "Cart.pay");
        check(
            "transfer",
            &[(full, "Http\\Client::transfer")],
            "Client::transfer",
        );
        check("open", &[(full, "open")], "open");
        check("pay", &[(full, "com.shop.Cart.prepay")], "pay");
        check("f", &[(full, "<a::B as c::D>::f")], "f");
        // Names and modules that are empty or too long.
        check("", &[(full, "a.")], "");
        check("pay", &[(full, ".pay")], "pay");
        check("pay", &[(full, &format!("{}.pay", "x".repeat(129)))], "pay");
        let long = "x".repeat(129);
        check(&long, &[(full, &format!("a.{long}"))], &long);
    }
}
