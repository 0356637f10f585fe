//! Precompiled machine code on disk, authenticated.
//!
//! A file is `MAC ‖ code`; the MAC is HMAC-SHA-256 under the host key over the cache key (component,
//! runtime, configuration, target) and the code. Invariants: only bytes whose MAC was verified, in
//! memory, are ever mapped; the directory is the host's alone (0700); files are replaced as a whole.
//! What does not match is recompiled, logged and counted. A precompiled file of a user's is never
//! taken.

use crate::config::HostKey;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use wasmtime::component::Component;

/// Bytes of the MAC.
const MAC: usize = 32;
/// Largest file read.
const MAX_FILE: u64 = 1024 * 1024 * 1024;

pub(crate) struct Cache {
    dir: PathBuf,
    key: HostKey,
}

impl Cache {
    /// Opens or creates the directory, and takes all rights from others.
    pub(crate) fn open(dir: PathBuf, key: HostKey) -> io::Result<Self> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)?;
        let metadata = std::fs::symlink_metadata(&dir)?;
        if !metadata.is_dir() {
            return Err(io::Error::other("it is not a directory"));
        }
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("it belongs to another user"));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700))?;
        }
        Ok(Self { dir, key })
    }

    fn path(&self, key: &[u8; 32]) -> PathBuf {
        self.dir.join(format!("{}.code", hex::encode(key)))
    }

    fn mac(&self, key: &[u8; 32], code: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.0.as_slice()).ok()?;
        mac.update(key);
        mac.update(code);
        Some(mac)
    }

    /// The component's code, if an authentic file holds it.
    pub(crate) fn load(&self, engine: &wasmtime::Engine, key: &[u8; 32]) -> Option<Component> {
        let path = self.path(key);
        let file = match read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                metrics::counter!("harness_code_cache_total", "outcome" => "miss").increment(1);
                return None;
            }
            Err(error) => return reject(&path, &error.to_string()),
        };
        let Some((mac, code)) = file.split_at_checked(MAC) else {
            return reject(&path, "it is truncated");
        };
        // Constant time.
        if self.mac(key, code)?.verify_slice(mac).is_err() {
            return reject(&path, "its authentication code is wrong");
        }
        match map(engine, code) {
            Ok(component) => {
                metrics::counter!("harness_code_cache_total", "outcome" => "hit").increment(1);
                Some(component)
            }
            Err(error) => reject(&path, &error.to_string()),
        }
    }

    /// Writes the component's code. A failure costs the next start a compilation and nothing else.
    pub(crate) fn store(&self, component: &Component, key: &[u8; 32]) {
        let write = || -> io::Result<()> {
            let code = component.serialize().map_err(io::Error::other)?;
            let mac = self
                .mac(key, &code)
                .ok_or_else(|| io::Error::other("no key"))?
                .finalize()
                .into_bytes();
            // A name of its own: two loads of one component may write at the same time.
            let unique = uuid::Uuid::now_v7();
            let temporary = self.dir.join(format!("{unique}.tmp"));
            let written = (|| {
                let mut file = std::fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&temporary)?;
                file.write_all(&mac)?;
                file.write_all(&code)?;
                file.sync_all()?;
                std::fs::rename(&temporary, self.path(key))
            })();
            if written.is_err() {
                let _ = std::fs::remove_file(&temporary);
            }
            written
        };
        if let Err(error) = write() {
            tracing::warn!(dir = %self.dir.display(), %error, "compiled code could not be cached");
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    if file.metadata()?.len() > MAX_FILE {
        return Err(io::Error::other("it is too large"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn reject(path: &Path, why: &str) -> Option<Component> {
    tracing::warn!(path = %path.display(), why, "cached code is not used; the component is compiled again");
    metrics::counter!("harness_code_cache_total", "outcome" => "rejected").increment(1);
    None
}

/// Maps authenticated code.
#[allow(unsafe_code)]
fn map(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: `deserialize` runs what it is given, so the bytes must come from `serialize` of this
    // wasmtime and must not have been altered. The only caller has just verified, over these very
    // bytes in memory, a MAC under the host key, which only `store` computes, over the output of
    // `serialize` and a key that covers runtime version, configuration and target. The bytes are
    // copied, not mapped from the file, so that a later change of the file changes nothing.
    unsafe { Component::deserialize(engine, code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn component(engine: &wasmtime::Engine) -> Component {
        // The binary form of an empty component.
        Component::new(engine, b"\0asm\x0d\0\x01\0").unwrap()
    }

    fn cache(dir: &Path, key: u8) -> Cache {
        Cache::open(dir.to_path_buf(), HostKey::new([key; 32])).unwrap()
    }

    #[test]
    fn authentic_code_is_mapped_and_anything_else_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let engine = wasmtime::Engine::default();
        let own = cache(dir.path(), 1);
        assert!(own.load(&engine, &KEY).is_none());
        own.store(&component(&engine), &KEY);
        assert!(own.load(&engine, &KEY).is_some());

        let other_host = cache(dir.path(), 2);
        assert!(
            other_host.load(&engine, &KEY).is_none(),
            "another host's key"
        );
        std::fs::copy(own.path(&KEY), own.path(&[8; 32])).unwrap();
        assert!(
            own.load(&engine, &[8; 32]).is_none(),
            "another component's code"
        );

        let good = std::fs::read(own.path(&KEY)).unwrap();
        for (what, bytes) in [
            ("a flipped bit of the code", {
                let mut bytes = good.clone();
                *bytes.last_mut().unwrap() ^= 1;
                bytes
            }),
            ("a flipped bit of the code's MAC", {
                let mut bytes = good.clone();
                bytes[0] ^= 1;
                bytes
            }),
            ("a truncated file", good[..good.len() / 2].to_vec()),
            ("a file shorter than a MAC", good[..MAC - 1].to_vec()),
            ("precompiled code of a user", good[MAC..].to_vec()),
            ("an empty file", vec![]),
        ] {
            std::fs::write(own.path(&KEY), bytes).unwrap();
            assert!(own.load(&engine, &KEY).is_none(), "{what}");
        }
        own.store(&component(&engine), &KEY);
        assert!(own.load(&engine, &KEY).is_some(), "a bad file is replaced");
    }

    #[test]
    fn the_directory_is_the_hosts_alone() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        let _ = cache(&inner, 1);
        let mode = || std::fs::metadata(&inner).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o700);
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o755)).unwrap();
        let _ = cache(&inner, 1);
        assert_eq!(mode(), 0o700);
    }
}
