//! Comparing what a component wants with what the host offers, before anything is compiled.
//!
//! Every mismatch has a message of its own that says what fixes it. Invariant: a component whose
//! report has no problem can be linked with exactly its grants.

mod memory;
mod surface;
mod table;

pub use table::{ImportRow, Offer};

use crate::grants::{Grants, ProcessGrant};
use std::fmt::Write as _;
use surface::{Surface, read};

/// Package of the contract.
const PACKAGE: &str = "harness:provider";
/// Version of the contract this host speaks.
pub const CONTRACT: &str = "0.1.0";

/// Why a component cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{component} cannot be read: {cause}")]
    Unreadable {
        /// What was to be loaded.
        component: String,
        /// Why.
        cause: String,
    },
    /// The file is too large.
    #[error("{component} has {bytes} bytes; at most {limit} are taken (limit `component_size`)")]
    TooLarge {
        /// What was to be loaded.
        component: String,
        /// Its size.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Another digest than the one pinned.
    #[error(
        "the SHA-256 of {component} is {actual}, but {expected} is pinned; check the file or correct `sha256`"
    )]
    Digest {
        /// What was to be loaded.
        component: String,
        /// The pinned digest.
        expected: String,
        /// The actual digest.
        actual: String,
    },
    /// Not WebAssembly at all.
    #[error(
        "this is not a WebAssembly component: it begins with {found}; build it for wasm32-wasip2"
    )]
    NotWasm {
        /// The first bytes.
        found: String,
    },
    /// Precompiled code, which is never taken.
    #[error("this is precompiled machine code, which is never accepted; give the component itself")]
    Precompiled,
    /// A core module.
    #[error(
        "this is a core WebAssembly module, not a component; build it for wasm32-wasip2, or wrap it with `wasm-tools component new`"
    )]
    CoreModule,
    /// The file ends early.
    #[error(
        "the component is truncated: it ends at byte {at} in the middle of a section; copy or download it again"
    )]
    Truncated {
        /// Where it ends.
        at: usize,
    },
    /// Not well-formed.
    #[error("the component is malformed: {0}")]
    Malformed(String),
    /// It does not export the contract.
    #[error("the component does not export `{PACKAGE}/provider@{CONTRACT}`, so it is no harness provider; it exports {}", list(.exports))]
    NoProvider {
        /// What it exports.
        exports: Vec<String>,
    },
    /// Another version of the contract.
    #[error(
        "the component was built against version {wanted} of `{PACKAGE}`; this host offers {CONTRACT}: rebuild it with harness-guest {}",
        sdk()
    )]
    ContractVersion {
        /// The version it wants.
        wanted: String,
    },
    /// An import nobody offers.
    #[error("the component imports `{import}`, which this host does not offer{}", nearest(.import))]
    UnknownImport {
        /// The import.
        import: String,
    },
    /// An import that needs a grant.
    #[error("the component imports `{PACKAGE}/{interface}`, which is not granted; grant it with {}", how(.interface))]
    NotGranted {
        /// The interface.
        interface: String,
    },
    /// A grant nobody uses.
    #[error("`{interface}` is granted, but the component does not import `{PACKAGE}/{interface}`; remove {}", how(.interface))]
    UnusedGrant {
        /// The interface.
        interface: String,
    },
    /// A grant that makes no sense.
    #[error("{0}")]
    InvalidGrant(String),
    /// It begins with more memory than it may have.
    #[error(
        "the component begins with {needs} bytes of memory, but its limit `memory` is {limit} bytes; set `memory = \"{mib}MiB\"` or more in its `[provider.limits]`",
        mib = needs.div_ceil(1024 * 1024)
    )]
    Memory {
        /// Bytes that instantiating it takes.
        needs: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// It does not compile.
    #[error("the component does not compile: {0}")]
    Compile(String),
    /// Names fit, types do not.
    #[error("the component does not fit the contract: {0}; rebuild it with harness-guest {sdk}", sdk = sdk())]
    Mismatch(String),
    /// `describe` failed.
    #[error("the component could not describe itself: {0}")]
    Describe(String),
    /// Another provider has the id.
    #[error("a provider `{0}` is installed already; give this one another `id`")]
    Duplicate(String),
}

