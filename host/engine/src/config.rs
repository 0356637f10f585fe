//! What a host hands to the engine: one [`EngineConfig`], and one [`ProviderSpec`] a provider.
//!
//! Everything here is resolved: paths are absolute, secrets are looked up, sizes are numbers. The
//! written form belongs to the binary.

use crate::grants::Grants;
use crate::limits::Limits;
use crate::native::process::Supervisor;
use bytes::Bytes;
use harness_core::ids::HarnessId;
use std::path::PathBuf;
use std::sync::Arc;

/// Key of the host, under which cached machine code is authenticated.
///
/// Whoever knows it and can write the cache directory can run code in the host.
#[derive(Clone)]
pub struct HostKey(pub(crate) Arc<[u8; 32]>);

impl HostKey {
    /// Wraps 32 secret random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Arc::new(bytes))
    }
}

impl std::fmt::Debug for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostKey(…)")
    }
}

/// Settings of the one engine of a host.
#[derive(Clone)]
pub struct EngineConfig {
    /// Directory of precompiled code; created with mode 0700. `None`: nothing is cached.
    pub cache_dir: Option<PathBuf>,
    /// Authenticates what is in `cache_dir`.
    pub host_key: HostKey,
    /// Compilations at a time. Default 2.
    pub compiles: usize,
    /// Live instances of all providers at a time; opening more answers `Unavailable`. Default 1000.
    pub instances: usize,
    /// Starts granted programs. Default: this binary, whose `main` must call
    /// [`crate::native::process::supervisor_main`] first.
    pub supervisor: Supervisor,
    /// Directory of the workspace that detection works in, i.e. the default one of the project
    /// `default` (G8): a program that runs in the workspace can be asked for its version there.
    /// Default: none.
    pub detect_in: Option<PathBuf>,
}

impl EngineConfig {
    /// Defaults, with that key.
    #[must_use]
    pub fn new(cache_dir: Option<PathBuf>, host_key: HostKey) -> Self {
        Self {
            cache_dir,
            host_key,
            compiles: 2,
            instances: 1000,
            supervisor: Supervisor::this_binary(),
            detect_in: None,
        }
    }
}

/// Where a component comes from.
#[derive(Debug, Clone)]
pub enum ComponentSource {
    /// A file.
    File(PathBuf),
    /// Bytes in memory, under a name for reports (`embedded`).
    Bytes {
        /// Name for reports.
        name: String,
        /// The component.
        bytes: Bytes,
    },
}

impl ComponentSource {
    /// How reports and errors name it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Bytes { name, .. } => name.clone(),
        }
    }
}

/// One provider to install.
#[derive(Debug, Clone)]
pub struct ProviderSpec {
    /// The component.
    pub source: ComponentSource,
    /// Expected digest, lower-case hex SHA-256; a mismatch refuses to load.
    pub sha256: Option<String>,
    /// Id to install it under, instead of the component's own.
    pub id: Option<HarnessId>,
    /// Operator's settings, shown to the component by `config()`. Never secrets.
    pub config: Vec<(String, String)>,
    /// What it may do.
    pub grants: Grants,
    /// What it may use.
    pub limits: Limits,
}

impl ProviderSpec {
    /// A spec without grants and with default limits.
    #[must_use]
    pub fn new(source: ComponentSource) -> Self {
        Self {
            source,
            sha256: None,
            id: None,
            config: Vec::new(),
            grants: Grants::default(),
            limits: Limits::default(),
        }
    }
}
