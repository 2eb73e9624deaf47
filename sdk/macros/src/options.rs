//! Parses the arguments of `#[trace(…)]`.

use proc_macro2::TokenStream;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, LitStr, Token, parenthesized};

/// Options of `#[trace]`.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    /// Unparsed tokens inside `fields(…)`; the macro that begins the span parses them.
    pub(crate) fields: Option<TokenStream>,
    pub(crate) err: bool,
    pub(crate) request: bool,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut options = Self::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            match key.to_string().as_str() {
                "name" => {
                    input.parse::<Token![=]>()?;
                    options.name = Some(input.parse()?);
                }
                "fields" => {
                    let content;
                    parenthesized!(content in input);
                    options.fields = Some(content.parse()?);
                }
                "err" => options.err = true,
                "request" => options.request = true,
                other => {
                    let problem = format!(
                        "unknown option `{other}`; write `name = \"…\"`, `fields(key = value, …)`, `err` or `request`"
                    );
                    return Err(syn::Error::new(key.span(), problem));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}
