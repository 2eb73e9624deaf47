//! Values with labels.

use core::cmp::Ordering;
use core::marker::PhantomData;
use core::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

use crate::label::Label;
use crate::linkage::{DataLinkage, Linkage};
use crate::recording::merge;

/// Value, and the label of the inputs on which it depends under a linkage.
///
/// Operators calculate with the values and, under a linkage of calculations, merge the labels.
/// Values without inputs cost a comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracked<T, L = DataLinkage> {
    value: T,
    label: Label,
    linkage: PhantomData<fn() -> L>,
}

/// Returns the label of a calculation.
#[inline]
fn calculated<L: Linkage>(label: Label) -> Label {
    if L::DATA { label } else { Label::NULL }
}

impl<T, L: Linkage> Tracked<T, L> {
    /// Creates a value that depends on no input.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self::with_label(value, Label::NULL)
    }

    /// Creates a value with a label of the running recording.
    #[inline]
    pub const fn with_label(value: T, label: Label) -> Self {
        Self {
            value,
            label,
            linkage: PhantomData,
        }
    }

    /// Returns the value.
    #[inline]
    pub const fn get(&self) -> &T {
        &self.value
    }

    /// Returns the value and forgets its label.
    #[inline]
    pub fn into_inner(self) -> T {
        self.value
    }

    /// Returns the label.
    #[inline]
    pub const fn label(&self) -> Label {
        self.label
    }

    /// Changes the linkage of the operations that follow.
    #[inline]
    pub fn with_linkage<M: Linkage>(self) -> Tracked<T, M> {
        Tracked::with_label(self.value, self.label)
    }

    /// Calculates a value from this one.
    #[inline]
    pub fn map<U>(self, calculate: impl FnOnce(T) -> U) -> Tracked<U, L> {
        Tracked::with_label(calculate(self.value), calculated::<L>(self.label))
    }

    /// Calculates a value from this one and another one.
    #[inline]
    pub fn map_with<U, V>(
        self,
        other: Tracked<U, L>,
        calculate: impl FnOnce(T, U) -> V,
    ) -> Tracked<V, L> {
        let label = if L::DATA {
            merge(self.label, other.label)
        } else {
            Label::NULL
        };
        Tracked::with_label(calculate(self.value, other.value), label)
    }

    /// Makes a pair, which copies both values: it has the inputs of both under every linkage.
    #[inline]
    pub fn zip<U>(self, other: Tracked<U, L>) -> Tracked<(T, U), L> {
        let label = merge(self.label, other.label);
        Tracked::with_label((self.value, other.value), label)
    }

    /// Loads a value, with this one as the index or key. Under a linkage of indices, the result
    /// also depends on the inputs of the index.
    #[inline]
    pub fn index<U>(self, load: impl FnOnce(T) -> Tracked<U, L>) -> Tracked<U, L> {
        let mut loaded = load(self.value);
        if L::INDEX {
            loaded.label = merge(loaded.label, self.label);
        }
        loaded
    }

    /// Compares with another value.
    #[inline]
    pub fn compare(&self, other: &Self) -> Tracked<Ordering, L>
    where
        T: Ord,
    {
        self.as_ref().map_with(other.as_ref(), Ord::cmp)
    }

    /// Reports whether another value is equal.
    #[inline]
    pub fn equals(&self, other: &Self) -> Tracked<bool, L>
    where
        T: PartialEq,
    {
        self.as_ref().map_with(other.as_ref(), |a, b| a == b)
    }

    /// Reports whether the value is less than another one.
    #[inline]
    pub fn is_less_than(&self, other: &Self) -> Tracked<bool, L>
    where
        T: PartialOrd,
    {
        self.as_ref().map_with(other.as_ref(), |a, b| a < b)
    }

    /// Borrows the value, with its label.
    #[inline]
    pub const fn as_ref(&self) -> Tracked<&T, L> {
        Tracked::with_label(&self.value, self.label)
    }
}

impl<L: Linkage> Tracked<usize, L> {
    /// Loads an element without inputs of its own from a table. Returns `None` beyond its end.
    #[inline]
    pub fn index_into<T: Clone>(self, table: &[T]) -> Option<Tracked<T, L>> {
        let element = table.get(self.value)?;
        Some(self.index(|_| Tracked::new(element.clone())))
    }

    /// Loads a tracked element from a table. Returns `None` beyond its end.
    #[inline]
    pub fn index_into_tracked<T: Clone>(self, table: &[Tracked<T, L>]) -> Option<Tracked<T, L>> {
        let element = table.get(self.value)?;
        Some(self.index(|_| element.clone()))
    }
}

impl<L: Linkage> Tracked<bool, L> {
    /// Chooses one of two values, as if the condition were an index into a table of both.
    #[inline]
    pub fn select<T>(self, if_true: Tracked<T, L>, if_false: Tracked<T, L>) -> Tracked<T, L> {
        self.index(|condition| if condition { if_true } else { if_false })
    }
}

impl<T, L: Linkage> From<T> for Tracked<T, L> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

macro_rules! binary {
    ($($trait:ident $method:ident),*) => {$(
        impl<T: $trait<U>, U, L: Linkage> $trait<Tracked<U, L>> for Tracked<T, L> {
            type Output = Tracked<T::Output, L>;

            #[inline]
            fn $method(self, other: Tracked<U, L>) -> Self::Output {
                self.map_with(other, $trait::$method)
            }
        }

        binary!(plain $trait $method: u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);
    )*};
    (plain $trait:ident $method:ident: $($plain:ty)*) => {$(
        impl<L: Linkage> $trait<$plain> for Tracked<$plain, L> {
            type Output = Self;

            #[inline]
            fn $method(self, other: $plain) -> Self {
                self.map(|value| $trait::$method(value, other))
            }
        }
    )*};
}

binary!(
    Add add, Sub sub, Mul mul, Div div, Rem rem, BitAnd bitand, BitOr bitor, BitXor bitxor, Shl shl,
    Shr shr
);

impl<T: Neg, L: Linkage> Neg for Tracked<T, L> {
    type Output = Tracked<T::Output, L>;

    #[inline]
    fn neg(self) -> Self::Output {
        self.map(Neg::neg)
    }
}

impl<T: Not, L: Linkage> Not for Tracked<T, L> {
    type Output = Tracked<T::Output, L>;

    #[inline]
    fn not(self) -> Self::Output {
        self.map(Not::not)
    }
}
