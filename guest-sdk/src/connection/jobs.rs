//! What a line sets off and has to wait: work beside the reader, bounded in number.

use super::Inner;
use futures::channel::mpsc;
use futures::future::{FusedFuture, FutureExt, LocalBoxFuture};
use futures::stream::{FuturesUnordered, StreamExt};
use std::rc::Rc;

/// One job in the count of [`Inner::open_jobs`].
pub(super) struct JobCount(Rc<Inner>);

impl JobCount {
    pub(super) fn new(inner: Rc<Inner>) -> Self {
        inner.open_jobs.set(inner.open_jobs.get() + 1);
        Self(inner)
    }
}

impl Drop for JobCount {
    fn drop(&mut self) {
        self.0
            .open_jobs
            .set(self.0.open_jobs.get().saturating_sub(1));
    }
}

/// The jobs of [`Connection::spawn`], as the loop sees them.
pub(super) struct Jobs {
    new: mpsc::UnboundedReceiver<LocalBoxFuture<'static, ()>>,
    running: FuturesUnordered<LocalBoxFuture<'static, ()>>,
}

impl Jobs {
    pub(super) fn new(new: mpsc::UnboundedReceiver<LocalBoxFuture<'static, ()>>) -> Self {
        Self {
            new,
            running: FuturesUnordered::new(),
        }
    }

    /// Resolves whenever a job came or ended. May be dropped.
    pub(super) fn next(&mut self) -> impl FusedFuture<Output = ()> + Unpin + '_ {
        Box::pin(
            async move {
                futures::select_biased! {
                    job = self.new.select_next_some() => self.running.push(job),
                    () = self.running.select_next_some() => {}
                }
            }
            .fuse(),
        )
    }
}
