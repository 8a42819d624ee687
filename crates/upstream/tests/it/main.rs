//! The clients over real connections, against servers that answer, hang, break off or are away.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod cloud_events;
mod confirm;
mod hostile;
mod tokens;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use sampler_domain::{
    Granularities, Granularity, Id, Interval, Measures, Planned, Policy, Span, SpanId, StartEvent,
    Target, Timestamp, Usage,
};
use sampler_oauth::{CaBundle, HttpOptions};
use sampler_upstream::{
    Answer, AnswerDate, ClientOptions, HttpCollector, Mapped, Mapping, Provisioning,
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
    let span = Span::open(SpanId::new(NOW, 1), event);
    let policy = Policy {
        granularities: Granularities::all(Granularity::Hour),
        stop_grace: 0,
    };
    let end = policy.open_due_at(&span.target, NOW);
    Usage::new(
        &span,
        &Planned::new(&span, Interval { start: NOW, end }, NOW),
    )
}

fn options(address: std::net::SocketAddr) -> ClientOptions {
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
    let service = router.into_make_service_with_connect_info::<std::net::SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    options
}

#[tokio::test]
async fn usages_are_posted_as_json_over_connections_that_are_kept() {
    let ports = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let seen = Arc::clone(&ports);
    let router = Router::new().route(
        "/v1/metering/collected/usage",
        post(
            move |ConnectInfo(peer): ConnectInfo<std::net::SocketAddr>,
                  headers: HeaderMap,
                  body: String| async move {
                assert_eq!(headers["content-type"], "application/json");
                assert_eq!(body, serde_json::to_string(&usage()).unwrap());
                seen.lock().unwrap().insert(peer.port());
                StatusCode::ACCEPTED
            },
        ),
    );
    let collector = HttpCollector::new(&serve(router).await).unwrap();
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
    let collector = HttpCollector::new(&serve(router).await).unwrap();
    let after = Duration::from_secs(17);
    let answer = collector.post(&usage(), NOW).await.answer;
    assert_eq!(answer, Answer::Wait { after });
    for error in ["Abacus answered 400", "Abacus answered 400: invalid schema"] {
        let error = error.to_owned();
        let answer = collector.post(&usage(), NOW).await.answer;
        assert_eq!(answer, Answer::Refused { error });
    }
}

