//! `process`: granted programs.

use super::abort::AbortHandle;
use super::stream::{Readers, readers};
use crate::bindings::harness::provider::process::{Host, HostProcess, HostProcessWithStore};
use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::instance::ctx::{Ctx, HasCtx};
use crate::native::IoError;
use crate::native::process::Process;
use bytes::Bytes;
use harness_core::abort::AbortSignal;
use harness_core::provider::Workspace;
use std::path::PathBuf;
use std::sync::Arc;
use wasmtime::Result;
use wasmtime::component::{Access, Accessor, Resource};

/// A guest's handle on a program; dropping it ends the program.
pub struct ProcessHandle(Arc<Process>);

type IoAnswer<T> = Result<std::result::Result<T, wit::IoError>>;

/// The signal that ends what was started with an `abort`: it fires with that abort and at the
/// latest when its invocation is over.
pub(super) fn belongs_to<T: Send>(
    accessor: &Accessor<T, HasCtx>,
    abort: Option<&Resource<AbortHandle>>,
) -> Result<Option<AbortSignal>> {
    let Some(abort) = abort else { return Ok(None) };
    let (abort, runtime) = accessor.with(|mut a| -> Result<_> {
        let ctx = a.get();
        Ok((
            ctx.table.get(abort)?.abort.clone(),
            ctx.shared.runtime.clone(),
        ))
    })?;
    Ok(Some(abort.lasting(&runtime)))
}

/// The root of the instance's own local workspace, when the guest names that one.
pub(super) fn root(
    own: Option<Workspace>,
    named: Option<wit::Workspace>,
) -> std::result::Result<Option<PathBuf>, IoError> {
    let Some(named) = named else { return Ok(None) };
    let named = convert::workspace_from(named);
    match own {
        Some(Workspace::Local { id, root_path })
            if named
                == Some(Workspace::Local {
                    id: id.clone(),
                    root_path: root_path.clone(),
                }) =>
        {
            Ok(Some(PathBuf::from(root_path)))
        }
        Some(Workspace::Remote { .. }) => Err(IoError::Denied(
            "a program cannot be started in a remote workspace".to_owned(),
        )),
        _ => Err(IoError::Denied(
            "a program is started in the workspace of its own session only".to_owned(),
        )),
    }
}

impl Host for Ctx {}

impl HostProcess for Ctx {
    fn close_stdin(&mut self, handle: Resource<ProcessHandle>) -> Result<()> {
        self.table.get(&handle)?.0.close_stdin();
        Ok(())
    }

    fn kill(&mut self, handle: Resource<ProcessHandle>) -> Result<()> {
        self.table.get(&handle)?.0.kill();
        Ok(())
    }

    fn drop(&mut self, handle: Resource<ProcessHandle>) -> Result<()> {
        self.table.delete(handle)?.0.kill();
        Ok(())
    }
}

impl<T: Send + 'static> HostProcessWithStore<T> for HasCtx {
    async fn spawn(
        accessor: &Accessor<T, Self>,
        program: String,
        workspace: Option<wit::Workspace>,
        abort: Option<Resource<AbortHandle>>,
    ) -> IoAnswer<Resource<ProcessHandle>> {
        let abort = belongs_to(accessor, abort.as_ref())?;
        let (processes, own) = accessor.with(|mut a| {
            let ctx = a.get();
            (ctx.native.processes.clone(), ctx.host.context().workspace)
        });
        let start = async {
            let processes = processes.ok_or_else(|| {
                IoError::Denied("no program is granted to this provider".to_owned())
            })?;
            let root = root(own, workspace)?;
            processes.spawn(&program, root.as_deref(), abort).await
        };
        match start.await {
            Ok(process) => {
                let handle =
                    accessor.with(|mut a| a.get().table.push(ProcessHandle(Arc::new(process))))?;
                Ok(Ok(handle))
            }
            Err(error) => Ok(Err(convert::io_error(error))),
        }
    }

    async fn write_stdin(
        accessor: &Accessor<T, Self>,
        handle: Resource<ProcessHandle>,
        data: Vec<u8>,
    ) -> IoAnswer<()> {
        // Queued before the first await, so that writes keep the order of their calls (N18).
        let written = accessor.with(|mut a| -> Result<_> {
            Ok(a.get().table.get(&handle)?.0.write_stdin(Bytes::from(data)))
        })?;
        Ok(written.await.map_err(convert::io_error))
    }

    fn stdout(mut access: Access<'_, T, Self>, handle: Resource<ProcessHandle>) -> Result<Readers> {
        let (stream, end) = access.get().table.get(&handle)?.0.stdout();
        readers(access, stream, end)
    }

    fn stderr(mut access: Access<'_, T, Self>, handle: Resource<ProcessHandle>) -> Result<Readers> {
        let (stream, end) = access.get().table.get(&handle)?.0.stderr();
        readers(access, stream, end)
    }

    async fn wait(accessor: &Accessor<T, Self>, handle: Resource<ProcessHandle>) -> IoAnswer<i32> {
        let ended =
            accessor.with(|mut a| -> Result<_> { Ok(a.get().table.get(&handle)?.0.wait()) })?;
        Ok(ended.await.map_err(convert::io_error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Option<Workspace> {
        Some(Workspace::Local {
            id: "w1".parse().unwrap(),
            root_path: "/srv/w1".into(),
        })
    }

    fn named(id: &str, root_path: &str) -> Option<wit::Workspace> {
        Some(wit::Workspace::Local(wit::LocalWorkspace {
            id: id.into(),
            root_path: root_path.into(),
        }))
    }

    #[test]
    fn only_the_own_workspace_is_a_working_directory() {
        assert_eq!(
            root(own(), named("w1", "/srv/w1")),
            Ok(Some("/srv/w1".into()))
        );
        assert_eq!(root(own(), None), Ok(None));
        for foreign in [
            named("w1", "/etc"),
            named("w2", "/srv/w1"),
            named("../x", "/srv/w1"),
        ] {
            assert!(matches!(
                root(own(), foreign.clone()),
                Err(IoError::Denied(_))
            ));
            assert!(matches!(root(None, foreign), Err(IoError::Denied(_))));
        }
    }

    #[test]
    fn r78_a_remote_workspace_yields_no_working_directory() {
        let remote = Workspace::Remote {
            id: "w1".parse().unwrap(),
            host: "h".into(),
            path: "/p".into(),
        };
        let named = wit::Workspace::Remote(wit::RemoteWorkspace {
            id: "w1".into(),
            host: "h".into(),
            path: "/p".into(),
        });
        assert!(matches!(
            root(Some(remote), Some(named)),
            Err(IoError::Denied(_))
        ));
    }
}
