//! Buffer for a response that is serialized incrementally. It charges its memory to the query until
//! the response is sent.

use std::io::{self, Write};

use axum::body::{Body, Bytes};
use stroboscope_store::query_memory::{QueryLack, QueryShare};

use crate::answer::Refusal;

/// Minimum step in bytes by which a response grows. The step is a quarter of the response, or the
/// length of the added text, if that is more.
const STEP_BYTES_MIN: usize = 64 << 10;

/// A response that is being written.
#[derive(Debug)]
pub(crate) struct ResponseBuffer {
    bytes: Vec<u8>,
    share: QueryShare,
    lack: Option<QueryLack>,
}

impl ResponseBuffer {
    /// Creates an empty response. `share` already contains the memory of the traces from which the
    /// response is made.
    pub(crate) fn new(share: QueryShare) -> Self {
        Self {
            bytes: Vec::new(),
            share,
            lack: None,
        }
    }

    /// Removes the text, but keeps its memory for another one.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.lack = None;
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<(), Refusal> {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let written = self.write_all(bytes);
        written.map_err(|_| self.refusal())
    }

    pub(crate) fn json(&mut self, value: &serde_json::Value) -> Result<(), Refusal> {
        let written = serde_json::to_writer(&mut *self, value);
        written.map_err(|_| self.refusal())
    }

    /// Writes a JSON list, one element at a time.
    pub(crate) fn list(
        &mut self,
        elements: impl IntoIterator<Item = serde_json::Value>,
    ) -> Result<(), Refusal> {
        self.text("[")?;
        for (place, element) in elements.into_iter().enumerate() {
            if place > 0 {
                self.text(",")?;
            }
            self.json(&element)?;
        }
        self.text("]")
    }

    fn refusal(&self) -> Refusal {
        match self.lack {
            Some(lack) => Refusal::lack(lack, "the answer"),
            None => Refusal::Interrupted,
        }
    }

    /// Converts the buffer to a response body. Releases the memory reserved for the traces, which
    /// the caller has dropped before.
    pub(crate) fn into_body(self) -> Body {
        let (bytes, mut share) = (self.bytes, self.share);
        share.give_back(share.used().saturating_sub(bytes.capacity()));
        Bytes::from_owner(SharedBytes {
            bytes,
            _share: share,
        })
        .into()
    }
}

impl Write for ResponseBuffer {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        let free = self.bytes.capacity() - self.bytes.len();
        if more.len() > free {
            let step = (self.bytes.len() / 4).max(STEP_BYTES_MIN).max(more.len());
            if let Err(lack) = self.share.take(step) {
                self.lack = Some(lack);
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.bytes.reserve_exact(step);
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct SharedBytes {
    bytes: Vec<u8>,
    _share: QueryShare,
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_store::query_memory::QueryMemory;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_held_until_it_is_sent_and_refused_beyond_its_share() {
        let memory = QueryMemory::new(8 << 20);
        let mut written = ResponseBuffer::new(memory.share());
        written.list((0..1_000).map(Into::into)).unwrap();
        let body = written.into_body();
        assert!(memory.lent() > 0);
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let numbers: Vec<u64> = serde_json::from_slice(&bytes).unwrap();
        assert!(numbers.into_iter().eq(0..1_000));
        drop(bytes);
        assert_eq!(memory.lent(), 0);
        let mut written = ResponseBuffer::new(memory.share());
        let refused = (0..10_000).find_map(|_| written.text(&"x".repeat(1_000)).err());
        assert_eq!(refused.map(|refused| refused.code()), Some(413));
    }
}
