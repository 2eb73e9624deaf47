//! The part of the SDK's interface that the newsfeed uses, implemented with `tracing-opentelemetry`
//! and OpenTelemetry's batch exporter over OTLP/gRPC, as their documentation shows it.

#[path = "../marked.rs"]
pub mod marked;
pub mod tower;
#[path = "../tracked.rs"]
pub mod tracked;
#[path = "../tradeoff.rs"]
pub mod tradeoff;

pub use tradeoff::baggage;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;

pub use stroboscope_bench_macros::instrument as trace;
pub use tracing::{Span, info_span as span};

/// Name of the environment variable with the URL that spans are exported to.
pub const ENV_COLLECTOR: &str = "STROBOSCOPE_COLLECTOR";
/// Name of an environment variable of the SDK. Ignored here.
pub const ENV_BURST_CONFIG: &str = "STROBOSCOPE_BURST_CONFIG";
/// Name of an environment variable of the SDK. Ignored here.
pub const ENV_SAMPLE: &str = "STROBOSCOPE_SAMPLE";
/// Name of the environment variable that overrides the service name.
pub const ENV_SERVICE: &str = "STROBOSCOPE_SERVICE";

/// The reason why [`init`] could not start exporting.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The exporter could not be built.
    #[error("exporter: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    /// The runtime of the exporter's connection could not be started.
    #[error("runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// The process already has a global `tracing` subscriber.
    #[error(transparent)]
    Taken(#[from] tracing::subscriber::SetGlobalDefaultError),
}

/// Exports spans until it is dropped. The drop exports the spans that remain.
#[derive(Debug)]
pub struct Guard {
    provider: SdkTracerProvider,
    /// Runs the exporter's connection.
    _runtime: tokio::runtime::Runtime,
}

impl Drop for Guard {
    fn drop(&mut self) {
        // OpenTelemetry's SDK itself logs spans that it could not export.
        let _ = self.provider.shutdown();
    }
}

/// Starts the export of spans of level INFO and above. The spans of tonic and hyper have lower
/// levels and are not exported.
///
/// # Errors
/// The runtime or the exporter cannot be made, or the process already has a global `tracing`
/// subscriber.
pub fn init(service: &str) -> Result<Guard, InitError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let inside = runtime.enter();
    let endpoint = std::env::var(ENV_COLLECTOR).unwrap_or_default();
    let service = std::env::var(ENV_SERVICE).unwrap_or_else(|_| service.to_owned());
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name(service).build())
        .build();
    drop(inside);
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("newsfeed"));
    let subscriber = tracing_subscriber::registry()
        .with(LevelFilter::INFO)
        .with(layer);
    tracing::subscriber::set_global_default(subscriber)?;
    Ok(Guard {
        provider,
        _runtime: runtime,
    })
}

/// Runs futures in spans.
pub trait FutureExt: tracing::Instrument {
    /// Runs the future in `span`.
    fn in_span(self, span: Span) -> tracing::instrument::Instrumented<Self> {
        self.instrument(span)
    }

    /// Runs the future in the span that is current at this call.
    fn in_current_span(self) -> tracing::instrument::Instrumented<Self> {
        tracing::Instrument::in_current_span(self)
    }
}

impl<F: Future> FutureExt for F {}