impl LoadError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "component_unreadable",
            Self::TooLarge { .. } => "component_too_large",
            Self::Digest { .. } => "component_digest",
            Self::NotWasm { .. } => "not_a_component",
            Self::Precompiled => "precompiled",
            Self::CoreModule => "core_module",
            Self::Truncated { .. } => "truncated",
            Self::Malformed(_) => "malformed",
            Self::NoProvider { .. } => "no_provider",
            Self::ContractVersion { .. } => "contract_version",
            Self::UnknownImport { .. } => "unknown_import",
            Self::NotGranted { .. } => "not_granted",
            Self::UnusedGrant { .. } => "unused_grant",
            Self::InvalidGrant(_) => "invalid_grant",
            Self::Memory { .. } => "memory_limit",
            Self::Compile(_) => "compile",
            Self::Mismatch(_) => "contract_mismatch",
            Self::Describe(_) => "describe",
            Self::Duplicate(_) => "duplicate_id",
        }
    }
}

fn sdk() -> &'static str {
    CONTRACT
        .rsplit_once('.')
        .map_or(CONTRACT, |(minor, _)| minor)
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(", ")
    }
}

fn nearest(import: &str) -> String {
    let mut text = String::new();
    if import.starts_with("wasi:http/") {
        let _ = write!(text, "; use `{PACKAGE}/http` and a grant of the origin");
    } else if import.starts_with("wasi:") {
        text.push_str(
            "; WASI 0.2 and 0.3 (cli, clocks, filesystem, io, random, sockets) are offered",
        );
    } else if import.starts_with(PACKAGE) {
        let _ = write!(
            text,
            "; `{PACKAGE}@{CONTRACT}` has types, host, state, delegation, process, background and http"
        );
    }
    text
}

fn how(interface: &str) -> &'static str {
    match interface {
        "state" => "`[provider.grants.state]`",
        "delegation" => "`[provider.grants.delegation]`",
        "process" => "`[provider.grants.process.<name>]`, a table for each program",
        "background" => {
            "`background = true` in a `[provider.grants.process.<name>]`, for each program that may"
        }
        "http" => "`[provider.grants.http.\"<origin>\"]`, a table for each origin",
        _ => "`[provider.grants]`",
    }
}

/// What a component wants, what it would get, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preflight {
    /// Contract version it was built against, when it names one.
    pub contract: Option<String>,
    /// One row an import.
    pub imports: Vec<ImportRow>,
    /// What it exports.
    pub exports: Vec<String>,
    /// Bytes of memory and tables that an instance begins with.
    pub memory: u64,
    /// Everything that keeps it from being loaded.
    pub problems: Vec<LoadError>,
}

/// Version part of `harness:provider/<interface>@<version>`, with the interface.
fn contract_name(name: &str) -> Option<(&str, &str)> {
    let rest = name.strip_prefix(PACKAGE)?.strip_prefix('/')?;
    Some(rest.split_once('@').unwrap_or((rest, "")))
}

/// Patch versions of one minor version fit each other.
fn fits(version: &str) -> bool {
    let minor = |v: &str| v.rsplit_once('.').map(|(minor, _)| minor.to_owned());
    version == CONTRACT || (minor(version).is_some() && minor(version) == minor(CONTRACT))
}

fn wasi_offered(name: &str) -> bool {
    const PACKAGES: [&str; 6] = ["cli", "clocks", "filesystem", "io", "random", "sockets"];
    let Some((package, version)) = name
        .strip_prefix("wasi:")
        .and_then(|rest| rest.split_once('@'))
    else {
        return false;
    };
    let package = package.split('/').next().unwrap_or_default();
    PACKAGES.contains(&package) && (version.starts_with("0.2.") || version.starts_with("0.3."))
}

