//! Bytes that arrive at the reader's pace, with the reason why they ended.
//!
//! The two halves mirror the contract's `tuple<stream<u8>, future<result<_, io-error>>>`. The
//! stream pulls: nothing is buffered here, so a reader that stops reading stops the writer.

use super::IoError;
use bytes::Bytes;
use futures::Stream;
use futures::stream::BoxStream;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// Chunks in order; never empty ones. It is fused.
pub struct ByteStream {
    chunks: Option<BoxStream<'static, Result<Bytes, IoError>>>,
    end: Option<oneshot::Sender<Result<(), IoError>>>,
}

/// Resolves when the stream has ended: `Ok` at its natural end, [`IoError::Closed`] when the
/// stream was dropped before, the handle was ended or the stream had been taken already.
#[derive(Debug)]
pub struct End(oneshot::Receiver<Result<(), IoError>>);

/// Both halves over chunks that stop at their end or at the first error.
pub(super) fn stream(chunks: BoxStream<'static, Result<Bytes, IoError>>) -> (ByteStream, End) {
    let (sender, receiver) = oneshot::channel();
    (
        ByteStream {
            chunks: Some(chunks),
            end: Some(sender),
        },
        End(receiver),
    )
}

/// A stream without bytes that ended with [`IoError::Closed`].
pub(super) fn closed() -> (ByteStream, End) {
    let (_, receiver) = oneshot::channel();
    (
        ByteStream {
            chunks: None,
            end: None,
        },
        End(receiver),
    )
}

impl ByteStream {
    fn finish(&mut self, end: Result<(), IoError>) {
        self.chunks = None;
        if let Some(sender) = self.end.take() {
            let _ = sender.send(end);
        }
    }
}

impl Stream for ByteStream {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        while let Some(chunks) = self.chunks.as_mut() {
            match std::task::ready!(chunks.as_mut().poll_next(cx)) {
                Some(Ok(chunk)) if chunk.is_empty() => {}
                Some(Ok(chunk)) => return Poll::Ready(Some(chunk)),
                Some(Err(error)) => self.finish(Err(error)),
                None => self.finish(Ok(())),
            }
        }
        Poll::Ready(None)
    }
}

impl Future for End {
    type Output = Result<(), IoError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|end| end.unwrap_or(Err(IoError::Closed)))
    }
}

impl std::fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ByteStream(ended: {})", self.chunks.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use futures::executor::block_on;

    fn check(chunks: Vec<Result<Bytes, IoError>>, read: usize, end: Result<(), IoError>) {
        let (mut stream, reason) = stream(futures::stream::iter(chunks).boxed());
        for _ in 0..read {
            block_on(stream.next());
        }
        drop(stream);
        assert_eq!(block_on(reason), end);
    }

    #[test]
    fn the_end_tells_why() {
        let failed = || IoError::Failed("broken".into());
        check(vec![Ok(Bytes::from_static(b"a"))], 2, Ok(()));
        check(vec![Ok(Bytes::new()), Err(failed())], 1, Err(failed()));
        check(vec![Ok(Bytes::from_static(b"a"))], 1, Err(IoError::Closed));
        let (mut taken, reason) = closed();
        assert_eq!(block_on(taken.next()), None);
        assert_eq!(block_on(reason), Err(IoError::Closed));
    }
}
