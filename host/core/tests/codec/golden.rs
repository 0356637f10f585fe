//! Golden files: the exact bytes of every record this build writes. A record that an earlier build
//! wrote must decode for good, so a file that changes is a new version (S16), never an edit.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

fn folder(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(kind)
}

/// The checked-in bytes of a fixture. `GOLDEN_WRITE=1` makes a file that is missing, never changes one.
pub(crate) fn bytes(kind: &str, name: &str, written: &[u8]) -> Vec<u8> {
    let path = folder(kind).join(format!("{name}.json"));
    if !path.exists() && std::env::var_os("GOLDEN_WRITE").is_some() {
        fs::create_dir_all(folder(kind)).unwrap();
        fs::write(&path, [written, b"\n"].concat()).unwrap();
    }
    let mut bytes = fs::read(&path)
        .unwrap_or_else(|e| panic!("{}: {e}; GOLDEN_WRITE=1 makes it", path.display()));
    assert_eq!(
        bytes.pop(),
        Some(b'\n'),
        "{} ends in one newline",
        path.display()
    );
    bytes
}

/// Every type has a fixture, and every file a sample: neither can be forgotten alone.
pub(crate) fn cover(kind: &str, types: &[&str], names: &[String]) {
    let stored: BTreeSet<String> = fs::read_dir(folder(kind))
        .unwrap()
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .map(|f| f.trim_end_matches(".json").to_owned())
        .collect();
    let sampled: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(sampled.len(), names.len(), "a fixture name is used twice");
    assert_eq!(stored, sampled, "files and samples differ");
    for name in types {
        let covered = |s: &String| s == name || s.starts_with(&format!("{name}-"));
        assert!(sampled.iter().any(covered), "`{name}` has no fixture");
    }
}
