//! The body of a response, moved by a task of its own.
//!
//! The task and not the reader holds the connection, so that an abort, a deadline or the end of the
//! instance closes it although nobody reads. It holds one chunk that waits for the reader and one
//! that was received after it; the connection's own window is what stops the server.

use crate::native::{ByteStream, End, IoError, stream};
use bytes::Bytes;
use futures::StreamExt;
use reqwest::Response;
use tokio::sync::mpsc;

/// Moves a response's body until it ends, grows beyond `max_bytes`, or `ended` tells why it must
/// stop. `kept` is dropped when the connection is free.
pub(super) fn read(
    response: Response,
    max_bytes: u64,
    ended: impl Future<Output = IoError> + Send + 'static,
    kept: impl Send + 'static,
) -> (ByteStream, End) {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let last = sender.clone();
        let stopped = tokio::select! {
            result = pump(response, max_bytes, &sender) => result.err(),
            // The reader went away.
            () = sender.closed() => None,
            why = ended => Some(why),
        };
        drop(sender);
        // The connection is closed by now.
        drop(kept);
        if let Some(why) = stopped {
            let _ = last.send(Err(why)).await;
        }
    });
    let chunks = futures::stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    });
    stream::stream(chunks.boxed())
}

async fn pump(
    response: Response,
    max_bytes: u64,
    sender: &mpsc::Sender<Result<Bytes, IoError>>,
) -> Result<(), IoError> {
    let mut body = response.bytes_stream();
    let mut left = max_bytes;
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(super::fetch::failure)?;
        left = u64::try_from(chunk.len())
            .ok()
            .and_then(|length| left.checked_sub(length))
            .ok_or_else(|| {
                IoError::Limit(format!("a response body has at most {max_bytes} bytes"))
            })?;
        if sender.send(Ok(chunk)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
