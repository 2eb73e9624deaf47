//! The script engine of a page: one thread, as in every browser.

use std::time::Duration;

use tokio::sync::Mutex;

use crate::cpu::Cpu;

/// Runs one script at a time, in order of arrival. Scripts exclude each other, and their order may
/// differ from page to page unless something else fixes it.
#[derive(Debug)]
pub(crate) struct Engine {
    cpu: Cpu,
    thread: Mutex<()>,
}

impl Engine {
    pub(crate) fn new(cpu: Cpu) -> Self {
        Self {
            cpu,
            thread: Mutex::new(()),
        }
    }

    /// Waits for the engine, then runs `script` on it. Spans that the script records do not include
    /// the wait.
    pub(crate) async fn run<T>(&self, script: impl FnOnce(&Cpu) -> T) -> T {
        let _thread = self.thread.lock().await;
        script(&self.cpu)
    }
}

/// Returns the running time of the script of a pagelet of `bytes`: 0.2 ms, plus 1 µs for every 32
/// bytes, but at most 0.5 ms.
pub(crate) fn script_time(bytes: usize) -> Duration {
    let extra_us = u64::try_from(bytes / 32).unwrap_or(u64::MAX).min(300);
    Duration::from_micros(200 + extra_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn scripts_take_between_a_fifth_and_half_a_millisecond() {
        assert_eq!(script_time(0), Duration::from_micros(200));
        assert_eq!(script_time(3_200), Duration::from_micros(300));
        assert_eq!(script_time(usize::MAX), Duration::from_micros(500));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_script_at_a_time() {
        let engine = Arc::new(Engine::new(Cpu::calibrate()));
        let inside = Arc::new(AtomicU32::new(0));
        let mut scripts = tokio::task::JoinSet::new();
        for seed in 0..50 {
            let (engine, inside) = (Arc::clone(&engine), Arc::clone(&inside));
            scripts.spawn(async move {
                engine
                    .run(|cpu| {
                        let others = inside.fetch_add(1, Ordering::SeqCst);
                        cpu.work(Duration::from_micros(100), seed);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        others
                    })
                    .await
            });
        }
        assert!(scripts.join_all().await.iter().all(|others| *others == 0));
    }
}
