//! An empty WASI: what standard libraries need in order to start, and nothing to reach or wait for.
//!
//! No arguments, environment, directories or sockets; standard input is closed; standard output and
//! error go to the provider's log. A clock pollable becomes ready after 1 to 10 ms, so that a guest
//! that sleeps through a synchronous poll cannot hold its store.

use crate::instance::ctx::Ctx;
use crate::log::{Level, ProviderLog};
use bytes::Bytes;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use wasmtime::Result;
use wasmtime::component::{HasData, Linker, Resource};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::clocks::WasiClocksCtxView;
use wasmtime_wasi::p2::bindings::clocks::monotonic_clock;
use wasmtime_wasi::p2::pipe::ClosedInputStream;
use wasmtime_wasi::p2::{DynPollable, OutputStream, Pollable, StreamResult};
use wasmtime_wasi::{WasiCtx, WasiView};

/// Shortest and longest wait of a clock pollable, in nanoseconds.
const MIN_POLL: u64 = 1_000_000;
const MAX_POLL: u64 = 10_000_000;
/// Most random bytes of one call.
const MAX_RANDOM: u64 = 64 * 1024;
/// Longest unfinished line kept, in bytes.
const MAX_PARTIAL: usize = 4 * 1024;

/// WASI p2 and p3 over [`empty`] contexts.
pub(crate) fn add_to_linker(linker: &mut Linker<Ctx>) -> Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi::p3::add_to_linker(linker)?;
    // The clock alone is replaced.
    linker.allow_shadowing(true);
    monotonic_clock::add_to_linker::<Ctx, ShortClock>(linker, |ctx| ShortClockView(clocks(ctx)))?;
    linker.allow_shadowing(false);
    Ok(())
}

fn clocks(ctx: &mut Ctx) -> WasiClocksCtxView<'_> {
    let view = ctx.ctx();
    WasiClocksCtxView {
        ctx: view.ctx.clocks(),
        table: view.table,
    }
}

/// A context that offers nothing but clocks, bounded randomness and the log.
pub(crate) fn empty(log: &Arc<ProviderLog>, instance: u64) -> WasiCtx {
    let sink = |level| {
        LineSink(Arc::new(Line {
            log: log.clone(),
            instance,
            level,
            partial: Mutex::default(),
        }))
    };
    let mut builder = WasiCtx::builder();
    builder
        .stdin(ClosedInputStream)
        .stdout(sink(Level::Info))
        .stderr(sink(Level::Warn))
        .max_random_size(MAX_RANDOM)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false);
    builder.build()
}

struct ShortClock;

struct ShortClockView<'a>(WasiClocksCtxView<'a>);

impl HasData for ShortClock {
    type Data<'a> = ShortClockView<'a>;
}

impl monotonic_clock::Host for ShortClockView<'_> {
    fn now(&mut self) -> Result<u64> {
        self.0.now()
    }

    fn resolution(&mut self) -> Result<u64> {
        self.0.resolution()
    }

    fn subscribe_instant(&mut self, when: u64) -> Result<Resource<DynPollable>> {
        let wait = when.saturating_sub(self.0.now()?);
        self.subscribe_duration(wait)
    }

    fn subscribe_duration(&mut self, wait: u64) -> Result<Resource<DynPollable>> {
        self.0.subscribe_duration(wait.clamp(MIN_POLL, MAX_POLL))
    }
}

/// One output of one instance, cut into lines.
struct Line {
    log: Arc<ProviderLog>,
    instance: u64,
    level: Level,
    // A std mutex: held for one push, never across an await.
    partial: Mutex<Vec<u8>>,
}

impl Line {
    fn write(&self, bytes: &[u8]) {
        let mut partial = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let room = MAX_PARTIAL.saturating_sub(partial.len());
            partial.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
            if piece.ends_with(b"\n") {
                self.emit(&mut partial);
            }
        }
    }

    fn emit(&self, partial: &mut Vec<u8>) {
        let text = String::from_utf8_lossy(partial).trim_end().to_owned();
        partial.clear();
        if !text.is_empty() {
            self.log.write(self.level, self.instance, &text);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut partial = std::mem::take(
            self.partial
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.emit(&mut partial);
    }
}

#[derive(Clone)]
struct LineSink(Arc<Line>);

impl IsTerminal for LineSink {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LineSink {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for LineSink {
    async fn ready(&mut self) {}
}

impl OutputStream for LineSink {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0.write(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 * 1024)
    }
}

impl AsyncWrite for LineSink {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.write(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_becomes_bounded_lines() {
        let log = Arc::new(ProviderLog::new("demo/x".parse().unwrap(), 1_000_000));
        let line = Line {
            log: log.clone(),
            instance: 1,
            level: Level::Info,
            partial: Mutex::default(),
        };
        line.write(b"one\ntw");
        line.write(b"o\n\n");
        line.write(&vec![b'x'; 100_000]);
        drop(line);
        let lines: Vec<_> = log.newest(10).into_iter().map(|l| l.text).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(&lines[..2], ["one", "two"]);
        assert_eq!(lines[2].len(), MAX_PARTIAL);
    }
}
