//! Where a token that is limited to projects may make local workspaces.
//!
//! A workspace decides in which directory granted programs work, so who chooses one chooses what
//! they reach. The operator names the directories beneath which such a token may choose.
//!
//! Symbolic links are followed as they are now. Not here: who may write into these directories.

use crate::code::Code;
use crate::problem::Problem;
use std::path::{Component, Path, PathBuf};

/// Refuses a directory that is not beneath one of the roots. Blocks on the file system.
pub(crate) fn check(roots: &[PathBuf], asked: &Path) -> Result<(), Problem> {
    let plain = !asked.components().any(|c| c == Component::ParentDir);
    let beneath = plain
        && existing(asked).is_some_and(|real| {
            roots
                .iter()
                .filter_map(|root| root.canonicalize().ok())
                .any(|root| real.starts_with(root))
        });
    if beneath {
        return Ok(());
    }
    Err(Problem::new(
        Code::Forbidden,
        "the token is limited to projects and may not make a workspace in that directory; choose one beneath those that the operator lists as `workspace.roots`, or use a token without that limit",
    ))
}

/// The deepest part of a path that exists, its links followed, and what is missing after it.
fn existing(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|part| {
        let real = part.canonicalize().ok()?;
        Some(real.join(path.strip_prefix(part).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_beneath_a_root_is_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, other) = (dir.path().join("root"), dir.path().join("other"));
        std::fs::create_dir_all(root.join("there")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, root.join("out")).unwrap();
        std::os::unix::fs::symlink(&root, dir.path().join("in")).unwrap();
        let roots = [root.clone()];
        for (asked, allowed) in [
            (root.clone(), true),
            (root.join("there"), true),
            (root.join("not/yet"), true),
            (dir.path().join("in/there"), true),
            (other.clone(), false),
            (dir.path().join("root-beside"), false),
            (root.join("../other"), false),
            (root.join("missing/../../other"), false),
            (root.join("out/deep"), false),
            (PathBuf::from("/"), false),
        ] {
            assert_eq!(
                check(&roots, &asked).is_ok(),
                allowed,
                "{}",
                asked.display()
            );
        }
        assert!(check(&[], &root).is_err(), "no roots: nowhere");
    }
}
