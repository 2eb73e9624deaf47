//! Detects fields of OTLP's protobuf that the messages here lack; the decoder skips them silently.

use crate::wire::{Field, fields};

/// A message: its name and the numbers of its fields, with their nested messages.
struct Message {
    name: &'static str,
    fields: &'static [(u32, Option<&'static Message>)],
}

static ANY: Message = Message {
    name: "AnyValue",
    fields: &[
        (1, None),
        (2, None),
        (3, None),
        (4, None),
        (5, None),
        (6, None),
        (7, None),
    ],
};
static PAIR: Message = Message {
    name: "KeyValue",
    fields: &[(1, None), (2, Some(&ANY))],
};
static RESOURCE: Message = Message {
    name: "Resource",
    fields: &[(1, Some(&PAIR)), (2, None)],
};
static SCOPE: Message = Message {
    name: "InstrumentationScope",
    fields: &[(1, None), (2, None), (3, Some(&PAIR)), (4, None)],
};
static EVENT: Message = Message {
    name: "Span.Event",
    fields: &[(1, None), (2, None), (3, Some(&PAIR)), (4, None)],
};
static LINK: Message = Message {
    name: "Span.Link",
    fields: &[
        (1, None),
        (2, None),
        (3, None),
        (4, Some(&PAIR)),
        (5, None),
        (6, None),
    ],
};
static STATUS: Message = Message {
    name: "Status",
    fields: &[(1, None), (2, None), (3, None)],
};
static SPAN: Message = Message {
    name: "Span",
    fields: &[
        (1, None),
        (2, None),
        (3, None),
        (4, None),
        (5, None),
        (6, None),
        (7, None),
        (8, None),
        (9, Some(&PAIR)),
        (10, None),
        (11, Some(&EVENT)),
        (12, None),
        (13, Some(&LINK)),
        (14, None),
        (15, Some(&STATUS)),
        (16, None),
    ],
};
static SCOPE_SPANS: Message = Message {
    name: "ScopeSpans",
    fields: &[(1, Some(&SCOPE)), (2, Some(&SPAN)), (3, None)],
};
static RESOURCE_SPANS: Message = Message {
    name: "ResourceSpans",
    fields: &[
        (1, Some(&RESOURCE)),
        (2, Some(&SCOPE_SPANS)),
        (3, None),
        (1000, Some(&SCOPE_SPANS)),
    ],
};

/// Calls `ignored` with the message name and the number of each unknown field in a `ResourceSpans`.
/// Does not search the lists and maps in values of attributes.
pub fn unknown(message: &[u8], ignored: &mut dyn FnMut(&str)) {
    walk(message, &RESOURCE_SPANS, ignored);
}

fn walk(bytes: &[u8], message: &Message, ignored: &mut dyn FnMut(&str)) {
    for Field { number, payload } in fields(bytes).map_while(Result::ok) {
        match (
            message.fields.iter().find(|field| field.0 == number),
            payload,
        ) {
            (Some((_, Some(inner))), Some(payload)) => walk(payload, inner, ignored),
            (Some(_), _) => {}
            (None, _) => ignored(&format!("{}, field {number}", message.name)),
        }
    }
}

/// Returns the elements of a list of `ResourceSpans` with scopes, such as Tempo's `Trace`. Returns
/// `None` for any other message, such as a `ResourceSpans` itself. Both occur as field 1: a
/// `Trace` in Tempo's response, and a `ResourceSpans` in a request.
pub fn of_trace(message: &[u8]) -> Option<Vec<&[u8]>> {
    let lists: Result<Vec<_>, _> = fields(message).collect();
    let inner: Option<Vec<&[u8]>> = lists
        .ok()?
        .into_iter()
        .map(|field| field.payload.filter(|_| field.number == 1))
        .collect();
    let inner = inner.filter(|inner| !inner.is_empty())?;
    let is_of_resource = |message: &&[u8]| {
        let fields: Result<Vec<_>, ()> = fields(message).collect();
        fields.is_ok_and(|fields| {
            let is_known = |field: &Field<'_>| {
                [1, 2, 3, 1000].contains(&field.number) && field.payload.is_some()
            };
            fields.iter().all(is_known)
                && fields.iter().any(|field| [2, 1000].contains(&field.number))
        })
    };
    inner.iter().all(is_of_resource).then_some(inner)
}
