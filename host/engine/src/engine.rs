//! The one wasmtime engine of a host: its configuration, its epoch ticker, its compilations.
//!
//! Invariant: there is one configuration. Its compatibility hash is part of every cache key, so
//! machine code of another configuration is never mapped.

use crate::cache::Cache;
use crate::config::EngineConfig;
use crate::native::process::Supervisor;
use sha2::{Digest, Sha256};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::component::Component;
use wasmtime::{Config, WasmBacktraceDetails};

/// How often a computing guest yields, and how finely its CPU slice is measured.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// Why the engine could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// wasmtime refused its configuration on this machine.
    #[error("the WebAssembly engine cannot run on this machine: {0}")]
    Unsupported(String),
    /// The ticker thread could not be started.
    #[error("the epoch ticker could not be started: {0}")]
    Ticker(std::io::Error),
    /// The cache directory could not be made.
    #[error("the compile cache at {path}: {cause}")]
    Cache {
        /// Its path.
        path: String,
        /// What failed.
        cause: std::io::Error,
    },
}

impl EngineError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unsupported(_) => "engine_unsupported",
            Self::Ticker(_) => "engine_ticker",
            Self::Cache { .. } => "engine_cache",
        }
    }
}

/// Loads and runs components. Clones share everything.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    wasmtime: wasmtime::Engine,
    cache: Option<Cache>,
    compiles: Arc<Semaphore>,
    instances: Arc<Semaphore>,
    supervisor: Supervisor,
    detect_in: Option<PathBuf>,
}

/// A live instance's share of the host's bound.
pub(crate) struct InstancePermit(
    #[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit,
);

/// Loaded code and where it came from.
pub(crate) struct Code {
    pub(crate) component: Component,
    pub(crate) cached: bool,
}

impl Engine {
    /// Makes the engine and starts its ticker thread, which ends with the last clone.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        let wasmtime = wasmtime::Engine::new(&options())
            .map_err(|e| EngineError::Unsupported(e.root_cause().to_string()))?;
        let cache = config
            .cache_dir
            .map(|path| {
                Cache::open(path.clone(), config.host_key.clone()).map_err(|cause| {
                    EngineError::Cache {
                        path: path.display().to_string(),
                        cause,
                    }
                })
            })
            .transpose()?;
        let ticked = wasmtime.weak();
        // A thread of the operating system: a runtime whose threads all compute must still tick.
        std::thread::Builder::new()
            .name("epoch-ticker".to_owned())
            .spawn(move || {
                while let Some(engine) = ticked.upgrade() {
                    engine.increment_epoch();
                    drop(engine);
                    std::thread::sleep(TICK);
                }
            })
            .map_err(EngineError::Ticker)?;
        Ok(Self(Arc::new(Inner {
            wasmtime,
            cache,
            compiles: Arc::new(Semaphore::new(config.compiles.max(1))),
            instances: Arc::new(Semaphore::new(config.instances.max(1))),
            supervisor: config.supervisor,
            detect_in: config.detect_in,
        })))
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.0.wasmtime
    }

    pub(crate) fn supervisor(&self) -> Supervisor {
        self.0.supervisor.clone()
    }

    /// Where detection works.
    pub(crate) fn detect_in(&self) -> Option<&Path> {
        self.0.detect_in.as_deref()
    }

    /// Room for one more instance, if there is any.
    pub(crate) fn instance_permit(&self) -> Option<InstancePermit> {
        self.0
            .instances
            .clone()
            .try_acquire_owned()
            .ok()
            .map(InstancePermit)
    }

    /// Code of a component from the cache, or compiled on a blocking thread.
    ///
    /// # Errors
    /// A sentence; beyond `limit` the compilation goes on in the background and keeps its permit.
    pub(crate) async fn code(
        &self,
        bytes: bytes::Bytes,
        sha256: [u8; 32],
        limit: Duration,
    ) -> Result<Code, String> {
        let engine = self.clone();
        let permits = self.0.compiles.clone();
        let permit = permits.acquire_owned().await.map_err(|e| e.to_string())?;
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            engine.code_blocking(&bytes, sha256)
        });
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(format!("the compiler failed: {error}")),
            Err(_) => Err(format!(
                "it took longer than {} s to compile",
                limit.as_secs_f64()
            )),
        }
    }

    fn code_blocking(&self, bytes: &[u8], sha256: [u8; 32]) -> Result<Code, String> {
        let key = self
            .0
            .cache
            .as_ref()
            .map(|cache| (cache, self.cache_key(sha256)));
        if let Some((cache, key)) = &key
            && let Some(code) = cache.load(&self.0.wasmtime, key)
        {
            return Ok(Code {
                component: code,
                cached: true,
            });
        }
        let component = Component::new(&self.0.wasmtime, bytes)
            .map_err(|error| format!("{}", error.root_cause()))?;
        if let Some((cache, key)) = &key {
            cache.store(&component, key);
        }
        Ok(Code {
            component,
            cached: false,
        })
    }

    /// What machine code depends on besides the component: runtime version, configuration, target.
    fn cache_key(&self, sha256: [u8; 32]) -> [u8; 32] {
        struct Feed(Sha256);
        impl Hasher for Feed {
            fn write(&mut self, bytes: &[u8]) {
                self.0.update(bytes);
            }
            fn finish(&self) -> u64 {
                0
            }
        }
        let mut feed = Feed(Sha256::new());
        feed.write(b"harness-engine code 1\0");
        feed.write(&sha256);
        feed.write(std::env::consts::ARCH.as_bytes());
        feed.write(b"\0");
        feed.write(std::env::consts::OS.as_bytes());
        feed.write(b"\0");
        // Covers the wasmtime version, the target triple, compiler flags and tunables.
        self.0
            .wasmtime
            .precompile_compatibility_hash()
            .hash(&mut feed);
        feed.0.finalize().into()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engine")
    }
}

/// The one engine configuration.
fn options() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .wasm_component_model(true)
        .wasm_component_model_async(true)
        .wasm_component_model_async_stackful(false)
        .wasm_component_model_gc(false)
        .wasm_gc(false)
        .wasm_function_references(false)
        .wasm_exceptions(false)
        .wasm_threads(false)
        .wasm_shared_everything_threads(false)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .wasm_stack_switching(false)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .memory_init_cow(true);
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HostKey;

    #[tokio::test]
    async fn the_ticker_thread_ends_with_its_engine() {
        let engine = Engine::new(EngineConfig::new(None, HostKey::new([1; 32]))).unwrap();
        let weak = engine.wasmtime().weak();
        drop(engine);
        let end = std::time::Instant::now() + Duration::from_secs(5);
        while weak.upgrade().is_some() {
            assert!(
                std::time::Instant::now() < end,
                "the ticker keeps the engine alive"
            );
            tokio::time::sleep(TICK).await;
        }
    }

    #[test]
    fn cache_keys_differ_by_component() {
        let engine = Engine::new(EngineConfig::new(None, HostKey::new([1; 32]))).unwrap();
        assert_eq!(engine.cache_key([1; 32]), engine.cache_key([1; 32]));
        assert_ne!(engine.cache_key([1; 32]), engine.cache_key([2; 32]));
    }
}
