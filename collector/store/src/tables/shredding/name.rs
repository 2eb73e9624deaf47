//! Names of attribute columns: `TYPE:KEY`.

use arrow_schema::{DataType, Field};

/// Type of the values that a column stores. Lists, objects, nulls, and numbers that no column
/// stores exactly stay JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ValueType {
    Bool,
    Int,
    Real,
    Text,
}

impl ValueType {
    const ALL: [Self; 4] = [Self::Bool, Self::Int, Self::Real, Self::Text];

    fn prefix(self) -> &'static str {
        match self {
            Self::Bool => "bool:",
            Self::Int => "int:",
            Self::Real => "real:",
            Self::Text => "text:",
        }
    }

    /// Returns the Arrow type with which values are written.
    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int => DataType::Int64,
            Self::Real => DataType::Float64,
            Self::Text => DataType::Utf8,
        }
    }

    /// Returns the Arrow type with which values are read. Texts are read as a dictionary, which
    /// shares equal texts.
    fn read_type(self) -> DataType {
        match self {
            Self::Text => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            other => other.data_type(),
        }
    }
}

/// Column with the values of one attribute that have one type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AttributeColumn {
    pub(in crate::tables) key: Box<str>,
    pub(super) value_type: ValueType,
}

impl AttributeColumn {
    /// Parses the name of a column. Returns `None` if it is not an attribute column.
    pub(in crate::tables) fn of_name(name: &str) -> Option<Self> {
        ValueType::ALL.into_iter().find_map(|value_type| {
            Some(Self {
                key: name.strip_prefix(value_type.prefix())?.into(),
                value_type,
            })
        })
    }

    /// Returns the column of the texts of an attribute.
    pub(in crate::tables) fn text(key: &str) -> Self {
        Self {
            key: key.into(),
            value_type: ValueType::Text,
        }
    }

    pub(in crate::tables) fn name(&self) -> String {
        format!("{}{}", self.value_type.prefix(), self.key)
    }

    /// Returns the Arrow field as it is written, and as other readers see it.
    pub(in crate::tables) fn field(&self) -> Field {
        Field::new(self.name(), self.value_type.data_type(), true)
    }

    /// Returns the Arrow field as this program reads it.
    pub(in crate::tables) fn read_field(&self) -> Field {
        Field::new(self.name(), self.value_type.read_type(), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_key_and_type() {
        for name in [
            "int:user",
            "text:http.route",
            "bool:",
            "real:a:b",
            "text:text:x",
        ] {
            let column = AttributeColumn::of_name(name).unwrap();
            assert_eq!(column.name(), name);
            assert_eq!(column.field().name(), name);
        }
        for name in ["attributes", "start_ns", "integer:x", ":x", ""] {
            assert_eq!(AttributeColumn::of_name(name), None, "{name}");
        }
    }
}
