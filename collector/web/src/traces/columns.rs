//! Request in columns, the input of the timeline on its page; `collector/docs/pages.md` describes
//! the format.

use serde_json::{Map, Value, json};

/// Version of the format. It increases when the meaning of a column or of a key in the head
/// changes. New columns and keys do not require a new version.
pub(super) const VERSION: u16 = 1;
/// Magic bytes at the beginning of an encoded request.
pub(super) const MAGIC: [u8; 4] = *b"STRC";
/// Media type of an encoded request.
pub(super) const CONTENT_TYPE: &str = "application/vnd.stroboscope.request-columns";
/// Absent value in a column of indices.
pub(super) const NONE: u32 = u32::MAX;
/// Alignment of columns, in bytes.
const ALIGNMENT_BYTES: usize = 8;

/// Values of a column, in one of the format's types.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Column {
    F64(Vec<f64>),
    U64(Vec<u64>),
    U32(Vec<u32>),
    U16(Vec<u16>),
    U8(Vec<u8>),
}

impl Column {
    /// Stores indices in 16 bits each if all fit, otherwise in 32.
    pub(super) fn indices(indices: Vec<u32>) -> Self {
        let narrow: Option<Vec<u16>> = indices.iter().map(|at| u16::try_from(*at).ok()).collect();
        narrow.map_or(Self::U32(indices), Self::U16)
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::F64(_) => "f64",
            Self::U64(_) => "u64",
            Self::U32(_) => "u32",
            Self::U16(_) => "u16",
            Self::U8(_) => "u8",
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::F64(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::U16(values) => values.len(),
            Self::U8(values) => values.len(),
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::F64(values) => values
                .iter()
                .for_each(|value| bytes.extend(value.to_le_bytes())),
            Self::U64(values) => values
                .iter()
                .for_each(|value| bytes.extend(value.to_le_bytes())),
            Self::U32(values) => values
                .iter()
                .for_each(|value| bytes.extend(value.to_le_bytes())),
            Self::U16(values) => values
                .iter()
                .for_each(|value| bytes.extend(value.to_le_bytes())),
            Self::U8(values) => bytes.extend(values),
        }
    }
}

/// Parts of an encoded request: its JSON head, without the locations of the columns, and the
/// columns by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Columns {
    pub(super) head: Map<String, Value>,
    pub(super) columns: Vec<(&'static str, Column)>,
}

impl Columns {
    pub(super) fn push(&mut self, name: &'static str, column: Column) {
        self.columns.push((name, column));
    }

    /// Encodes the head and the columns. Each column is aligned to 8 bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut data = Vec::new();
        let mut places = Map::new();
        for (name, column) in &self.columns {
            let at = data.len();
            column.write(&mut data);
            pad(&mut data, 0);
            let place = json!({ "type": column.kind(), "at": at, "count": column.len() });
            places.insert((*name).to_owned(), place);
        }
        let mut head = self.head.clone();
        head.insert("columns".to_owned(), Value::Object(places));
        let head = Value::Object(head).to_string();
        let mut bytes = Vec::with_capacity(data.len() + head.len() + 24);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(0u16.to_le_bytes());
        // The format cannot hold a head of 4 GiB; the heads of requests are far smaller.
        bytes.extend(u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(head.as_bytes());
        pad(&mut bytes, b' ');
        bytes.extend(data);
        bytes
    }
}

fn pad(bytes: &mut Vec<u8>, with: u8) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT_BYTES), with);
}
