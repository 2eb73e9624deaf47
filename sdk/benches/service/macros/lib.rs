//! Replacements of `#[stroboscope::trace]` for the newsfeeds that are measured without Stroboscope.

use proc_macro::TokenStream;
use quote::quote;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{Expr, Meta, Token, parse_macro_input};

/// Returns the function unchanged and ignores the arguments.
#[proc_macro_attribute]
pub fn untraced(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// Becomes `#[tracing::instrument]` with the same `name` and `fields`. Function arguments that
/// `fields` does not list are not recorded. Other options are a compile error.
#[proc_macro_attribute]
pub fn instrument(options: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options with Punctuated::<Meta, Token![,]>::parse_terminated);
    let mut name = quote!();
    let mut fields = quote!();
    for option in options {
        match option {
            Meta::NameValue(pair) if pair.path.is_ident("name") => {
                let value = pair.value;
                name = quote!(name = #value,);
            }
            Meta::List(list) if list.path.is_ident("fields") => {
                // `fields(user)` records the argument's value in the SDK. In `tracing`, it declares
                // a field without a value.
                let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
                let Ok(listed) = parser.parse2(list.tokens) else {
                    return quote!(compile_error!("fields are `name` or `name = expression`");)
                        .into();
                };
                let listed = listed.into_iter().map(|field| match field {
                    Expr::Assign(pair) => {
                        let (key, value) = (pair.left, pair.right);
                        quote!(#key = #value)
                    }
                    name => quote!(#name = #name),
                });
                fields = quote!(fields(#(#listed),*));
            }
            _ => return quote!(compile_error!("only `name` and `fields` are known here");).into(),
        }
    }
    let item = proc_macro2::TokenStream::from(item);
    quote!(#[::tracing::instrument(#name skip_all, #fields)] #item).into()
}
