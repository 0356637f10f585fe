//! Logs to standard error, traces over OTLP when an endpoint is set, metrics for `/metrics`.
//!
//! Invariants
//! - Set up before the async runtime starts: the OTLP exporter has a thread and a blocking client
//!   of its own, and exports go on while the runtime drains.
//! - What was recorded is flushed when [`Telemetry`] is finished.
//!
//! Deliberately not here: what is logged. No caller logs secrets or tokens; this module cannot
//! tell them apart from other texts.

use crate::args::LogFormat;
use crate::failure::{Failure, Kind};
use anyhow::Context;
use harness_api::JoinTrace;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::sync::Arc;
use std::time::Duration;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

/// How often old samples of histograms are dropped.
const UPKEEP: Duration = Duration::from_secs(5);

/// Everything that observes the process.
pub(crate) struct Telemetry {
    traces: Option<SdkTracerProvider>,
    metrics: PrometheusHandle,
}

impl Telemetry {
    /// Starts logging, tracing and metrics for the whole process; once.
    ///
    /// # Errors
    /// A log filter or an OTLP setting of the environment cannot be used.
    pub(crate) fn start(format: LogFormat) -> Result<Self, Failure> {
        let filter = filter()?;
        let lines = match format {
            LogFormat::Text => fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(false)
                .boxed(),
            LogFormat::Json => fmt::layer().json().with_writer(std::io::stderr).boxed(),
        };
        let traces = traces()?;
        let spans = traces
            .as_ref()
            .map(|p| tracing_opentelemetry::layer().with_tracer(p.tracer("harness")));
        tracing_subscriber::registry()
            .with(filter)
            .with(spans)
            .with(lines)
            .try_init()
            .context("logging cannot be started")?;
        let metrics = PrometheusBuilder::new()
            .install_recorder()
            .context("metrics cannot be started")?;
        Ok(Self { traces, metrics })
    }

    /// Renders the metrics in the Prometheus text format.
    pub(crate) fn metrics(&self) -> PrometheusHandle {
        self.metrics.clone()
    }

    /// Makes a request's span a child of the caller's, when spans are exported at all.
    pub(crate) fn join_trace(&self) -> Option<JoinTrace> {
        self.traces.as_ref()?;
        let propagator = TraceContextPropagator::new();
        Some(Arc::new(
            move |span: &tracing::Span, headers: &http::HeaderMap| {
                // A span without a parent is all that a failure costs.
                let _ = span.set_parent(propagator.extract(&Headers(headers)));
            },
        ))
    }

    /// Keeps histograms small for as long as it is polled.
    pub(crate) async fn upkeep(metrics: PrometheusHandle) {
        let mut tick = tokio::time::interval(UPKEEP);
        loop {
            tick.tick().await;
            metrics.run_upkeep();
        }
    }

    /// Exports what is left.
    pub(crate) fn finish(self) {
        if let Some(traces) = self.traces
            && let Err(error) = traces.shutdown()
        {
            tracing::warn!(%error, "the last traces could not be exported");
        }
    }
}

/// Request headers as the propagator reads them.
struct Headers<'a>(&'a http::HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

/// `HARNESS_LOG`, else `RUST_LOG`, else information and above.
fn filter() -> Result<EnvFilter, Failure> {
    let variable = |name: &'static str| {
        std::env::var(name)
            .ok()
            .filter(|v| !v.is_empty())
            .map(|v| (name, v))
    };
    let Some((name, directives)) = variable("HARNESS_LOG").or_else(|| variable("RUST_LOG")) else {
        return Ok(EnvFilter::new("info"));
    };
    EnvFilter::try_new(&directives).map_err(|error| {
        Failure::new(
            Kind::Configuration,
            format_args!(
                "{name} is not a log filter: {error}\n    remedy: write it like \"info\" or \"warn,harness_engine=debug\""
            ),
        )
    })
}

/// Exports spans when the environment names a collector; the OTEL_* variables decide the rest.
fn traces() -> Result<Option<SdkTracerProvider>, Failure> {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !set("OTEL_EXPORTER_OTLP_ENDPOINT") && !set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
        return Ok(None);
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().build().map_err(|error| {
        Failure::new(
            Kind::Configuration,
            format_args!("traces cannot be exported: {error}\n    remedy: check the OTEL_EXPORTER_OTLP_* variables; the protocol is http/protobuf"),
        )
    })?;
    // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES are read by the builder and win.
    let mut resource = Resource::builder();
    if !set("OTEL_SERVICE_NAME") {
        resource = resource.with_service_name("harness");
    }
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build())
        .build();
    Ok(Some(provider))
}
