//! The same work for many items on a few threads.

use crate::error::WorkspaceError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Does `work` for every item, in about their order, on at most `threads` threads (the caller's
/// is one of them); the results are in the items' order. The first failure ends all of it.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> Result<R, WorkspaceError> + Sync,
) -> Result<Vec<R>, WorkspaceError> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let run = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(place) else {
                break;
            };
            match work(item) {
                Ok(result) => done.push((place, result)),
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(done)
    };
    // A thread for a handful of items costs more than it saves.
    let extra = threads.saturating_sub(1).min(items.len() / 8);
    let mut done = run_on(extra, &run)?;
    done.sort_unstable_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// Runs the same function on this thread and on `extra` more, and joins what they return. Fewer
/// threads than asked for are no failure.
pub(crate) fn run_on<R: Send>(
    extra: usize,
    run: &(impl Fn() -> Result<Vec<R>, WorkspaceError> + Sync),
) -> Result<Vec<R>, WorkspaceError> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..extra)
            .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, run).ok())
            .collect();
        let mut all = run();
        for other in others {
            match other.join() {
                Ok(Ok(more)) => {
                    if let Ok(all) = &mut all {
                        all.extend(more);
                    }
                }
                Ok(Err(error)) => {
                    if all.is_ok() {
                        all = Err(error);
                    }
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}
