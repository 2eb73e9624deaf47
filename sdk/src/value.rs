//! Field values, written directly into the ring.

use crate::record::{FieldWriter, ValueKind};

/// A value of a span's or event's field. Numbers of up to 64 bits, booleans and strings are used as
/// they are. Wrap values that implement `Display` or `Debug` in [`display`] or [`debug`]; they are
/// formatted directly into the ring.
pub trait Value {
    /// Form in which the value is passed to the recording function, outside of the annotated code.
    /// Numbers are passed by value, so that a variable can stay in its register while nothing is
    /// recorded.
    #[doc(hidden)]
    type Argument<'a>: Value + Copy
    where
        Self: 'a;

    /// True if [`write`](Self::write) may run code of the service, which might itself record
    /// something.
    #[doc(hidden)]
    const RUNS_CODE: bool = true;

    #[doc(hidden)]
    fn argument(&self) -> Self::Argument<'_>;

    /// Writes the value of field number `index`.
    #[doc(hidden)]
    fn write(&self, index: u8, writer: &mut FieldWriter<'_>);
}

macro_rules! scalar_values {
    ($($type:ty => $kind:ident, |$value:ident| $word:expr;)*) => {$(
        impl Value for $type {
            type Argument<'a> = Self;

            const RUNS_CODE: bool = false;

            #[inline]
            fn argument(&self) -> Self {
                *self
            }

            #[inline]
            fn write(&self, index: u8, writer: &mut FieldWriter<'_>) {
                let $value = *self;
                writer.scalar(index, ValueKind::$kind, $word);
            }
        }
    )*};
}

scalar_values! {
    i8 => Int, |v| i64::from(v).cast_unsigned();
    i16 => Int, |v| i64::from(v).cast_unsigned();
    i32 => Int, |v| i64::from(v).cast_unsigned();
    i64 => Int, |v| v.cast_unsigned();
    isize => Int, |v| (v as i64).cast_unsigned();
    u8 => Uint, |v| u64::from(v);
    u16 => Uint, |v| u64::from(v);
    u32 => Uint, |v| u64::from(v);
    u64 => Uint, |v| v;
    usize => Uint, |v| v as u64;
    f32 => Double, |v| f64::from(v).to_bits();
    f64 => Double, |v| v.to_bits();
    bool => Bool, |v| u64::from(v);
}

impl Value for str {
    type Argument<'a> = &'a str;

    const RUNS_CODE: bool = false;

    #[inline]
    fn argument(&self) -> &str {
        self
    }

    #[inline]
    fn write(&self, index: u8, writer: &mut FieldWriter<'_>) {
        writer.text(index, self);
    }
}

impl Value for String {
    type Argument<'a> = &'a str;

    const RUNS_CODE: bool = false;

    #[inline]
    fn argument(&self) -> &str {
        self
    }

    #[inline]
    fn write(&self, index: u8, writer: &mut FieldWriter<'_>) {
        writer.text(index, self);
    }
}

impl<T: Value + ?Sized> Value for &T {
    type Argument<'a>
        = T::Argument<'a>
    where
        Self: 'a;

    const RUNS_CODE: bool = T::RUNS_CODE;

    #[inline]
    fn argument(&self) -> T::Argument<'_> {
        (**self).argument()
    }

    #[inline]
    fn write(&self, index: u8, writer: &mut FieldWriter<'_>) {
        (**self).write(index, writer);
    }
}

/// Writes nothing for `None`, so a field may be absent.
impl<T: Value> Value for Option<T> {
    type Argument<'a>
        = Option<T::Argument<'a>>
    where
        Self: 'a;

    const RUNS_CODE: bool = T::RUNS_CODE;

    #[inline]
    fn argument(&self) -> Option<T::Argument<'_>> {
        self.as_ref().map(Value::argument)
    }

    #[inline]
    fn write(&self, index: u8, writer: &mut FieldWriter<'_>) {
        if let Some(value) = self {
            value.write(index, writer);
        }
    }
}

/// Value formatted with its `Display`; see [`display`].
#[derive(Clone, Copy, Debug)]
pub struct DisplayValue<T>(T);

/// Value formatted with its `Debug`; see [`debug`].
#[derive(Clone, Copy, Debug)]
pub struct DebugValue<T>(T);

/// Wraps a value to record it with its `Display`: `event!("moved", to = display(&address))`.
pub const fn display<T: std::fmt::Display>(value: T) -> DisplayValue<T> {
    DisplayValue(value)
}

/// Wraps a value to record it with its `Debug`: `event!("refused", error = debug(&error))`.
pub const fn debug<T: std::fmt::Debug>(value: T) -> DebugValue<T> {
    DebugValue(value)
}

impl<T: std::fmt::Display> Value for DisplayValue<T> {
    type Argument<'a>
        = DisplayValue<&'a T>
    where
        Self: 'a;

    #[inline]
    fn argument(&self) -> DisplayValue<&T> {
        DisplayValue(&self.0)
    }

    fn write(&self, index: u8, writer: &mut FieldWriter<'_>) {
        writer.formatted(index, format_args!("{}", self.0));
    }
}

impl<T: std::fmt::Debug> Value for DebugValue<T> {
    type Argument<'a>
        = DebugValue<&'a T>
    where
        Self: 'a;

    #[inline]
    fn argument(&self) -> DebugValue<&T> {
        DebugValue(&self.0)
    }

    fn write(&self, index: u8, writer: &mut FieldWriter<'_>) {
        writer.formatted(index, format_args!("{:?}", self.0));
    }
}

/// Values of one annotation, in the order of its keys. Implemented for tuples of up to 16 values.
#[doc(hidden)]
pub trait Values {
    /// True if any value's [`Value::RUNS_CODE`] is.
    const RUNS_CODE: bool;

    /// Writes all values.
    fn write(&self, writer: &mut FieldWriter<'_>);
}

impl Values for () {
    const RUNS_CODE: bool = false;

    #[inline]
    fn write(&self, _: &mut FieldWriter<'_>) {}
}

macro_rules! tuples_of_values {
    ($($name:ident $index:tt),*) => {
        impl<$($name: Value),*> Values for ($($name,)*) {
            const RUNS_CODE: bool = $($name::RUNS_CODE)||*;

            #[inline(always)]
            fn write(&self, writer: &mut FieldWriter<'_>) {
                $(self.$index.write($index, writer);)*
            }
        }
    };
}

tuples_of_values!(A 0);
tuples_of_values!(A 0, B 1);
tuples_of_values!(A 0, B 1, C 2);
tuples_of_values!(A 0, B 1, C 2, D 3);
tuples_of_values!(A 0, B 1, C 2, D 3, E 4);
tuples_of_values!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples_of_values!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples_of_values!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuples_of_values!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuples_of_values!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuples_of_values!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuples_of_values!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
tuples_of_values!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12);
tuples_of_values!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13);
tuples_of_values!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14);
tuples_of_values!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14, P 15);
