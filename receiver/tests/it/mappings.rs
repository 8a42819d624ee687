//! Mappings of plans, against a provisioning service that answers as it is told.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use sampler_service::oauth::{CaBundle, HttpOptions};
use sampler_upstream::ClientOptions;
use tokio::net::TcpListener;

use crate::event::mapping;
use crate::world::{MAPPINGS, NOW, World};

/// What the service is asked: to map part `[0]` of resource `[1]`, plan `[2]`, to plan `[3]`.
type Asked = [String; 4];

/// The status of an answer of the service, and its `Retry-After`; none is given with 0.
type Reply = (u16, Option<&'static str>);

/// The service, on a port of its own.
#[derive(Clone, Default)]
struct StandIn {
    asked: Arc<Mutex<Vec<Asked>>>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
}

impl StandIn {
    /// Starts a service that gives these replies, one after the other, then makes all mappings.
    async fn start(replies: &[Reply]) -> (Self, ClientOptions) {
        let stand_in = Self::default();
        stand_in.replies.lock().unwrap().extend(replies);
        let route = "/base/v1/provisioning/mappings/{part}/resources/{resource}/plans/{plan}/{to}";
        let router = Router::new()
            .route(route, post(map))
            .with_state(stand_in.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = options(listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (stand_in, options)
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// How to reach a service.
fn options(address: SocketAddr) -> ClientOptions {
    ClientOptions {
        url: format!("http://{address}/base/").parse().unwrap(),
        http: HttpOptions {
            timeout: Duration::from_secs(20),
            skip_ssl_validation: false,
            authorities: CaBundle::default(),
        },
        tokens: None,
    }
}

async fn map(
    State(stand_in): State<StandIn>,
    Path(asked): Path<Asked>,
    body: Bytes,
) -> (StatusCode, HeaderMap, &'static str) {
    assert!(body.is_empty(), "a mapping has no body");
    stand_in.asked.lock().unwrap().push(asked);
    let reply = stand_in.replies.lock().unwrap().pop_front();
    let (status, after) = reply.unwrap_or(MADE);
    if status == 0 {
        std::future::pending::<()>().await;
    }
    let after = after.map(|after| ("retry-after".parse().unwrap(), after.parse().unwrap()));
    let body = "what the service says: secret";
    (
        StatusCode::from_u16(status).unwrap(),
        after.into_iter().collect(),
        body,
    )
}

const MADE: Reply = (200, None);
const THERE: Reply = (409, None);
const BUSY: Reply = (429, Some("17"));
const NEVER: Reply = (0, None);

/// What becomes of a mapping: the status and the kind of problem, and when to come again.
type Expected = (u16, &'static str, Option<&'static str>);

const CREATED: Expected = (201, "", None);
const FAILED: Expected = (502, "provisioning-failed", None);

fn after(seconds: &'static str) -> Expected {
    (503, "provisioning-busy", Some(seconds))
}

/// The answers of the service, the last of which decides, and what becomes of the mapping.
#[rustfmt::skip]
fn table() -> Vec<(Vec<Reply>, Expected)> {
    let mut rows = vec![
        (vec![MADE, MADE, MADE], CREATED),
        // The original answers 500 to that.
        (vec![(201, None); 3], CREATED),
        // A part of it was there.
        (vec![MADE, MADE, THERE], CREATED),
        (vec![MADE, THERE, MADE], CREATED),
        (vec![THERE, MADE, MADE], CREATED),
        (vec![THERE, THERE, MADE], CREATED),
        (vec![THERE, MADE, THERE], CREATED),
        (vec![MADE, THERE, THERE], CREATED),
        (vec![THERE, THERE, THERE], (409, "mapping-exists", None)),
        // A service that asks to wait is obeyed.
        (vec![BUSY], after("17")),
        (vec![MADE, BUSY], after("17")),
        (vec![THERE, MADE, BUSY], after("17")),
        (vec![(429, Some("0"))], after("1")),
        (vec![(429, Some("soon"))], after("5")),
        (vec![(429, None)], after("5")),
        // Fault 16 of the original.
        (vec![(429, Some("Fri, 03 Aug 2018 00:01:30 GMT"))], after("90")),
        // It is not waited for for ever.
        (vec![MADE, NEVER], FAILED),
    ];
    for status in [301, 400, 401, 403, 404, 500, 502, 503] {
        rows.push((vec![(status, None)], FAILED));
        rows.push((vec![THERE, MADE, (status, None)], FAILED));
    }
    rows
}

#[tokio::test]
async fn fault_16_a_mapping_is_made_of_three_in_their_order_or_refused_as_the_service_says() {
    for (replies, (status, slug, after)) in table() {
        let (stand_in, mut options) = StandIn::start(&replies).await;
        if replies.contains(&NEVER) {
            options.http.timeout = Duration::from_millis(100);
        }
        let world = World::unprepared(Some(&options)).ready();
        // Between two seconds the later one is told: nobody is sent back too early.
        world.clock.set(NOW + 1);
        let answer = world.post(MAPPINGS, &mapping()).await;
        assert_eq!(stand_in.asked(), calls()[..replies.len()], "{replies:?}");
        assert_eq!(world.store.calls(), 0);
        assert_eq!(answer.status, status, "{replies:?}");
        if status == 201 {
            answer.is_created();
        } else {
            answer.names(status, slug, &[]);
        }
        assert_eq!(answer.header("retry-after"), after, "{replies:?}");
        let text = answer.text();
        let is_told = ["secret", "127.0.0.1"].map(|word| text.contains(word));
        assert_eq!(is_told, [false; 2], "{text}");
    }
}

/// The three calls for a mapping, in their order.
fn calls() -> [Asked; 3] {
    let plans = [
        ("metering", "standard"),
        ("rating", "cheap"),
        ("pricing", "fair"),
    ];
    plans.map(|(part, plan)| [part, "postgres", "large", plan].map(str::to_owned))
}

#[tokio::test]
async fn a_service_that_is_away_is_told_and_so_is_none() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let away = options(listener.local_addr().unwrap());
    drop(listener);
    for service in [Some(&away), None] {
        let world = World::unprepared(service).ready();
        let answer = world.post(MAPPINGS, &mapping()).await;
        answer.names(502, "provisioning-failed", &[]);
        let text = answer.text();
        assert!(!text.contains("127.0.0.1"), "{text}");
    }
}

#[tokio::test]
async fn mappings_do_not_wait_for_the_database() {
    let (stand_in, options) = StandIn::start(&[]).await;
    let world = World::unprepared(Some(&options));
    world.post(MAPPINGS, &mapping()).await.is_created();
    assert_eq!(stand_in.asked(), calls());
}
