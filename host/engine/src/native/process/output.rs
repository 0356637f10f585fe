//! Standard output and error of a program, read as fast as the caller reads.
//!
//! The only buffer is the pipe's own (64 KiB in the kernel): a program that floods waits.

use super::running::Status;
use crate::native::{ByteStream, End};
use crate::native::{IoError, error, stream};
use bytes::Bytes;
use futures::StreamExt;
use std::io::ErrorKind;
use tokio::net::unix::pipe;
use tokio::sync::watch;

/// Largest chunk, as large as the pipe's buffer.
const CHUNK_BYTES: usize = 64 * 1024;

struct Reader {
    pipe: pipe::Receiver,
    buffer: Vec<u8>,
    status: watch::Receiver<Status>,
}

/// The pipe as a stream. It ends with `closed` when the handle ended the program, with nothing
/// to add when the program and all that inherited the pipe closed it by themselves.
pub(super) fn read(pipe: pipe::Receiver, status: watch::Receiver<Status>) -> (ByteStream, End) {
    let reader = Reader {
        pipe,
        buffer: Vec::new(),
        status,
    };
    let chunks = futures::stream::unfold(reader, |mut reader| async move {
        let chunk = reader.chunk().await.transpose()?;
        Some((chunk, reader))
    });
    stream::stream(chunks.boxed())
}

impl Reader {
    async fn chunk(&mut self) -> Result<Option<Bytes>, IoError> {
        loop {
            let gone = tokio::select! {
                ready = self.pipe.readable() => {
                    ready.map_err(|e| error::os("reading the program's output", &e))?;
                    false
                }
                // Nobody is left to write: what the pipe holds is all there will be.
                _ = self.status.wait_for(|status| status.gone) => true,
            };
            self.buffer.resize(CHUNK_BYTES, 0);
            match self.pipe.try_read(&mut self.buffer) {
                Ok(0) => return self.end(),
                Ok(read) => return Ok(self.buffer.get(..read).map(Bytes::copy_from_slice)),
                Err(error) if error.kind() == ErrorKind::WouldBlock && gone => return self.end(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(error::os("reading the program's output", &e)),
            }
        }
    }

    fn end(&self) -> Result<Option<Bytes>, IoError> {
        if self.status.borrow().ended_by_handle {
            Err(IoError::Closed)
        } else {
            Ok(None)
        }
    }
}
