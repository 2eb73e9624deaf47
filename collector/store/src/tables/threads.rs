//! Work on several threads.

/// Calls `work` on `threads` threads, of which this is one, with the number of the thread. Returns
/// the results in the order of the numbers. Panics if `work` does.
pub(super) fn on_threads<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let others = (1..threads).map(|number| scope.spawn(move || work(number)));
        let others: Vec<_> = others.collect();
        let mut results = vec![work(0)];
        for other in others {
            match other.join() {
                Ok(result) => results.push(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    })
}
