//! Traces by OTLP, as a collector gets them.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use futures_util::future::join_all;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use sampler_testkit::build::start_event;
use sampler_testkit::program::Launch;
use sampler_testkit::{Program, now_millis, wait_until, workspace_dir};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::landscape::{HOUR, Landscape, PATIENCE};

/// Requests that are sent at the same time.
const CROWD: u64 = 32;

/// A stand-in for a collector, which decodes what it gets.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Exported>>>,
}

#[derive(Clone)]
struct Exported {
    service: String,
    span: Span,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::default();
        let router = Router::new()
            .route("/v1/traces", post(take))
            .with_state(Arc::clone(&spans));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, spans }
    }

    fn spans(&self) -> Vec<Exported> {
        self.spans.lock().unwrap().clone()
    }

    /// The spans with this name, once there are so many.
    async fn named(&self, name: &str, count: usize) -> Vec<Span> {
        let found = || -> Vec<Span> {
            let spans = self.spans().into_iter().map(|exported| exported.span);
            spans.filter(|span| span.name == name).collect()
        };
        let what = format!("{count} spans {name}");
        wait_until(&what, PATIENCE, async || found().len() >= count).await;
        found()
    }
}

async fn take(State(spans): State<Arc<Mutex<Vec<Exported>>>>, body: Bytes) -> StatusCode {
    let request = ExportTraceServiceRequest::decode(body).expect("OTLP in protobuf");
    for of_resource in request.resource_spans {
        let attributes = of_resource.resource.unwrap_or_default().attributes;
        let service = text(&attributes, "service.name").unwrap_or_default();
        for of_scope in of_resource.scope_spans {
            let exported = of_scope.spans.into_iter().map(|span| Exported {
                service: service.clone(),
                span,
            });
            spans.lock().unwrap().extend(exported);
        }
    }
    StatusCode::OK
}

fn value(attributes: &[KeyValue], key: &str) -> Option<Any> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    let AnyValue { value } = found.value.clone()?;
    value
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    match value(attributes, key)? {
        Any::StringValue(text) => Some(text),
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn traced(launch: Launch, url: &str) -> Launch {
    launch
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
}

/// Sends a start that is a part of the trace with this number.
async fn send(world: &Landscape, receiver: &Program, trace: u64, event: &Value) -> u16 {
    let url = format!("{}/v1/events/start", receiver.base_url());
    let parent = format!("00-{trace:032x}-{trace:016x}-01");
    let request = world
        .http
        .post(url)
        .json(event)
        .header("traceparent", parent);
    request.send().await.unwrap().status().as_u16()
}

fn links_to(span: &Span, other: &Span) -> bool {
    let mut links = span.links.iter();
    links.any(|link| link.span_id == other.span_id && link.trace_id == other.trace_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_leads_from_a_request_to_the_commit_it_shared() {
    let (world, collector) = (Landscape::new("otlp").await, Collector::start().await);
    let receiver = traced(world.receiver(), &collector.url);
    let receiver = world.ready(receiver).await;
    let now = now_millis();
    let events: Vec<_> = (1..=CROWD).map(|target| start_event(target, now)).collect();
    let sending = events
        .iter()
        .zip(1..)
        .map(|(event, trace)| send(&world, &receiver, trace, event));
    assert!(join_all(sending).await.iter().all(|status| *status == 201));
    let count = usize::try_from(CROWD).unwrap();
    let requests = collector.named("POST /v1/events/start", count).await;
    let writes = collector.named("write", count).await;
    let commits = collector.named("commit", 1).await;
    let by_id: BTreeMap<_, _> = commits.iter().map(|span| (&span.span_id, span)).collect();
    for trace in 1..=CROWD {
        let trace_id = format!("{trace:032x}");
        let of_trace = |spans: &[Span]| -> Span {
            let found = spans.iter().find(|span| hex(&span.trace_id) == trace_id);
            found.expect("a span of the trace").clone()
        };
        let (request, write) = (of_trace(&requests), of_trace(&writes));
        assert_eq!(hex(&request.parent_span_id), format!("{trace:016x}"));
        assert_eq!(
            text(&request.attributes, "http.route").as_deref(),
            Some("/v1/events/start")
        );
        let status = value(&request.attributes, "http.response.status_code");
        assert_eq!(status, Some(Any::IntValue(201)));
        assert_eq!(write.parent_span_id, request.span_id);
        let commit = write.links.iter().find_map(|link| by_id.get(&link.span_id));
        let commit = commit.expect("a write is linked to its commit");
        assert!(links_to(&write, commit) && links_to(commit, &write));
    }
    let shared: usize = commits.iter().map(|commit| commit.links.len()).sum();
    assert_eq!(shared, count, "each write is in one commit");
    for commit in &commits {
        let mut writes = writes.iter();
        let parent = writes.find(|write| write.span_id == commit.parent_span_id);
        assert_eq!(parent.unwrap().trace_id, commit.trace_id);
    }
    let spans = collector.spans();
    assert!(spans.iter().all(|it| it.service == "sampler-receiver"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_passes_its_trace_on_to_abacus() {
    let (world, collector) = (Landscape::new("otlp_post").await, Collector::start().await);
    let receiver = world.ready_receiver().await;
    let start = now_millis() - 4 * HOUR;
    world.use_between(&receiver, 1, start, start + HOUR).await;
    let worker = traced(world.worker(), &collector.url);
    let worker = worker.start().await.unwrap();
    world.until_complete(1).await;
    let posts = world.abacus.posts();
    let spans = collector.named("post", posts.len()).await;
    let turns = collector.named("turn", 1).await;
    collector.named("Record", 1).await;
    for (post, span) in posts.iter().zip(&spans) {
        let (trace, id) = (hex(&span.trace_id), hex(&span.span_id));
        let expected = format!("00-{trace}-{id}-01");
        assert_eq!(post.traceparent.as_deref(), Some(expected.as_str()));
        let usage = post.json()["dedup_id"].as_str().map(str::to_owned);
        assert_eq!(text(&span.attributes, "usage.id"), usage);
        let status = value(&span.attributes, "http.response.status_code");
        assert_eq!(status, Some(Any::IntValue(202)));
        let turn = turns
            .iter()
            .find(|turn| turn.span_id == span.parent_span_id);
        assert!(turn.is_some(), "a post is a part of a turn");
    }
    let told = fs::read_to_string(workspace_dir().join("docs/operations.md")).unwrap();
    for exported in collector.spans() {
        let name = exported.span.name;
        let is_request = name.contains(' ');
        assert!(is_request || told.contains(&format!("`{name}`")), "{name}");
    }
    drop(worker);
}

/// A collector that is away delays nothing: no answer, and no end.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_holds_up_nothing() {
    let world = Landscape::new("otlp_away").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let receiver = world.ready(traced(world.receiver(), &url)).await;
    for target in 1..=3 {
        let event = start_event(target, now_millis());
        assert_eq!(send(&world, &receiver, target, &event).await, 201);
    }
    receiver.sigterm().unwrap();
    let code = receiver.wait_exit(Duration::from_secs(8)).await;
    assert_eq!(code.unwrap(), 0);
}
