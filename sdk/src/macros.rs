//! Defines `span!` and `event!`.

/// Begins a [`Span`](crate::Span): `span!("name")`, `span!("name", key = value, other = &text)`.
///
/// The name and the keys are constants. A key without a value takes the variable of that name.
/// Values are numbers of up to 64 bits, booleans, strings, anything wrapped in
/// [`display`](crate::display) or [`debug`](crate::debug), or options of these. They are not
/// evaluated while nothing can be recorded.
///
/// `span!(request: "name")` begins a request, even inside another span. Use it for a request inside
/// a longer-lived span, such as a connection's or a worker's. Each such request is sampled
/// separately ([`sample`](crate::Builder::sample)), has its own trace, and is linked to the
/// enclosing span if both are recorded. For spans of `tracing`, see
/// [`requests`](crate::Builder::requests).
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

/// Records an event, an instant inside the current span, if any: `event!("cache_miss", key = id)`.
///
/// Takes the same arguments as [`span!`](crate::span!), except `request:`.
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

/// Begins a span. The caller has checked that recording is on.
#[doc(hidden)]
#[macro_export]
macro_rules! __begin {
    ($name:expr, $($fields:tt)*) => { $crate::__record!([$crate::Span::begin], $name, $($fields)*) };
}

/// Begins a span in a `Frame` and enters it; evaluates to an `InFrame`. The caller has checked that
/// recording is on.
#[doc(hidden)]
#[macro_export]
macro_rules! __begin_in_frame {
    ($frame:ident, $name:expr, $($fields:tt)*) => { $crate::__record!([$frame.begin], $name, $($fields)*) };
}

/// Sorts the fields into keys and values, declares the callsite, evaluates the values, and passes
/// callsite and values to the function (or method of a variable) in brackets.
#[doc(hidden)]
#[macro_export]
macro_rules! __record {
    // All fields are sorted. The match keeps temporaries of the values alive. Values are evaluated
    // before the ring is accessed, because records that their expressions make would be rejected
    // while a record is being written.
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