/// A POST that a redirect turns into a GET would be answered 200 by any page, and "bill".
#[tokio::test]
async fn no_redirect_is_followed_and_a_page_is_not_a_collector() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let login = move || async move {
        seen.fetch_add(1, Ordering::Relaxed);
        (StatusCode::OK, "Log in")
    };
    let away = || async { (StatusCode::FOUND, [("location", "/login")], "") };
    let router = Router::new()
        .route("/login", axum::routing::any(login))
        .fallback(away);
    let collector = HttpCollector::new(&serve(router).await).unwrap();
    match collector.post(&usage(), NOW).await.answer {
        Answer::TryAgain { error, .. } => assert!(error.contains("COLLECTOR_URL"), "{error}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(collector.ask_time().await, Ok(AnswerDate::At(_))));
    assert_eq!(asked.load(Ordering::Relaxed), 0, "neither is followed");
}

#[tokio::test]
async fn a_409_is_accepted_where_a_setting_says_so() {
    let router = Router::new().fallback(|| async { StatusCode::CONFLICT });
    let collector = HttpCollector::new(&serve(router).await).unwrap();
    let answer = collector.post(&usage(), NOW).await.answer;
    assert!(matches!(answer, Answer::Refused { .. }), "{answer:?}");
    let collector = collector.accept_conflict(true);
    let answer = collector.post(&usage(), NOW).await.answer;
    assert_eq!(answer, Answer::Accepted);
}

#[tokio::test]
async fn every_answer_tells_the_time_and_dates_in_it_are_held_against_that() {
    let router = Router::new().fallback(|| async {
        (
            StatusCode::TOO_MANY_REQUESTS,
            [
                ("date", "Tue, 10 Mar 2026 11:50:00 GMT"),
                ("retry-after", "Tue, 10 Mar 2026 11:50:20 GMT"),
            ],
        )
    });
    let collector = HttpCollector::new(&serve(router).await).unwrap();
    let posted = collector.post(&usage(), NOW).await;
    let ten_to = AnswerDate::At(NOW.plus(-600_000));
    assert_eq!(posted.dated, ten_to);
    let after = Duration::from_secs(20);
    assert_eq!(posted.answer, Answer::Wait { after });
    assert_eq!(collector.ask_time().await, Ok(ten_to));
}

/// A connection that is kept would ask the same gateway for ever.
#[tokio::test]
async fn each_probe_has_a_connection_of_its_own() {
    let ports = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let seen = Arc::clone(&ports);
    let router = Router::new().fallback(
        move |ConnectInfo(peer): ConnectInfo<std::net::SocketAddr>, headers: HeaderMap| async move {
            assert!(!headers.contains_key("authorization"));
            seen.lock().unwrap().insert(peer.port());
            StatusCode::NOT_FOUND
        },
    );
    let collector = HttpCollector::new(&serve(router).await).unwrap();
    for _ in 0..5 {
        assert!(matches!(collector.ask_time().await, Ok(AnswerDate::At(_))));
    }
    assert_eq!(ports.lock().unwrap().len(), 5);
}

/// Fault 2 of the original: there was no time limit on posts.
#[tokio::test]
async fn fault_2_an_abacus_that_hangs_is_left_after_the_time_limit() {
    let router = Router::new().fallback(std::future::pending::<StatusCode>);
    let collector = HttpCollector::new(&serve(router).await).unwrap();
    let began = Instant::now();
    let posted = collector.post(&usage(), NOW).await;
    assert_eq!(posted.dated, AnswerDate::NoAnswer);
    assert!(collector.ask_time().await.is_err());
    let answer = posted.answer;
    assert!(
        matches!(answer, Answer::TryAgain { after: None, .. }),
        "{answer:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn an_abacus_that_is_away_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = options(listener.local_addr().unwrap());
    drop(listener);
    let collector = HttpCollector::new(&options).unwrap();
    match collector.post(&usage(), NOW).await.answer {
        Answer::TryAgain { error, .. } => assert!(!error.contains("http://"), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_mapping_is_three_calls_in_order_with_encoded_names() {
    let calls = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (seen, status) = (
        Arc::clone(&calls),
        Arc::new(std::sync::Mutex::new(vec![409, 200, 409])),
    );
    let statuses = Arc::clone(&status);
    let router = Router::new()
        .route(
            "/v1/provisioning/mappings/{part}/resources/{resource}/plans/{plan}/{of_abacus}",
            post(
                move |State(calls): State<Arc<std::sync::Mutex<Vec<String>>>>,
                      Path(path): Path<[String; 4]>| async move {
                    calls.lock().unwrap().push(path.join(" "));
                    let status = statuses.lock().unwrap().pop().unwrap();
                    StatusCode::from_u16(status).unwrap()
                },
            ),
        )
        .with_state(seen);
    let provisioning = Provisioning::new(&serve(router).await).unwrap();
    let mapping = Mapping {
        resource_id: id("a/b"),
        plan_id: id("ü?"),
        metering_plan: id("m"),
        rating_plan: id("r"),
        pricing_plan: id("p"),
    };
    assert_eq!(provisioning.map(&mapping, NOW).await, Mapped::Made);
    let expected = ["metering a/b ü? m", "rating a/b ü? r", "pricing a/b ü? p"];
    assert_eq!(*calls.lock().unwrap(), expected);
    *status.lock().unwrap() = vec![409, 409, 409];
    assert_eq!(provisioning.map(&mapping, NOW).await, Mapped::Existed);
    *status.lock().unwrap() = vec![500, 200];
    assert!(matches!(
        provisioning.map(&mapping, NOW).await,
        Mapped::Failed { .. }
    ));
    assert_eq!(
        calls.lock().unwrap().len(),
        8,
        "it ends at the first failure"
    );
}