/// Compares a component with the contract. With `grants`, also with those: what is imported must be
/// granted, what is granted must be imported. With `limit`, the memory it begins with is compared with
/// those bytes.
///
/// # Errors
/// What keeps the component from being read at all; everything else is in the report.
pub fn preflight(
    bytes: &[u8],
    grants: Option<&Grants>,
    limit: Option<u64>,
) -> Result<Preflight, LoadError> {
    let Surface {
        imports,
        exports,
        memory,
    } = read(bytes)?;
    let granted = |interface: &str| grants.map(|grants| grants.allows(interface));
    let mut problems = Vec::new();
    let mut contract = None;
    let mut rows = Vec::new();
    for import in &imports {
        let offer = match contract_name(import) {
            Some((interface, version)) => {
                contract.get_or_insert_with(|| version.to_owned());
                match interface {
                    _ if !fits(version) => {
                        Offer::OtherVersion(format!("{PACKAGE}/{interface}@{CONTRACT}"))
                    }
                    "types" | "host" => Offer::Always,
                    "state" | "delegation" | "process" | "background" | "http" => {
                        match granted(interface) {
                            None => Offer::NeedsGrant(how(interface)),
                            Some(true) => Offer::Granted,
                            Some(false) => Offer::NotGranted(how(interface)),
                        }
                    }
                    _ => Offer::Unknown,
                }
            }
            None if wasi_offered(import) => Offer::Empty,
            None => Offer::Unknown,
        };
        match &offer {
            Offer::NotGranted(_) => {
                let interface = contract_name(import)
                    .map_or("", |(interface, _)| interface)
                    .to_owned();
                problems.push(LoadError::NotGranted { interface });
            }
            Offer::Unknown => problems.push(LoadError::UnknownImport {
                import: import.clone(),
            }),
            _ => {}
        }
        rows.push(ImportRow {
            wanted: import.clone(),
            offer,
        });
    }
    let provider = exports
        .iter()
        .filter_map(|name| contract_name(name))
        .find(|(interface, _)| *interface == "provider");
    if let Some((_, version)) = provider {
        contract.get_or_insert_with(|| version.to_owned());
    }
    let other = rows
        .iter()
        .any(|row| matches!(row.offer, Offer::OtherVersion(_)));
    match (&contract, provider) {
        (Some(wanted), _) if other || !fits(wanted) => {
            problems.insert(
                0,
                LoadError::ContractVersion {
                    wanted: wanted.clone(),
                },
            );
        }
        (_, None) => problems.insert(
            0,
            LoadError::NoProvider {
                exports: exports.clone(),
            },
        ),
        (_, Some((_, version))) if !fits(version) => {
            problems.insert(
                0,
                LoadError::ContractVersion {
                    wanted: version.to_owned(),
                },
            );
        }
        _ => {}
    }
    let imported = |interface: &str| {
        let names = imports.iter().filter_map(|name| contract_name(name));
        names.map(|(i, _)| i).any(|i| i == interface)
    };
    // A program that may run in the background is of use without `process` too.
    let foreground = |program: &ProcessGrant| !program.background || !imported("background");
    let only_background = grants.is_some_and(|g| !g.process.values().any(foreground));
    for interface in ["state", "delegation", "process", "background", "http"] {
        let used = imported(interface) || interface == "process" && only_background;
        if granted(interface) == Some(true) && !used {
            problems.push(LoadError::UnusedGrant {
                interface: interface.to_owned(),
            });
        }
    }
    if let Some(limit) = limit
        && memory > limit
    {
        problems.push(LoadError::Memory {
            needs: memory,
            limit,
        });
    }
    Ok(Preflight {
        memory,
        contract,
        imports: rows,
        exports,
        problems,
    })
}

#[cfg(test)]
mod tests;
