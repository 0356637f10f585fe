//! Loading: digest, cache, grants, ids, inspection.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // a failed test

mod support;

use harness_core::admin::{AdminError, ProviderAdmin};
use harness_core::provider::{Harnesses, ProviderState};
use harness_engine::{
    ComponentSource, Engine, EngineConfig, HostKey, LoadError, ProviderSpec, Registry,
};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;
use support::*;

fn registry(cache: Option<&Path>) -> Registry {
    let engine = Engine::new(EngineConfig::new(
        cache.map(Into::into),
        HostKey::new([3; 32]),
    ))
    .unwrap();
    Registry::new(engine, Arc::new(MemoryState::default()))
}

fn digest() -> String {
    hex::encode(Sha256::digest(puppet()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_load_comes_from_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let first = registry(Some(&cache)).load(spec(&[])).await.unwrap();
    let second = registry(Some(&cache)).load(spec(&[])).await.unwrap();
    assert_eq!((first.cached, second.cached), (false, true));
    assert_eq!(
        (second.sha256.clone(), second.contract.as_deref()),
        (digest(), Some("0.1.0"))
    );
    for file in std::fs::read_dir(&cache).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let third = registry(Some(&cache)).load(spec(&[])).await.unwrap();
    assert_eq!((third.cached, third.state), (false, ProviderState::Ready));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_digest_than_the_pinned_one_refuses_to_load() {
    let registry = registry(None);
    let mut pinned = spec(&[]);
    pinned.sha256 = Some("0".repeat(64));
    pinned.id = Some("acme/pinned".parse().unwrap());
    let refused = registry.load(pinned.clone()).await.unwrap_err();
    assert!(
        matches!(&refused, LoadError::Digest { actual, .. } if *actual == digest()),
        "{refused:?}"
    );
    let report = registry.report(&"acme/pinned".parse().unwrap()).unwrap();
    assert_eq!(
        (report.state, report.sha256),
        (ProviderState::Failed, digest())
    );
    pinned.sha256 = Some(digest().to_uppercase());
    pinned.id = Some("acme/good".parse().unwrap());
    assert_eq!(
        registry.load(pinned).await.unwrap().state,
        ProviderState::Ready
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_component_is_installed_under_several_ids() {
    let registry = registry(None);
    for id in ["acme/one", "acme/two"] {
        let mut spec = spec(&[]);
        spec.id = Some(id.parse().unwrap());
        let report = registry.load(spec).await.unwrap();
        assert_eq!(report.id.as_str(), id);
        let info = registry.get(&report.id).unwrap().info().unwrap();
        assert_eq!(info.id.as_str(), id);
    }
    let own = registry.load(spec(&[])).await.unwrap();
    assert_eq!(own.id.as_str(), "test/puppet");
    let twice = registry.load(spec(&[])).await.unwrap_err();
    assert!(matches!(twice, LoadError::Duplicate(_)), "{twice:?}");
    assert_eq!(
        registry.list().len(),
        4,
        "the refused one is listed as failed under its file's name"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_imported_must_be_granted_and_the_message_says_how() {
    let registry = registry(None);
    let mut bare = spec(&[]);
    bare.grants = Default::default();
    let refused = registry.load(bare).await.unwrap_err();
    assert_eq!(
        refused,
        LoadError::NotGranted {
            interface: "state".into()
        }
    );
    assert!(
        refused.to_string().contains("[provider.grants.state]"),
        "{refused}"
    );
    let id = "unidentified/puppet".parse().unwrap();
    assert_eq!(registry.report(&id).unwrap().state, ProviderState::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inspection_describes_and_installs_nothing() {
    let engine = shared_engine();
    let report = engine.inspect(puppet(), None, &limits()).await;
    assert_eq!(report.info.as_ref().unwrap().id.as_str(), "test/puppet");
    assert!(report.problems.is_empty(), "{report}");
    let text = report.to_string();
    for expected in [
        "harness:provider/process@0.1.0",
        "with a grant",
        &digest(),
        "it can be loaded",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
    let report = engine
        .inspect(puppet(), Some(&Default::default()), &limits())
        .await;
    assert!(
        report.problems.iter().any(|p| p.code() == "not_granted"),
        "{report}"
    );
    let report = engine
        .inspect(puppet().slice(..1000), None, &limits())
        .await;
    assert_eq!(
        report
            .problems
            .iter()
            .map(LoadError::code)
            .collect::<Vec<_>>(),
        ["truncated"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn installing_checks_the_digest_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hello.txt");
    std::fs::write(&path, "hello").unwrap();
    let registry = registry(None);
    let path = path.to_str().unwrap();
    let refused = registry.install(path, &"0".repeat(64)).await.unwrap_err();
    assert!(
        matches!(&refused, AdminError::Refused(text) if text.contains("pinned")),
        "{refused:?}"
    );
    let spec = ProviderSpec::new(ComponentSource::File(path.into()));
    assert_eq!(
        registry.load(spec).await.unwrap_err().code(),
        "not_a_component"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compilation_has_a_bound() {
    let mut spec = spec(&[]);
    spec.limits.compile = std::time::Duration::ZERO;
    let refused = registry(None).load(spec).await.unwrap_err();
    assert!(
        matches!(&refused, LoadError::Compile(text) if text.contains("longer")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_beyond_its_size_limit_is_not_loaded() {
    let mut spec = spec(&[]);
    spec.limits.component_size = 1000;
    assert_eq!(
        registry(None).load(spec).await.unwrap_err().code(),
        "component_too_large"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_limit_below_what_it_begins_with_is_told_by_load_and_inspection() {
    let needs = harness_engine::preflight(&puppet(), None, None)
        .unwrap()
        .memory;
    let mut spec = spec(&[]);
    spec.limits.memory = needs - 1;
    let registry = Registry::new(shared_engine(), Arc::new(MemoryState::default()));
    let refused = registry.load(spec.clone()).await.unwrap_err();
    assert_eq!(refused.code(), "memory_limit");
    let text = refused.to_string();
    assert!(
        text.contains("[provider.limits]") && text.contains(&needs.to_string()),
        "{text}"
    );
    let report = shared_engine()
        .inspect(puppet(), Some(&spec.grants), &spec.limits)
        .await;
    assert_eq!(report.problems, [refused]);
    // What is counted is what a store counts: one byte more, and it is instantiated.
    spec.limits.memory = needs;
    let loaded = registry.load(spec).await;
    assert!(
        !matches!(&loaded, Err(error) if error.to_string().contains("instantiat")),
        "{loaded:?}"
    );
}
