//! `background`: granted programs that outlive the instance.

use super::process::root;
use crate::bindings::harness::provider::background as wit_background;
use crate::bindings::harness::provider::background::{Host, HostWithStore};
use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::instance::ctx::{Ctx, HasCtx};
use crate::native::IoError;
use harness_core::provider::{
    Background, BoxFuture, InstanceHost, OutputStream, ProcessInfo, ProcessOutput,
};
use harness_core::view::ProcessStatus;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use wasmtime::Result;
use wasmtime::component::Accessor;

/// Most bytes of one `read`.
const MAX_READ: usize = 256 * 1024;
/// Longest handle, in bytes (S11).
const MAX_HANDLE: usize = 128;

type IoAnswer<T> = Result<std::result::Result<T, wit::IoError>>;

impl Host for Ctx {}

/// One call: the session's side, and its place among the pending ones.
struct Call {
    host: Arc<dyn InstanceHost>,
    _pending: OwnedSemaphorePermit,
}

impl Call {
    fn enter<T: Send>(accessor: &Accessor<T, HasCtx>) -> std::result::Result<Self, IoError> {
        let (host, pending, most) = accessor.with(|mut a| {
            let ctx = a.get();
            let most = ctx.shared.installed.limits.pending_calls;
            (ctx.host.clone(), ctx.background_calls.clone(), most)
        });
        let _pending = pending.try_acquire_owned().map_err(|_| {
            IoError::Limit(format!(
                "{most} calls about background processes are pending"
            ))
        })?;
        Ok(Self { host, _pending })
    }

    async fn make<T>(
        self,
        call: impl for<'a> FnOnce(&'a dyn Background) -> BoxFuture<'a, std::result::Result<T, IoError>>,
    ) -> std::result::Result<T, IoError> {
        match self.host.background() {
            Some(background) => call(background).await,
            // A draft instance.
            None => Err(IoError::Closed),
        }
    }
}

fn answer<T>(result: std::result::Result<T, IoError>) -> IoAnswer<T> {
    Ok(result.map_err(convert::io_error))
}

/// A handle that can be one; a longer one is as unknown as any other.
fn handle(text: String) -> std::result::Result<String, IoError> {
    if text.is_empty() || text.len() > MAX_HANDLE {
        return Err(IoError::NotFound(format!(
            "a process handle has 1 to {MAX_HANDLE} bytes"
        )));
    }
    Ok(text)
}

fn info(info: ProcessInfo) -> wit_background::ProcessInfo {
    use wit_background::ProcessStatus as Status;
    let ProcessInfo { process, written } = info;
    wit_background::ProcessInfo {
        handle: process.process_handle,
        program: process.program,
        status: match process.status {
            ProcessStatus::Running => Status::Running,
            ProcessStatus::Exited => Status::Exited,
            ProcessStatus::Failed => Status::Failed,
            ProcessStatus::Stopped => Status::Stopped,
            ProcessStatus::Lost => Status::Lost,
        },
        exit_code: process.exit_code,
        reason: process.reason,
        written,
    }
}

fn output(output: ProcessOutput) -> wit_background::Output {
    let chunks = output.chunks.into_iter();
    wit_background::Output {
        offset: output.from,
        next: output.next,
        chunks: chunks
            .map(|chunk| wit_background::OutputChunk {
                source: match chunk.stream {
                    OutputStream::Stdout => wit_background::OutputStream::Stdout,
                    OutputStream::Stderr => wit_background::OutputStream::Stderr,
                },
                data: chunk.data,
            })
            .collect(),
    }
}

impl<T: Send + 'static> HostWithStore<T> for HasCtx {
    async fn start(
        accessor: &Accessor<T, Self>,
        program: String,
        workspace: Option<wit::Workspace>,
        stdin: Vec<u8>,
    ) -> IoAnswer<String> {
        let (backgrounds, own) = accessor.with(|mut a| {
            let ctx = a.get();
            (ctx.native.backgrounds.clone(), ctx.host.context().workspace)
        });
        let start = async {
            let call = Call::enter(accessor)?;
            let backgrounds = backgrounds.ok_or_else(|| {
                IoError::Denied("no program is granted to run in the background".to_owned())
            })?;
            let root = root(own, workspace)?;
            let program = backgrounds.program(&program, root.as_deref(), stdin)?;
            call.make(move |host| host.start(program)).await
        };
        answer(start.await)
    }

    async fn processes(accessor: &Accessor<T, Self>) -> IoAnswer<Vec<wit_background::ProcessInfo>> {
        let list = async { Call::enter(accessor)?.make(|host| host.list()).await };
        answer(list.await.map(|all| all.into_iter().map(info).collect()))
    }

    async fn info(
        accessor: &Accessor<T, Self>,
        name: String,
    ) -> IoAnswer<wit_background::ProcessInfo> {
        let look = async {
            let handle = handle(name)?;
            Call::enter(accessor)?
                .make(move |host| host.info(handle))
                .await
        };
        answer(look.await.map(info))
    }

    async fn read(
        accessor: &Accessor<T, Self>,
        name: String,
        offset: u64,
        max_bytes: u32,
    ) -> IoAnswer<wit_background::Output> {
        let max = usize::try_from(max_bytes).unwrap_or(MAX_READ).min(MAX_READ);
        let read = async {
            let handle = handle(name)?;
            Call::enter(accessor)?
                .make(move |host| host.read(handle, offset, max))
                .await
        };
        answer(read.await.map(output))
    }

    async fn stop(accessor: &Accessor<T, Self>, name: String) -> IoAnswer<()> {
        let stop = async {
            let handle = handle(name)?;
            Call::enter(accessor)?
                .make(move |host| host.stop(handle))
                .await
        };
        answer(stop.await)
    }
}
