//! The clients over real connections, against servers that answer, hang, break off or are away.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod cloud_events;
mod confirm;
mod hostile;
mod tokens;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use sampler_domain::{
    Contract, Delivery, Id, Interval, Measures, Span, SpanId, StartEvent, Target, Timestamp, Usage,
};
use sampler_service::oauth::{CaBundle, HttpOptions};
use sampler_upstream::{
    Answer, ClientOptions, CloudEvents, EventAttributes, FindUrl, HttpCollector, LookupResult,
    Mapped, Mapping, Provisioning, Sought, Upstream,
};
use tokio::net::TcpListener;

const NOW: Timestamp = Timestamp::clamped(1_773_144_000_000);

fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

fn usage() -> Usage {
    let target = Target::from_store(["o", "s", "c", "r", "p", "i"]);
    let event = StartEvent {
        id: None,
        timestamp: NOW,
        target,
        measures: Measures::default(),
    };
    let span = Span::open(SpanId::new(NOW, 1), event, NOW);
    let (start, end) = (NOW, NOW.plus(3_600_000));
    let delivery = Delivery {
        interval: Interval { start, end },
        usage_guid: "guid".to_owned(),
        is_again: false,
    };
    Usage::new(&span, &delivery)
}

fn options(address: SocketAddr) -> ClientOptions {
    ClientOptions {
        url: format!("http://{address}").parse().unwrap(),
        http: HttpOptions {
            timeout: Duration::from_millis(500),
            skip_ssl_validation: false,
            authorities: CaBundle::default(),
        },
        tokens: None,
    }
}

async fn serve(router: Router) -> ClientOptions {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = options(listener.local_addr().unwrap());
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    options
}

/// Where nobody listens.
async fn nowhere() -> ClientOptions {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    options(listener.local_addr().unwrap())
}

async fn collector(router: Router) -> HttpCollector {
    HttpCollector::new(&serve(router).await).unwrap()
}

/// An upstream of CloudEvents, where usages can be found.
fn cloud_events(options: &ClientOptions) -> CloudEvents {
    let attributes = EventAttributes::new("urn:a b", "sampler.usage");
    let events = CloudEvents::new(options, attributes, Contract::Forever).unwrap();
    let base = options.url.join("/").unwrap();
    let find = FindUrl::new(&format!("{base}find?id={{id}}&source={{source}}"));
    events.found_at(Some(find.unwrap()), Duration::ZERO)
}

async fn find(upstream: &CloudEvents) -> LookupResult {
    let sought = Sought {
        usage_guid: "u/1",
        location: "",
    };
    upstream.look_up(sought, NOW).await
}

/// Why a post is tried again.
#[track_caller]
fn tried_again(answer: Answer) -> String {
    match answer {
        Answer::TryAgain { after: None, error } => error,
        other => panic!("{other:?}"),
    }
}

/// The head of a request.
type Asked = (Method, Uri, HeaderMap);

/// The ports from which a collector is asked that answers so.
async fn noting_ports(
    answer: impl Fn(Asked, String) -> StatusCode + Clone + Send + Sync + 'static,
) -> (HttpCollector, Arc<Mutex<BTreeSet<u16>>>) {
    let ports = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&ports);
    let router = Router::new().fallback(
        move |ConnectInfo(peer): ConnectInfo<SocketAddr>, asked: Asked, body: String| async move {
            seen.lock().unwrap().insert(peer.port());
            answer(asked, body)
        },
    );
    (collector(router).await, ports)
}

#[tokio::test]
async fn usages_are_posted_as_json_over_connections_that_are_kept() {
    let (collector, ports) = noting_ports(|(method, uri, headers), body| {
        let asked = format!("{method} {uri}");
        assert_eq!(asked, "POST /v1/metering/collected/usage");
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(body, serde_json::to_string(&usage()).unwrap());
        StatusCode::ACCEPTED
    })
    .await;
    for _ in 0..20 {
        assert_eq!(collector.post(&usage(), NOW).await.answer, Answer::Accepted);
    }
    assert_eq!(ports.lock().unwrap().len(), 1, "one connection for all");
}

