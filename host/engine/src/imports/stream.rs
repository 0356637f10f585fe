//! Native bytes as a component-model stream, at the guest's pace, and its end as a future.

use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::native::{ByteStream, End};
use bytes::{Buf, Bytes};
use futures::Stream;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};
use wasmtime::component::{
    Destination, FutureReader, StreamProducer, StreamReader, StreamResult, VecBuffer,
};
use wasmtime::{AsContextMut, StoreContextMut};

/// Most bytes handed over at once.
const CHUNK: usize = 64 * 1024;

struct Producer {
    stream: ByteStream,
    chunk: Bytes,
}

impl<D> StreamProducer<D> for Producer {
    type Item = u8;
    type Buffer = VecBuffer<u8>;

    fn poll_produce<'a>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        store: StoreContextMut<'a, D>,
        destination: Destination<'a, u8, Self::Buffer>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        let this = self.get_mut();
        if this.chunk.is_empty() {
            match Pin::new(&mut this.stream).poll_next(cx) {
                Poll::Ready(Some(chunk)) => this.chunk = chunk,
                Poll::Ready(None) => return Poll::Ready(Ok(StreamResult::Dropped)),
                // The guest takes its read back; nothing was taken from the stream.
                Poll::Pending if finish => return Poll::Ready(Ok(StreamResult::Cancelled)),
                Poll::Pending => return Poll::Pending,
            }
        }
        let mut destination = destination.as_direct(store, this.chunk.len().min(CHUNK));
        let written = destination.write(&this.chunk)?;
        this.chunk.advance(written);
        Poll::Ready(Ok(StreamResult::Completed))
    }
}

/// What a guest reads with, and why reading ended.
pub(crate) type Readers = (StreamReader<u8>, FutureReader<Result<(), wit::IoError>>);

/// Both halves for the guest.
pub(crate) fn readers<S: AsContextMut>(
    mut store: S,
    stream: ByteStream,
    end: End,
) -> wasmtime::Result<Readers> {
    let bytes = StreamReader::new(
        &mut store,
        Producer {
            stream,
            chunk: Bytes::new(),
        },
    )?;
    let end = FutureReader::new(&mut store, async move {
        wasmtime::error::Ok(end.await.map_err(convert::io_error))
    })?;
    Ok((bytes, end))
}
