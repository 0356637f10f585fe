//! The configuration file, in two stages: as written ([`written`]), then resolved and checked
//! ([`mod@resolve`]): secrets looked up, paths absolute, sizes and durations numbers within their range.
//!
//! Invariants
//! - An unknown key, a value outside its range, a secret or a path that does not exist is an error
//!   that names the line and the remedy; nothing is ignored, guessed or silently clamped.
//! - Every problem of a file is reported at once, in the order of its lines; only a file that cannot
//!   be read as TOML of the right shape stops at its first.
//! - The value of a secret is in no message.

#[cfg(test)]
mod cases;
mod grants;
mod limits;
mod problem;
mod resolve;
mod secrets;
mod settings;
#[cfg(test)]
mod tests;
mod units;
mod written;

pub(crate) use problem::{ConfigError, Problem};
pub(crate) use resolve::{Environment, resolve};
pub(crate) use settings::{Exposure, Settings, Tls};

use std::io::Read;
use std::path::Path;

/// Largest configuration file that is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// Reads, resolves and checks the file; without one, the defaults.
///
/// # Errors
/// [`ConfigError`] with every problem of the file.
pub(crate) fn load(file: Option<&Path>) -> Result<Settings, ConfigError> {
    let environment = Environment::of_process();
    let Some(path) = file else {
        return resolve("", &environment, Path::new(".")).map_err(|p| ConfigError::new("", p));
    };
    let name = path.display().to_string();
    let text = read(path).map_err(|problem| ConfigError::new(&name, vec![problem]))?;
    let base = path.parent().unwrap_or(Path::new("."));
    resolve(&text, &environment, base).map_err(|problems| ConfigError::new(&name, problems))
}

fn read(path: &Path) -> Result<String, Problem> {
    let refuse = |message: String, remedy: &str| Problem::new(None, message, remedy);
    let file = std::fs::File::open(path).map_err(|error| {
        refuse(
            format!("the file cannot be read: {error}"),
            "check the path given by --config or HARNESS_CONFIG",
        )
    })?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| {
            refuse(
                format!("the file cannot be read: {error}"),
                "check the path given by --config or HARNESS_CONFIG",
            )
        })?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(refuse(
            "the file is larger than 1 MiB".to_owned(),
            "check that it is a configuration file",
        ));
    }
    String::from_utf8(bytes)
        .map_err(|_| refuse("the file is not UTF-8 text".to_owned(), "save it as UTF-8"))
}
