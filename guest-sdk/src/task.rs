//! Work beside a call, and time.
//!
//! A component has no threads and no executor of its own: a future makes progress
//! while the call it was started from is polled. [`spawn`] detaches work from a
//! call; it goes on after the call has returned, until it ends or the instance
//! does. Nothing stops it on an abort: give it a signal to watch.

use crate::sys;
use futures::future::{Either, select};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

/// Runs `work` beside the current call.
pub fn spawn(work: impl Future<Output = ()> + 'static) {
    sys::spawn(work);
}

/// Resolves after `time`, rounded up to a millisecond and capped at 49 days.
pub async fn sleep(time: Duration) {
    let ms = time.as_millis() + u128::from(!time.subsec_nanos().is_multiple_of(1_000_000));
    sys::host::sleep_ms(u32::try_from(ms).unwrap_or(u32::MAX)).await;
}

/// The time limit of [`timeout`] passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

/// `work`, dropped when it takes longer than `time`.
///
/// Do not wrap a read of a stream or anything else that loses data when it is
/// dropped.
///
/// # Errors
///
/// [`Elapsed`] when the time passed first.
pub async fn timeout<T>(time: Duration, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    match select(pin!(work), pin!(sleep(time))).await {
        Either::Left((value, _)) => Ok(value),
        Either::Right(((), _)) => Err(Elapsed),
    }
}
