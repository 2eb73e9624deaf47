//! Generates the new body of a function with the attribute `#[trace]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Block, Expr, ExprAsync, ItemFn, LitStr, ReturnType, Stmt, Type};

use crate::options::Options;

pub(crate) fn traced(options: &Options, function: ItemFn) -> TokenStream {
    let ItemFn {
        attrs,
        vis,
        sig,
        block,
    } = function;
    let name = options
        .name
        .clone()
        .unwrap_or_else(|| LitStr::new(&sig.ident.to_string(), sig.ident.span()));
    let fields = &options.fields;
    let span = match options.request {
        true => quote!(::stroboscope::span!(request: #name, #fields)),
        false => quote!(::stroboscope::span!(#name, #fields)),
    };
    // Inspects the function's result while the span is current.
    let noted = |result: TokenStream| match options.err {
        true => quote! {
            let result = #result;
            ::stroboscope::__private::note_failure(&result);
            result
        },
        false => result,
    };
    let body = if sig.asyncness.is_some() {
        let hint = return_hint(&sig.output);
        let block = match options.err {
            true => noted(quote!(async move { #hint #block }.await)),
            false => quote!(#hint #block),
        };
        if fields.is_none() {
            let begin = match options.request {
                true => span,
                false => quote!(::stroboscope::__begin!(#name,)),
            };
            quote! {
                ::stroboscope::__private::in_span_from_first_poll(
                    async move { #block },
                    || #begin,
                ).await
            }
        } else {
            quote! {
                ::stroboscope::FutureExt::in_span(async move { #block }, #span).await
            }
        }
    } else if let Some(boxed) = boxed_future(&block) {
        let (before, future) = boxed;
        let future = match options.err {
            true => {
                let result = noted(quote!((#future).await));
                quote!(async move { #result })
            }
            false => quote!(#future),
        };
        quote! {
            #(#before)*
            ::std::boxed::Box::pin(::stroboscope::FutureExt::in_span(#future, #span))
        }
    } else {
        let block = match options.err {
            // `return` and `?` leave the closure. It runs once, so it may return references into
            // its captures.
            true => {
                let output = match &sig.output {
                    ReturnType::Type(_, kind) if mentions_impl(kind) => None,
                    output => Some(output),
                };
                noted(quote!(::stroboscope::__private::once(move || #output #block)))
            }
            false => quote!(#block),
        };
        let begin = match options.request {
            true => quote!(let _stroboscope_span = #span.entered();),
            // The frame is assigned only if something may be recorded; only a compiler-generated
            // drop flag tracks this.
            false => quote! {
                let mut _stroboscope_frame;
                let _stroboscope_span;
                if !::stroboscope::__private::is_idle() {
                    _stroboscope_frame = ::stroboscope::__private::Frame::new();
                    _stroboscope_span = ::stroboscope::__begin_in_frame!(_stroboscope_frame, #name, #fields);
                }
            },
        };
        quote!(#begin #block)
    };
    quote!(#(#attrs)* #vis #sig { #body })
}

/// Generates a statement that fixes the type of the async block, as `?` and `return` inside it
/// require. The statement never runs. Generates nothing without a return type, or if it has `impl`.
fn return_hint(output: &ReturnType) -> TokenStream {
    match output {
        ReturnType::Type(_, kind) if !mentions_impl(kind) => quote! {
            #[allow(
                unreachable_code, clippy::diverging_sub_expression, clippy::empty_loop, clippy::let_unit_value,
                clippy::let_with_type_underscore, clippy::needless_return, clippy::unreachable
            )]
            if false {
                let unreachable: #kind = loop {};
                return unreachable;
            }
        },
        _ => quote!(),
    }
}

fn mentions_impl(kind: &Type) -> bool {
    quote!(#kind)
        .to_string()
        .split_whitespace()
        .any(|word| word == "impl")
}

/// Recognizes `Box::pin` of an async block at the end of a plain function, such as in a method that
/// `#[async_trait]` generates. Returns the statements before it and the async block; `None` for
/// other bodies.
fn boxed_future(block: &Block) -> Option<(&[Stmt], &ExprAsync)> {
    let (last, before) = block.stmts.split_last()?;
    let Stmt::Expr(Expr::Call(call), None) = last else {
        return None;
    };
    let Expr::Path(function) = &*call.func else {
        return None;
    };
    let mut names = function
        .path
        .segments
        .iter()
        .rev()
        .map(|segment| segment.ident.to_string());
    if names.next()? != "pin" || names.next()? != "Box" || call.args.len() != 1 {
        return None;
    }
    match call.args.first()? {
        Expr::Async(future) => Some((before, future)),
        _ => None,
    }
}
