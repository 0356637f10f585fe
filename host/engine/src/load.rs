//! From a file to a described component: read, pin, pre-flight, compile, link, describe.
//!
//! Nothing here runs on an async thread for long: files, parsing and compilation go to blocking
//! threads.

use crate::config::{ComponentSource, ProviderSpec};
use crate::convert;
use crate::draft::NoSession;
use crate::engine::{Code, Engine};
use crate::installed::{Installed, Linked};
use crate::instance::ask;
use crate::preflight::{LoadError, Preflight, preflight};
use bytes::Bytes;
use harness_core::ids::{HarnessId, ProjectId};
use harness_core::provider::{HarnessInfo, InstanceHost};
use harness_core::state_store::StateStore;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::sync::Arc;

/// What is known of a component besides its code; filled as far as loading came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) sha256: String,
    pub(crate) contract: Option<String>,
    /// The id that the component declares, whatever it is installed as.
    pub(crate) declares: Option<HarnessId>,
    pub(crate) cached: bool,
}

/// The bytes of a component, bounded.
pub(crate) async fn read(source: &ComponentSource, limit: u64) -> Result<Bytes, LoadError> {
    let component = source.name();
    let too_large = |bytes| LoadError::TooLarge {
        component: source.name(),
        bytes,
        limit,
    };
    let bytes = match source {
        ComponentSource::Bytes { bytes, .. } => bytes.clone(),
        ComponentSource::File(path) => {
            let path = path.clone();
            let read = tokio::task::spawn_blocking(move || -> std::io::Result<Vec<u8>> {
                let file = std::fs::File::open(path)?;
                if !file.metadata()?.is_file() {
                    return Err(std::io::Error::other("it is not a file"));
                }
                let mut bytes = Vec::new();
                file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
                Ok(bytes)
            });
            let unreadable = |cause: String| LoadError::Unreadable {
                component: component.clone(),
                cause,
            };
            let read = read.await.map_err(|e| unreadable(e.to_string()))?;
            Bytes::from(read.map_err(|e| unreadable(e.to_string()))?)
        }
    };
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

/// Digest and pre-flight of a component. `memory`: the bytes its stores may have.
pub(crate) async fn check(
    bytes: Bytes,
    grants: Option<crate::grants::Grants>,
    memory: u64,
) -> Result<([u8; 32], Result<Preflight, LoadError>), LoadError> {
    tokio::task::spawn_blocking(move || {
        let sha256: [u8; 32] = Sha256::digest(&bytes).into();
        (sha256, preflight(&bytes, grants.as_ref(), Some(memory)))
    })
    .await
    .map_err(|error| LoadError::Malformed(error.to_string()))
}

/// Instantiates without `run` and asks the component to describe itself (N1).
pub(crate) async fn describe(
    engine: &Engine,
    linked: Linked,
    spec: &ProviderSpec,
    state: Arc<dyn StateStore>,
) -> Result<Described, LoadError> {
    let provisional = spec.id.clone().or_else(|| provisional(&spec.source));
    let failed = |text: String| LoadError::Describe(text);
    let (Some(id), Some(project)) = (provisional, default_project()) else {
        return Err(failed("no id could be made".to_owned()));
    };
    let installed = Arc::new(Installed::new(engine, linked, spec, id, state));
    let permit = engine
        .instance_permit()
        .ok_or_else(|| failed("too many instances are live".to_owned()))?;
    let host = NoSession::new(project);
    let scope = host.scope();
    let host: Arc<dyn InstanceHost> = Arc::new(host);
    let info = ask(installed, permit, scope, host)
        .await
        .map_err(|e| failed(e.to_string()))?;
    let declares = info.id.parse::<HarnessId>();
    let declares = declares.map_err(|e| failed(e.to_string()))?;
    let info = convert::harness_info(info, spec.id.as_ref()).map_err(failed)?;
    Ok(Described { info, declares })
}

/// What a component says of itself.
pub(crate) struct Described {
    /// Under the id that it is installed as.
    pub(crate) info: HarnessInfo,
    /// The id that it declares.
    pub(crate) declares: HarnessId,
}

/// The project of detection (G8).
pub(crate) fn default_project() -> Option<ProjectId> {
    "default".parse().ok()
}

/// An id for a component that has not said its own, made of its file name.
pub(crate) fn provisional(source: &ComponentSource) -> Option<HarnessId> {
    let name = match source {
        ComponentSource::File(path) => path
            .file_stem()
            .map(|s| s.to_string_lossy().into_owned())
            .unwrap_or_default(),
        ComponentSource::Bytes { name, .. } => name.clone(),
    };
    let slug: String = name
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .skip_while(|c| *c == '-')
        .take(60)
        .collect();
    let slug = if slug.is_empty() {
        "component".to_owned()
    } else {
        slug
    };
    format!("unidentified/{slug}").parse().ok()
}

/// Loads a component. `facts` tells how far it came.
///
/// # Errors
/// The first problem.
pub(crate) async fn load(
    engine: &Engine,
    spec: &ProviderSpec,
    state: Arc<dyn StateStore>,
    facts: &mut Facts,
) -> Result<Arc<Installed>, LoadError> {
    let bytes = read(&spec.source, spec.limits.component_size).await?;
    let (sha256, report) =
        check(bytes.clone(), Some(spec.grants.clone()), spec.limits.memory).await?;
    facts.sha256 = hex::encode(sha256);
    if let Some(pinned) = &spec.sha256
        && !pinned.eq_ignore_ascii_case(&facts.sha256)
    {
        return Err(LoadError::Digest {
            component: spec.source.name(),
            expected: pinned.clone(),
            actual: facts.sha256.clone(),
        });
    }
    let report = report?;
    facts.contract = report.contract.clone();
    if let Some(problem) = report.problems.into_iter().next() {
        return Err(problem);
    }
    let Code { component, cached } = engine
        .code(bytes, sha256, spec.limits.compile)
        .await
        .map_err(LoadError::Compile)?;
    facts.cached = cached;
    let linked = Linked::new(engine, &component, &spec.grants)?;
    let Described { info, declares } =
        describe(engine, linked.clone(), spec, state.clone()).await?;
    facts.declares = Some(declares);
    let installed = Installed::new(engine, linked, spec, info.id.clone(), state);
    installed.described(info);
    Ok(Arc::new(installed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provisional_ids_are_ids() {
        for (file, id) in [
            ("/x/Codex Agent.wasm", "unidentified/codex-agent"),
            ("/x/---.wasm", "unidentified/component"),
            ("/x/планер.wasm", "unidentified/component"),
        ] {
            let id: HarnessId = id.parse().unwrap();
            assert_eq!(
                provisional(&ComponentSource::File(file.into())),
                Some(id),
                "{file}"
            );
        }
    }

    #[tokio::test]
    async fn files_beyond_the_limit_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("big.wasm");
        std::fs::write(&path, vec![0; 2000]).unwrap();
        let source = ComponentSource::File(path);
        assert!(matches!(
            read(&source, 1999).await,
            Err(LoadError::TooLarge { limit: 1999, .. })
        ));
        assert_eq!(read(&source, 2000).await.unwrap().len(), 2000);
        let missing = ComponentSource::File(dir.path().join("missing.wasm"));
        assert!(matches!(
            read(&missing, 10).await,
            Err(LoadError::Unreadable { .. })
        ));
        let directory = ComponentSource::File(dir.path().to_path_buf());
        assert!(matches!(
            read(&directory, 10).await,
            Err(LoadError::Unreadable { .. })
        ));
    }
}
