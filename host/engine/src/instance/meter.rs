//! The CPU rate of one instance: a bound on processor time over real time.
//!
//! The slice alone does not catch a guest that yields all the time, e.g. one that spins over sleeps
//! of no length. The time the driver's future spends in `poll` is charged to a bucket that leaks at
//! the granted rate; when it overflows, the instance ends.

use super::end::EndCause;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

pub(crate) struct Meter {
    rate: f64,
    burst: f64,
    level: f64,
    last: Instant,
}

impl Meter {
    /// `rate`: share of a core. `burst`: processor time above it that may be saved up.
    pub(crate) fn new(rate: f64, burst: Duration) -> Self {
        Self {
            rate,
            burst: burst.as_secs_f64(),
            level: 0.0,
            last: Instant::now(),
        }
    }

    /// Charges a stretch of work. True when the bucket overflowed.
    fn charge(&mut self, start: Instant, end: Instant) -> bool {
        let leaked = end.saturating_duration_since(self.last).as_secs_f64() * self.rate;
        self.level =
            (self.level - leaked).max(0.0) + end.saturating_duration_since(start).as_secs_f64();
        self.last = end;
        self.level > self.burst
    }
}

/// A driver's future under its meter.
pub(crate) struct Metered<F> {
    pub(crate) meter: Meter,
    pub(crate) future: Pin<Box<F>>,
}

impl<T, F: Future<Output = wasmtime::Result<T>>> Future for Metered<F> {
    type Output = Result<wasmtime::Result<T>, EndCause>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let start = Instant::now();
        let polled = this.future.as_mut().poll(cx);
        let overflowed = this.meter.charge(start, Instant::now());
        match polled {
            Poll::Ready(result) => Poll::Ready(Ok(result)),
            Poll::Pending if overflowed => {
                let (burst, rate) = (this.meter.burst, this.meter.rate);
                let text = format!("used {burst} s of processor time beyond {rate} of a core");
                Poll::Ready(Err(EndCause::CpuRate(text)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overflows_after(work_ms: u64, pause_ms: u64, steps: u32) -> Option<u32> {
        let mut meter = Meter::new(0.5, Duration::from_secs(1));
        let mut now = meter.last;
        (0..steps).find(|_| {
            now += Duration::from_millis(pause_ms);
            let start = now;
            now += Duration::from_millis(work_ms);
            meter.charge(start, now)
        })
    }

    #[test]
    fn a_rate_below_the_bound_never_ends_an_instance() {
        assert_eq!(overflows_after(4, 6, 100_000), None);
    }

    #[test]
    fn a_spin_ends_it_when_the_burst_is_used_up() {
        // 10 ms of work a step leave 5 ms behind: one second is reached after 200 steps.
        let step = overflows_after(10, 0, 1000).unwrap();
        assert!((198..=200).contains(&step), "{step}");
    }
}
