//! What metrics cost a start: `cargo run --release -p sampler-receiver --example cost_of_metrics`.
//!
//! All that is counted and timed for a start is done for a handler that does nothing else, and compared
//! with the same handler without it. The difference is set against a whole start in the same run. That
//! start is kept in memory: with a database and a connection it takes more, and the part of the metrics
//! is smaller than what this prints.

#![allow(clippy::unwrap_used, reason = "a measurement may end with a panic")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use sampler_metrics::{Counters, Metric};
use sampler_receiver::settings::metrics;
use sampler_receiver::{Options, Parts, Receiver};
use sampler_service::environment::{Clock, SystemClock, SystemRandom};
use sampler_service::http::{HttpMetrics, answer, with_fallbacks};
use sampler_service::security::Authenticator;
use sampler_settings::ReceiverSettings;
use sampler_store_testing::memory::MemoryStore;
use sampler_testkit::build::start_event;

/// Requests in a round; rounds of each kind take turns, and the median round counts.
const REQUESTS: u64 = 100;
const ROUNDS: usize = 101;

const PATH: &str = "/v1/events/start";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let bare = Router::new().route(PATH, post(async || StatusCode::CREATED));
    let (events, writes, seconds) = (
        Counters::new(metric("sampler_events_total")),
        metric("sampler_commit_batch_events").histogram(),
        metric("sampler_commit_seconds").histogram(),
    );
    let counting = move || {
        let began = tokio::time::Instant::now();
        events.inc(&["start", "accepted"]);
        // As if each start had a command of its own. Under load many share one.
        writes.observe(1.0);
        seconds.observe(began.elapsed().as_secs_f64());
        std::future::ready(StatusCode::CREATED)
    };
    let measured = Router::new().route(PATH, post(counting));
    let measured = with_fallbacks(measured).layer(HttpMetrics::default());
    let bare = with_fallbacks(bare);
    let mut rounds: [Vec<Duration>; 3] = Default::default();
    for _ in 0..ROUNDS {
        // A store in memory searches all that it has: each round begins with an empty one.
        let start = with_fallbacks(receiver().routes(Authenticator::none()));
        for (router, times) in [&bare, &measured, &start].into_iter().zip(&mut rounds) {
            times.push(time(router).await);
        }
    }
    let [without, with, start] = rounds.map(median);
    let cost = with.saturating_sub(without);
    let share = 100.0 * cost.as_secs_f64() / start.as_secs_f64();
    println!("a request that does nothing  {without:>10.2?}");
    println!("the same with metrics        {with:>10.2?}");
    println!("a start, kept in memory      {start:>10.2?}");
    println!("metrics                      {cost:>10.2?}, {share:.2} % of it");
}

fn metric(name: &str) -> &'static Metric {
    let mut all = metrics().into_iter();
    all.find(|metric| metric.name == name).unwrap()
}

fn receiver() -> Arc<Receiver> {
    let store = Arc::new(MemoryStore::new(|| SystemClock.now()));
    let parts = Parts {
        events: store.clone(),
        reading: store.clone(),
        operating: store.clone(),
        provisioning: None,
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
    };
    let receiver = Receiver::new(
        parts,
        Options {
            settings: ReceiverSettings::default(),
            unknown_for: Duration::from_secs(15),
        },
    );
    receiver.set_prepared();
    receiver
}

/// The time for one request.
async fn time(router: &Router) -> Duration {
    let now = SystemClock.now().as_millis();
    let requests: Vec<_> = (0..REQUESTS)
        .map(|target| {
            let body = start_event(target, now).to_string();
            let request = Request::post(PATH).header("content-type", "application/json");
            request.body(Body::from(body)).unwrap()
        })
        .collect();
    let began = Instant::now();
    for request in requests {
        let answer = black_box(answer(router.clone(), request).await);
        assert_eq!(answer.status(), StatusCode::CREATED);
    }
    began.elapsed() / u32::try_from(REQUESTS).unwrap()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
