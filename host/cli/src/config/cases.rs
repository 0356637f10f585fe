//! Every refusal of a configuration, as a directory: `config.toml`, and the `error.txt` it gives.
//!
//! Run with `SNAPSHOTS=overwrite` to write what is given now; then read the difference.

use super::{ConfigError, Environment, resolve};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Variables that the cases may use.
const VARIABLES: [(&str, &str); 3] = [
    ("PATH", "/bin:/usr/bin"),
    ("PRESENT", "hunter2"),
    ("EMPTY", ""),
];

fn outcome(directory: &Path) -> String {
    let text = std::fs::read_to_string(directory.join("config.toml")).unwrap();
    let environment = Environment::of(&VARIABLES);
    match resolve(&text, &environment, directory) {
        Ok(_) => "no error\n".to_owned(),
        Err(problems) => {
            let shown = format!("{}\n", ConfigError::new("config.toml", problems));
            shown.replace(&directory.display().to_string(), "[CASE]")
        }
    }
}

#[test]
fn every_case_gives_its_error() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    // git keeps no modes beyond the executable bit.
    let open = root.join("secret-file-open-to-others/secret.txt");
    std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut directories: Vec<_> = std::fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    directories.sort();
    assert!(
        directories.len() > 20,
        "the cases are missing: {directories:?}"
    );
    for directory in directories {
        let shown = outcome(&directory);
        assert!(
            !shown.contains("hunter2"),
            "{}: a secret is shown",
            directory.display()
        );
        snapbox::assert_data_eq!(
            shown,
            snapbox::Data::read_from(&directory.join("error.txt"), None)
        );
    }
}
