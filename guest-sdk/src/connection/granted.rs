//! The transport of a component: a program of the `process` grant.
//!
//! Using it makes the provider import the `process` interface, i.e. ask for the
//! grant; it exists in a component only.

use super::transport::{Pipes, Process, Transport, TransportError};
use crate::bindings::harness::provider::process as wit;
use crate::types::{IoError, Workspace};
use futures::future::LocalBoxFuture;
use futures::stream::{LocalBoxStream, StreamExt, unfold};
use std::rc::Rc;

/// Bytes asked for in one read of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// A granted program by its name, started where the session works.
#[derive(Clone, Debug)]
pub struct Granted {
    program: String,
    workspace: crate::Shared<Option<Workspace>>,
}

impl Granted {
    /// The grant of this name. The provider's documentation tells the operator
    /// what to grant under it.
    #[must_use]
    pub fn new(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            workspace: crate::Shared::new(None),
        }
    }

    /// Where the next start takes place.
    pub fn at(&self, workspace: Option<Workspace>) {
        self.workspace.replace(workspace);
    }
}

impl Transport for Granted {
    fn open(&self) -> LocalBoxFuture<'static, Result<Pipes, TransportError>> {
        let program = self.program.clone();
        let workspace = self.workspace.get();
        Box::pin(async move {
            let process = wit::Process::spawn(program, workspace, None).await?;
            let (stdout, _) = process.stdout();
            let (stderr, _) = process.stderr();
            Ok(Pipes {
                process: Rc::new(Child(process)),
                stdout: chunks(stdout),
                stderr: chunks(stderr),
            })
        })
    }
}

/// A stream of chunks that owns its pending read, so that a `select!` above it
/// may drop what it polls without losing data.
fn chunks(reader: wit_bindgen::StreamReader<u8>) -> LocalBoxStream<'static, Vec<u8>> {
    unfold(reader, |mut reader| async move {
        loop {
            let (status, bytes) = reader.read(Vec::with_capacity(READ_BYTES)).await;
            if !bytes.is_empty() {
                return Some((bytes, reader));
            }
            if !matches!(status, wit_bindgen::StreamResult::Complete(_)) {
                return None;
            }
            // Nothing yet is no end; ask again, but not without a pause.
            wit_bindgen::yield_async().await;
        }
    })
    .boxed_local()
}

struct Child(wit::Process);

impl Process for Child {
    fn write(&self, data: Vec<u8>) -> LocalBoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move { Ok(self.0.write_stdin(data).await?) })
    }

    fn wait(&self) -> LocalBoxFuture<'_, Result<i32, TransportError>> {
        Box::pin(async move { Ok(self.0.wait().await?) })
    }

    fn kill(&self) {
        self.0.kill();
    }
}

impl From<IoError> for TransportError {
    fn from(error: IoError) -> Self {
        match error {
            IoError::Denied(text) => Self::Denied(text),
            IoError::NotFound(text) => Self::NotFound(text),
            IoError::Failed(text) => Self::Failed(text),
            IoError::Limit(text) => Self::Limit(text),
            IoError::Closed => Self::Closed,
        }
    }
}
