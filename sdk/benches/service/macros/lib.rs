//! What `#[stroboscope::trace]` becomes in the newsfeeds that are measured without Stroboscope.

use proc_macro::TokenStream;
use quote::quote;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{Expr, Meta, Token, parse_macro_input};

/// The function as it is.
#[proc_macro_attribute]
pub fn untraced(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// `#[tracing::instrument]` with the same name and fields; arguments that are not named there are left out.
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
                // `fields(user)` is the argument's value to us, and a field without a value to `tracing`.
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
