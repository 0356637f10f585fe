//! From a grant to what is executed: which file, where, with what environment.
//!
//! A command with a slash must be an absolute path. One without is looked up in the `PATH` of its
//! grant, or, when the grant sets none, in the host's; only absolute entries of it count, so that
//! a workspace can never supply the program. The program gets the path that was found as its
//! `argv[0]` and sees `PATH` only when granted.

use super::wire::Launch;
use crate::grants::{ProcessCwd, ProcessGrant};
use crate::native::IoError;
use rustix::fs::{Access, access};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What to execute for the grant `name`; touches the file system.
pub(super) fn launch(
    name: &str,
    grant: &ProcessGrant,
    workspace: Option<&Path>,
) -> Result<Launch, IoError> {
    let (command, args) = grant
        .command
        .split_first()
        .ok_or_else(|| IoError::Denied(format!("the grant of program {name:?} has no command")))?;
    let path = grant
        .env
        .get("PATH")
        .map(|path| OsString::from(path.expose()))
        .or_else(|| std::env::var_os("PATH"));
    let program = find(name, command, path.unwrap_or_default())?;
    let cwd = match &grant.cwd {
        ProcessCwd::Path(path) => path.as_path(),
        ProcessCwd::Workspace => workspace.ok_or_else(|| {
            IoError::Denied(format!(
                "program {name:?} runs in the session's workspace, and there is none on this host"
            ))
        })?,
    };
    if !cwd.is_absolute() || !cwd.is_dir() {
        return Err(IoError::NotFound(format!(
            "{} is no directory to run program {name:?} in",
            cwd.display()
        )));
    }
    let text = |path: &Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| IoError::Denied(format!("{} is not UTF-8", path.display())))
    };
    Ok(Launch {
        program: text(&program)?,
        args: args.to_vec(),
        env: grant
            .env
            .iter()
            .map(|(name, value)| (name.clone(), value.expose().to_owned()))
            .collect(),
        cwd: text(cwd)?,
    })
}

fn find(name: &str, command: &str, path: OsString) -> Result<PathBuf, IoError> {
    let found = if command.contains('/') {
        let path = PathBuf::from(command);
        if !path.is_absolute() {
            return Err(IoError::Denied(format!(
                "program {name:?}: {command:?} must be an absolute path or a name to look up in PATH"
            )));
        }
        Some(path).filter(|path| is_executable(path))
    } else {
        std::env::split_paths(&path)
            .filter(|dir| dir.is_absolute())
            .map(|dir| dir.join(command))
            .find(|path| is_executable(path))
    };
    found.ok_or_else(|| {
        IoError::NotFound(format!(
            "program {name:?}: {command:?} is not installed or not executable"
        ))
    })
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;
    use std::collections::BTreeMap;

    fn check(
        command: &[&str],
        path: Option<&str>,
        workspace: Option<&str>,
    ) -> Result<Launch, IoError> {
        let grant = ProcessGrant {
            command: command.iter().map(|part| (*part).to_owned()).collect(),
            env: path
                .map(|path| ("PATH".to_owned(), Secret::new(path)))
                .into_iter()
                .collect(),
            cwd: ProcessCwd::Workspace,
            background: false,
        };
        launch("agent", &grant, workspace.map(Path::new))
    }

    #[test]
    fn a_command_is_found_where_the_grant_says() {
        let found = |result: Result<Launch, IoError>| result.map(|launch| launch.program);
        assert_eq!(
            found(check(&["sh"], Some("/nowhere:/bin"), Some("/"))),
            Ok("/bin/sh".into())
        );
        assert_eq!(
            found(check(&["/bin/sh", "-c"], Some(""), Some("/"))),
            Ok("/bin/sh".into())
        );
        assert!(
            found(check(&["sh"], None, Some("/"))).is_ok(),
            "the host's PATH"
        );
        for (command, path) in [
            ("sh", ""),
            ("sh", "."),
            ("etc", "/"),
            ("passwd", "/etc"),
            ("/bin/absent", "/bin"),
        ] {
            let result = found(check(&[command], Some(path), Some("/bin")));
            assert!(
                matches!(result, Err(IoError::NotFound(_))),
                "{command} in {path}: {result:?}"
            );
        }
        for command in ["./sh", "bin/sh", "../bin/sh"] {
            let result = found(check(&[command], Some("/"), Some("/")));
            assert!(
                matches!(result, Err(IoError::Denied(_))),
                "{command}: {result:?}"
            );
        }
        assert!(matches!(
            found(check(&[], None, Some("/"))),
            Err(IoError::Denied(_))
        ));
    }

    #[test]
    fn it_runs_in_the_workspace_or_not_at_all() {
        let cwd = |workspace| check(&["/bin/sh"], None, workspace).map(|launch| launch.cwd);
        assert_eq!(cwd(Some("/tmp")), Ok("/tmp".into()));
        assert!(matches!(cwd(None), Err(IoError::Denied(_))));
        for absent in ["/nowhere", "tmp", "", "/bin/sh"] {
            assert!(
                matches!(cwd(Some(absent)), Err(IoError::NotFound(_))),
                "{absent}"
            );
        }
    }

    #[test]
    fn the_environment_is_exactly_the_granted_one() {
        let launch = check(&["sh"], Some("/bin"), Some("/")).unwrap();
        assert_eq!(launch.env, BTreeMap::from([("PATH".into(), "/bin".into())]));
    }
}
