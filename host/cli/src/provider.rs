//! `harness provider inspect` and `harness config check`: what components ask for, against what
//! the configuration grants.
//!
//! Both compile the component and have it describe itself, inside the sandbox of a serving host,
//! with nothing it could reach. Neither touches a data directory.

use crate::config::{self, Settings};
use crate::failure::{Failure, Kind};
use crate::text::{printable, printable_line};
use anyhow::Context;
use bytes::Bytes;
use harness_core::ids::HarnessId;
use harness_engine::{
    ComponentSource, Engine, EngineConfig, Grants, HostKey, InspectReport, Limits, ProviderSpec,
};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// Shows one component. With a configuration, against the grants of the provider that names it.
///
/// # Errors
/// It cannot be read, or could not be loaded with those grants.
pub(crate) fn inspect(file: &Path, config: Option<&Path>) -> Result<(), Failure> {
    let configured = match config {
        Some(path) => Some(config::load(Some(path))?),
        None => None,
    };
    let specs: Vec<&ProviderSpec> = configured
        .iter()
        .flat_map(|s| s.providers.iter())
        .filter(|spec| is_from(spec, file))
        .collect();
    if configured.is_some() && specs.is_empty() {
        return Err(Failure::new(
            Kind::Configuration,
            format_args!(
                "no [[provider]] of the configuration names {}\n    remedy: add one, or leave --config out to see what the component asks for",
                file.display()
            ),
        ));
    }
    let limit = specs.first().map_or_else(
        || Limits::default().component_size,
        |spec| spec.limits.component_size,
    );
    let bytes = read(file, limit)?;
    run(async move {
        let engine = engine()?;
        let mut loadable = true;
        let defaults = Limits::default();
        let cases: Vec<(Option<&Grants>, &Limits)> = if specs.is_empty() {
            vec![(None, &defaults)]
        } else {
            specs
                .iter()
                .map(|spec| (Some(&spec.grants), &spec.limits))
                .collect()
        };
        for (grants, limits) in cases {
            let report = engine.inspect(bytes.clone(), grants, limits).await;
            println!("component  {}", file.display());
            print!("{}", printable(&report.to_string()));
            for grant in grants.map(Grants::describe).unwrap_or_default() {
                println!(
                    "granted    {} {}: {}",
                    grant.interface, grant.name, grant.allows
                );
            }
            loadable &= report.problems.is_empty();
        }
        if loadable {
            Ok(())
        } else {
            Err(Failure::new(
                Kind::Failed,
                "the component cannot be loaded; see the problems above",
            ))
        }
    })
}

/// Checks a configuration and every component in it.
///
/// # Errors
/// Everything that would keep a host from serving it as written.
pub(crate) fn check(config: Option<&Path>) -> Result<(), Failure> {
    let settings = config::load(config)?;
    settings
        .check_exposure()
        .map_err(|refusal| Failure::new(Kind::Configuration, refusal))?;
    let count = settings.providers.len();
    let problems = run(async move { components(&settings).await })?;
    if !problems.is_empty() {
        return Err(Failure::new(
            Kind::Configuration,
            format_args!("the configuration cannot be used\n{}", problems.join("\n")),
        ));
    }
    match count {
        0 => println!(
            "the configuration is good; it names no provider, so the embedded one is served"
        ),
        1 => println!("the configuration is good; 1 provider can be loaded"),
        n => println!("the configuration is good; {n} providers can be loaded"),
    }
    Ok(())
}

async fn components(settings: &Settings) -> Result<Vec<String>, Failure> {
    let engine = engine()?;
    let mut problems = Vec::new();
    let mut ids: BTreeMap<HarnessId, String> = BTreeMap::new();
    for spec in &settings.providers {
        let name = spec.source.name();
        let bytes = match &spec.source {
            ComponentSource::Bytes { bytes, .. } => bytes.clone(),
            ComponentSource::File(path) => match read(path, spec.limits.component_size) {
                Ok(bytes) => bytes,
                Err(failure) => {
                    problems.push(failure.to_string());
                    continue;
                }
            },
        };
        let report = engine
            .inspect(bytes, Some(&spec.grants), &spec.limits)
            .await;
        problems.extend(
            report
                .problems
                .iter()
                .map(|problem| format!("{name}: {}", printable_line(&problem.to_string()))),
        );
        problems.extend(pin_problem(spec, &report));
        let id = spec.id.clone().or_else(|| report.info.map(|info| info.id));
        if let Some(id) = id
            && let Some(other) = ids.insert(id.clone(), name.clone())
        {
            problems.push(format!("{name}: its id `{id}` is also the one of {other}\n    remedy: give one of them another `id`"));
        }
    }
    Ok(problems)
}

fn pin_problem(spec: &ProviderSpec, report: &InspectReport) -> Option<String> {
    let pinned = spec
        .sha256
        .as_ref()
        .filter(|pinned| **pinned != report.sha256)?;
    Some(format!(
        "{}: its SHA-256 is {}, but {pinned} is pinned\n    remedy: check the file, or correct `sha256`",
        spec.source.name(),
        report.sha256
    ))
}

fn is_from(spec: &ProviderSpec, file: &Path) -> bool {
    let ComponentSource::File(path) = &spec.source else {
        return false;
    };
    match (path.canonicalize(), file.canonicalize()) {
        (Ok(configured), Ok(asked)) => configured == asked,
        _ => false,
    }
}

fn read(file: &Path, limit: u64) -> Result<Bytes, Failure> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(file)
        .and_then(|file| file.take(limit.saturating_add(1)).read_to_end(&mut bytes));
    read.with_context(|| format!("{} cannot be read", file.display()))?;
    if bytes.len() as u64 > limit {
        let message = format!(
            "{} is larger than {limit} bytes\n    remedy: raise the limit `component_size`",
            file.display()
        );
        return Err(Failure::new(Kind::Failed, message));
    }
    Ok(Bytes::from(bytes))
}

/// An engine that keeps nothing.
fn engine() -> Result<Engine, Failure> {
    Ok(
        Engine::new(EngineConfig::new(None, HostKey::new(rand::random())))
            .context("the engine cannot start")?,
    )
}

fn run<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot start")?;
    runtime.block_on(work)
}