#[tokio::test]
async fn an_answer_is_read_with_its_headers_and_the_start_of_its_body() {
    let answers = Arc::new(AtomicUsize::new(0));
    let router = Router::new().fallback(move || async move {
        match answers.fetch_add(1, Ordering::Relaxed) {
            0 => (
                StatusCode::TOO_MANY_REQUESTS,
                [("retry-after", "17")],
                String::new(),
            ),
            1 => (StatusCode::BAD_REQUEST, [("x", "y")], "x".repeat(100_000)),
            _ => {
                let body = r#"{"name":"invalid schema","pad":"#.to_owned();
                let body = body + &format!("\"{}\"}}", "x".repeat(7_000));
                (StatusCode::BAD_REQUEST, [("x", "y")], body)
            }
        }
    });
    let collector = collector(router).await;
    let after = Duration::from_secs(17);
    let answer = collector.post(&usage(), NOW).await.answer;
    assert_eq!(answer, Answer::Wait { after });
    for error in ["Abacus answered 400", "Abacus answered 400: invalid schema"] {
        let error = error.to_owned();
        let answer = collector.post(&usage(), NOW).await.answer;
        assert_eq!(answer, Answer::Refused { error });
    }
}

#[tokio::test]
async fn every_answer_tells_the_time_and_dates_in_it_are_held_against_that() {
    let date = ("date", "Tue, 10 Mar 2026 11:50:00 GMT");
    let retry_after = ("retry-after", "Tue, 10 Mar 2026 11:50:20 GMT");
    // One from a cache has an age.
    for (age, told) in [
        (("x", ""), Some(NOW.plus(-600_000))),
        (("age", "600"), None),
    ] {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let router =
            Router::new().fallback(move || async move { (status, [date, retry_after, age]) });
        let posted = collector(router).await.post(&usage(), NOW).await;
        assert_eq!(posted.date, told);
        let after = Duration::from_secs(20);
        assert!(told.is_none() || posted.answer == Answer::Wait { after });
    }
}

/// Fault 2 of the original: there was no time limit on posts.
#[tokio::test]
async fn fault_2_an_abacus_that_hangs_is_left_after_the_time_limit() {
    let router = Router::new().fallback(std::future::pending::<StatusCode>);
    let collector = collector(router).await;
    let began = Instant::now();
    let posted = collector.post(&usage(), NOW).await;
    assert_eq!(posted.date, None);
    tried_again(posted.answer);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn an_abacus_that_is_away_is_tried_again() {
    let collector = HttpCollector::new(&nowhere().await).unwrap();
    let error = tried_again(collector.post(&usage(), NOW).await.answer);
    assert!(!error.contains("http://"), "{error}");
}

/// What becomes of it by the answers to the three, the receiver's tests of mappings show.
#[tokio::test]
async fn a_mapping_is_three_calls_in_order_with_encoded_names() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let router = Router::new().fallback(move |method: Method, uri: Uri| async move {
        seen.lock().unwrap().push(format!("{method} {uri}"));
    });
    let provisioning = Provisioning::new(&serve(router).await).unwrap();
    let mapping = Mapping {
        resource_id: id("a/b"),
        plan_id: id("ü?"),
        metering_plan: id("m"),
        rating_plan: id("r"),
        pricing_plan: id("p"),
    };
    assert_eq!(provisioning.map(&mapping, NOW).await, Mapped::Made);
    let parts = [("metering", "m"), ("rating", "r"), ("pricing", "p")];
    let expected = parts.map(|(part, plan)| {
        let names = "resources/a%2Fb/plans/%C3%BC%3F";
        format!("POST /v1/provisioning/mappings/{part}/{names}/{plan}")
    });
    assert_eq!(*calls.lock().unwrap(), expected);
}
