//! Bounded buffer of batches that the collector has neither acknowledged nor rejected.

use std::collections::VecDeque;

use prost::Message as _;
use stroboscope_proto::v1;

#[derive(Debug)]
struct QueuedBatch {
    batch: v1::Batch,
    bytes: usize,
    records: u64,
}

/// Queue of batches in order of sequence. The first `sent` were sent on the latest connection.
#[derive(Debug)]
pub(crate) struct Buffer {
    queue: VecDeque<QueuedBatch>,
    sent: usize,
    bytes: usize,
    bytes_max: usize,
    next_sequence: u64,
}

impl Buffer {
    pub(crate) fn with_max(bytes_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            sent: 0,
            bytes: 0,
            bytes_max,
            next_sequence: 0,
        }
    }

    /// Numbers and stores a batch.
    ///
    /// # Errors
    /// Returns the batch and the number of its records if the buffer is full. The batch then uses
    /// up no sequence: to the collector, a gap means that records were lost on the way, while the
    /// SDK itself counts this loss.
    pub(crate) fn push(&mut self, mut batch: v1::Batch) -> Result<(), (Box<v1::Batch>, u64)> {
        batch.sequence = self.next_sequence;
        let (bytes, records) = (batch.encoded_len(), records(&batch));
        if self.bytes + bytes > self.bytes_max {
            return Err((Box::new(batch), records));
        }
        self.next_sequence += 1;
        self.bytes += bytes;
        self.queue.push_back(QueuedBatch {
            batch,
            bytes,
            records,
        });
        Ok(())
    }

    pub(crate) fn next_unsent(&self) -> Option<&v1::Batch> {
        self.queue.get(self.sent).map(|waiting| &waiting.batch)
    }

    pub(crate) fn mark_sent(&mut self) {
        self.sent += 1;
    }

    /// Marks all batches as unsent, for a new connection.
    pub(crate) fn resend_all(&mut self) {
        self.sent = 0;
    }

    /// Removes a batch that the collector settled; returns its number of records, or `None` if it
    /// was not waiting.
    pub(crate) fn settle(&mut self, sequence: u64) -> Option<u64> {
        let index = self
            .queue
            .binary_search_by_key(&sequence, |waiting| waiting.batch.sequence)
            .ok()?;
        let waiting = self.queue.remove(index)?;
        if index < self.sent {
            self.sent -= 1;
        }
        self.bytes -= waiting.bytes;
        Some(waiting.records)
    }

    /// Returns the waiting batch that was stored last, or `None` if no batch waits.
    #[cfg(feature = "simulation")]
    pub(crate) fn newest(&self) -> Option<&v1::Batch> {
        self.queue.back().map(|waiting| &waiting.batch)
    }

    /// Assigns a new sequence to every waiting batch: a planted defect that a simulation must find.
    #[cfg(feature = "simulation")]
    pub(crate) fn renumber(&mut self) {
        for waiting in &mut self.queue {
            waiting.batch.sequence = self.next_sequence;
            self.next_sequence += 1;
        }
    }

    /// Returns the sequence of the next batch.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Returns the sequence of the oldest batch that the collector has not settled, or `None` if no
    /// batch waits.
    pub(crate) fn first_sequence(&self) -> Option<u64> {
        self.queue.front().map(|waiting| waiting.batch.sequence)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of records in all waiting batches.
    pub(crate) fn records(&self) -> u64 {
        self.queue.iter().map(|waiting| waiting.records).sum()
    }
}

fn records(batch: &v1::Batch) -> u64 {
    let spans = batch.spans.as_ref().map_or(0, |spans| spans.span_ids.len());
    let events = batch
        .events
        .as_ref()
        .map_or(0, |events| events.span_ids.len());
    (spans + events + batch.provenance.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, FinishedSpan};
    use crate::config::BUFFER_BYTES_MAX;
    use stroboscope_proto::v1::SpanFlag;

    fn batch(spans: usize) -> v1::Batch {
        let spans = v1::Spans {
            span_ids: vec![1; spans],
            ..v1::Spans::default()
        };
        v1::Batch {
            spans: Some(spans),
            ..v1::Batch::default()
        }
    }

    #[test]
    fn keeps_what_is_not_acknowledged_and_sends_it_again() {
        let mut buffer = Buffer::with_max(1 << 20);
        for _ in 0..3 {
            buffer.push(batch(2)).unwrap();
        }
        for expected in 0..2 {
            assert_eq!(buffer.next_unsent().unwrap().sequence, expected);
            buffer.mark_sent();
        }
        assert_eq!(buffer.settle(1), Some(2), "acknowledged out of order");
        assert_eq!(buffer.settle(1), None, "and once only");
        assert_eq!(buffer.next_unsent().unwrap().sequence, 2);
        buffer.resend_all();
        assert_eq!(buffer.next_unsent().unwrap().sequence, 0);
        assert_eq!(buffer.settle(0), Some(2));
        assert_eq!(buffer.settle(2), Some(2));
        assert!(buffer.is_empty());
        assert_eq!(buffer.bytes(), 0);
    }

    /// Checks that the buffer bridges 5 s with 100,000 recorded spans per second.
    #[test]
    fn the_usual_buffer_outlasts_a_restart() {
        let (mut builder, mut buffer) =
            (BatchBuilder::default(), Buffer::with_max(BUFFER_BYTES_MAX));
        for n in 0..500_000u64 {
            builder.span(&FinishedSpan {
                trace_id: u128::from(n) << 64 | u128::MAX >> 64,
                span_id: u64::MAX - n,
                parent_id: u64::MAX / 2 + n,
                name: "request",
                start_ns: 1_700_000_000_000_000_000 + n as i64 * 10_000,
                duration_ns: 5_000_000,
                flags: SpanFlag::Server as u32,
                fields: Vec::new(),
            });
            if builder.records() == 8_192 {
                buffer.push(builder.finish(&[])).unwrap();
            }
        }
    }

    #[test]
    fn a_full_buffer_refuses_and_leaves_no_hole() {
        let one = {
            let mut one = batch(100);
            one.sequence = 1;
            one.encoded_len()
        };
        let mut buffer = Buffer::with_max(2 * one + 4);
        assert!(buffer.push(batch(100)).is_ok());
        assert!(buffer.push(batch(100)).is_ok());
        let (_, records) = buffer.push(batch(100)).unwrap_err();
        assert_eq!(records, 100);
        buffer.settle(0);
        assert!(buffer.push(batch(100)).is_ok());
        buffer.mark_sent();
        assert_eq!(buffer.next_unsent().unwrap().sequence, 2);
    }
}
