//! `span!` and `event!`.

/// Begins a [`Span`](crate::Span): `span!("name")`, `span!("name", key = value, other = &text)`.
///
/// The name and the keys are constants. A key without a value takes the variable of that name. Values are numbers,
/// booleans, strings, or anything wrapped in [`display`](crate::display) or [`debug`](crate::debug); they are
/// evaluated only while something is recorded.
///
/// `span!(request: "name")` begins a request, also inside of another span: for a span inside of one that outlasts it, such as a
/// connection's or a worker's. Each such request is chosen by itself ([`sample`](crate::Builder::sample)), has a trace of its own,
/// and is linked to the span that it is in. For spans of `tracing`: [`requests`](crate::Builder::requests).
///
/// ```
/// let user = 7u64;
/// let _span = stroboscope::span!("page", user, kind = "feed").entered();
///
/// let _connection = stroboscope::span!("connection").entered();
/// for command in ["get", "set"] {
///     let _request = stroboscope::span!(request: "command", command).entered();
/// }
/// ```
#[macro_export]
macro_rules! span {
    (request: $name:expr $(, $($fields:tt)*)?) => {{
        if $crate::__private::is_idle() {
            $crate::Span::NONE
        } else {
            $crate::__record!([$crate::Span::begin_request], $name, $($($fields)*)?)
        }
    }};
    ($name:expr $(, $($fields:tt)*)?) => {{
        if $crate::__private::is_idle() {
            $crate::Span::NONE
        } else {
            $crate::__begin!($name, $($($fields)*)?)
        }
    }};
}

/// Records an event, an instant inside the current span: `event!("cache_miss", key = id)`.
///
/// Takes the same arguments as [`span!`](crate::span!).
///
/// ```
/// stroboscope::event!("cache_miss", key = 42, cause = stroboscope::display("cold"));
/// ```
#[macro_export]
macro_rules! event {
    ($name:expr $(, $($fields:tt)*)?) => {{
        if !$crate::__private::is_idle() {
            $crate::__record!([$crate::__private::event], $name, $($($fields)*)?);
        }
    }};
}

/// Begins a span where something is recorded.
#[doc(hidden)]
#[macro_export]
macro_rules! __begin {
    ($name:expr, $($fields:tt)*) => { $crate::__record!([$crate::Span::begin], $name, $($fields)*) };
}

/// Begins a span where something is recorded, and enters it, in a `Frame`: an `InFrame`.
#[doc(hidden)]
#[macro_export]
macro_rules! __begin_in_frame {
    ($frame:ident, $name:expr, $($fields:tt)*) => { $crate::__record!([$frame.begin], $name, $($fields)*) };
}

/// Sorts the fields into keys and values, then declares the callsite, evaluates the values, and hands both on to the
/// function (or method of a variable) that stands in brackets.
#[doc(hidden)]
#[macro_export]
macro_rules! __record {
    // All sorted. The match keeps temporaries of the values alive; they are evaluated before the ring is touched,
    // because a value's own code must not run inside it.
    (@ [$($write:tt)*], $name:expr, [$(($key:expr, $value:expr))*]) => {{
        static CALLSITE: $crate::__private::Callsite =
            $crate::__private::Callsite::new($name, &[$($key),*], file!(), line!());
        match ($($crate::Value::argument(&$value),)*) {
            values => $($write)*(&CALLSITE, values),
        }
    }};
    (@ $write:tt, $name:expr, [$($done:tt)*] $($key:ident).+ = $value:expr $(, $($rest:tt)*)?) => {
        $crate::__record!(@ $write, $name, [$($done)* (stringify!($($key).+), $value)] $($($rest)*)?)
    };
    (@ $write:tt, $name:expr, [$($done:tt)*] $key:literal = $value:expr $(, $($rest:tt)*)?) => {
        $crate::__record!(@ $write, $name, [$($done)* ($key, $value)] $($($rest)*)?)
    };
    (@ $write:tt, $name:expr, [$($done:tt)*] $key:ident $(, $($rest:tt)*)?) => {
        $crate::__record!(@ $write, $name, [$($done)* (stringify!($key), $key)] $($($rest)*)?)
    };
    ($write:tt, $name:expr, $($fields:tt)*) => {
        $crate::__record!(@ $write, $name, [] $($fields)*)
    };
}
