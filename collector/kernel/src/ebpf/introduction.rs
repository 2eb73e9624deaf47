//! Keeps a thread's introduction before the event that it precedes in the ring, even if an
//! interrupt gave it a later time.

use stroboscope_analysis::kernel::event::{Body, Event};

/// Time of the last introduction in the ring of a processor.
///
/// A program reads the clock, and then introduces its thread. An interrupt in between may wake
/// another thread, and introduce the interrupted thread with a later time. If the program then
/// recorded, with its earlier time, the marker that ends a request, the thread would seem to
/// continue working for that request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastIntroduction {
    ts_ns: u64,
}

impl LastIntroduction {
    /// Returns an event of the ring with a time no earlier than that of the introductions before
    /// it.
    pub(super) fn in_order(&mut self, event: Event) -> Event {
        let ts_ns = event.ts_ns.max(self.ts_ns);
        if matches!(event.body, Body::Thread { .. }) {
            self.ts_ns = ts_ns;
        }
        Event { ts_ns, ..event }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_analysis::kernel::event::Name;

    fn event(ts_ns: u64, body: Body) -> Event {
        Event {
            ts_ns,
            cpu: 0,
            tid: 7,
            body,
        }
    }

    #[test]
    fn an_interrupted_event_follows_the_introduction_of_its_thread() {
        let introduction = Body::Thread {
            trace: 3,
            span: 4,
            known: true,
            process: 7,
            tid_in_process: 7,
            name: Name::default(),
        };
        let end = Body::TaskExit { process: 7 };
        let mut last = LastIntroduction::default();
        let mut time_ns = |event| last.in_order(event).ts_ns;
        assert_eq!(time_ns(event(90, end)), 90);
        assert_eq!(time_ns(event(102, introduction)), 102);
        // This event's program read the clock before the interrupt.
        assert_eq!(time_ns(event(101, end)), 102);
        assert_eq!(time_ns(event(110, end)), 110);
    }
}
