//! The providers: they send events, again and again where they must, and remember each answer. Some stop usages at
//! bad places: before, within and behind intervals whose usages do not count, or may never.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use futures_util::future::join_all;
use sampler_domain::{Interval, Span, Timestamp};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::op::{Event, Kind, Sending, Way};
use super::process::{HttpAnswer, Node};
use super::world::{OTHER_PLAN, World, measures_json, target_fields, target_number};
use sampler_testkit::rng::Rng;

/// After so many attempts without a final answer a provider waits longer for the next ones: a batch can
/// take longer than its first limit each time.
const ATTEMPTS_PER_LIMIT: i64 = 32;

/// What a provider knows after it has sent an event once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// 201.
    Kept,
    /// 201, and it was kept before.
    Replayed,
    /// 4xx: it was not kept, and never will be.
    Refused(String),
    /// 4xx: an update has stopped the previous span, and what the text says refuses its start.
    Incomplete(String),
    /// It was not kept this time.
    NothingKept(String),
    /// Nothing: whether it was kept is not known.
    Unknown(String),
}

/// An event that was sent, and what came back each time.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) event: Event,
    pub(crate) must_succeed: bool,
    pub(crate) replies: Vec<Reply>,
    /// When it was sent, and when each reply came.
    pub(crate) times: Vec<(Timestamp, Timestamp)>,
}

/// All that was sent.
#[derive(Default)]
pub(crate) struct History {
    sent: Mutex<Vec<Sent>>,
    /// One lock for each target, held by a provider that sends in order.
    turns: Mutex<Vec<Arc<tokio::sync::Mutex<()>>>>,
}

impl History {
    fn begin(&self, event: &Event, must_succeed: bool) -> usize {
        let mut sent = self.sent.lock().expect("nobody panics with it");
        sent.push(Sent {
            event: event.clone(),
            must_succeed,
            replies: Vec::new(),
            times: Vec::new(),
        });
        sent.len() - 1
    }

    fn note(&self, index: usize, reply: Reply, times: (Timestamp, Timestamp)) {
        let mut sent = self.sent.lock().expect("nobody panics with it");
        sent[index].replies.push(reply);
        sent[index].times.push(times);
    }

    pub(crate) fn all(&self) -> Vec<Sent> {
        self.sent.lock().expect("nobody panics with it").clone()
    }

    fn turn(&self, target: usize) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().expect("nobody panics with it");
        if turns.len() <= target {
            turns.resize_with(target + 1, Arc::default);
        }
        Arc::clone(&turns[target])
    }
}

impl Reply {
    /// Whether a provider sends the event no more.
    fn is_final(&self) -> bool {
        match self {
            Self::Kept | Self::Replayed | Self::Refused(_) | Self::Incomplete(_) => true,
            Self::NothingKept(_) | Self::Unknown(_) => false,
        }
    }
}

/// Sends events, one after the other or together.
pub(crate) async fn send(world: Arc<World>, receivers: Vec<Arc<Node>>, sending: Sending) {
    let targets = sending.events.iter().map(|event| event.target % OTHER_PLAN);
    let targets: BTreeSet<usize> = targets.filter(|_| sending.ordered).collect();
    // It queues for all of them at once: those that come later stay behind it everywhere.
    let turns = targets
        .into_iter()
        .map(|target| world.history.turn(target).lock_owned());
    let turns = join_all(turns).await;
    let mut provider = Provider {
        rng: Rng::new(sending.seed, 0),
        world: &world,
        receivers: &receivers,
        sending: &sending,
    };
    match sending.way {
        Way::OneByOne => {
            for event in &sending.events {
                provider.send(std::slice::from_ref(event)).await;
            }
        }
        Way::Batch => provider.send(&sending.events).await,
    }
    drop(turns);
}

/// A provider that sends.
struct Provider<'s> {
    rng: Rng,
    world: &'s World,
    receivers: &'s [Arc<Node>],
    sending: &'s Sending,
}

impl Provider<'_> {
    /// Sends an event, or a batch of them, until each has an answer that is final.
    async fn send(&mut self, events: &[Event]) {
        let (world, must_succeed) = (self.world, self.sending.must_succeed);
        let index = |event| world.history.begin(event, must_succeed);
        let indices: Vec<usize> = events.iter().map(index).collect();
        for attempt in 1..=i64::MAX {
            let limit = self.sending.timeout * (1 + attempt / ATTEMPTS_PER_LIMIT);
            let receiver = self.rng.pick(self.receivers);
            let stays = self.rng.percent(50);
            let began = world.now();
            let replies = self.attempt_once(receiver, events, limit, stays).await;
            let are_final = replies.iter().all(Reply::is_final);
            for ((event, index), reply) in events.iter().zip(&indices).zip(replies) {
                world.log("provider", || {
                    format!("{event}, attempt {attempt}: {reply:?}")
                });
                world.history.note(*index, reply, (began, world.now()));
            }
            if are_final || !self.sending.retried {
                break;
            }
            let tick = world.setup.scale.tick;
            world.sleep(tick / 64 + self.rng.log_uniform(tick)).await;
        }
    }

    /// Sends events once. A client that times out (`limit`, in milliseconds) disconnects, or (`stays`) the
    /// receiver does not notice it.
    async fn attempt_once(
        &self,
        receiver: &Node,
        events: &[Event],
        limit: i64,
        stays: bool,
    ) -> Vec<Reply> {
        self.world.count("requests");
        let all = |reply: Reply| vec![reply; events.len()];
        let request = match self.sending.way {
            Way::OneByOne => request(&events[0]),
            Way::Batch => batch(events),
        };
        let Some(mut answer) = receiver.request(request) else {
            return all(Reply::NothingKept("nobody listens".to_owned()));
        };
        let limit = Duration::from_millis(limit.unsigned_abs());
        match timeout(limit, &mut answer).await {
            Ok(Ok(answer)) if answer.status == 200 => self.replies(&answer, events),
            Ok(Ok(answer)) => all(reply(&answer)),
            Ok(Err(_)) => all(Reply::Unknown("the connection broke".to_owned())),
            Err(_) => {
                if !stays {
                    answer.abort();
                }
                all(Reply::Unknown("no answer came".to_owned()))
            }
        }
    }

    /// What became of each event of a batch.
    fn replies(&self, answer: &HttpAnswer, events: &[Event]) -> Vec<Reply> {
        let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let results = document["results"].as_array();
        let results = results.filter(|results| results.len() == events.len());
        let Some(results) = results else {
            let text = format!("{} events are answered with {document}", events.len());
            self.world.report_violation(text);
            return vec![Reply::Unknown("no results".to_owned()); events.len()];
        };
        let reply = |result: &Value| {
            let status = result["status"].as_u64().unwrap_or_default();
            let is_replayed = result["replayed"] == true;
            meaning(status, is_replayed, &result["problem"])
        };
        results.iter().map(reply).collect()
    }
}

fn reply(answer: &HttpAnswer) -> Reply {
    let problem: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    meaning(u64::from(answer.status), answer.replayed, &problem)
}

/// The meaning of an answer. A 503 promises that nothing was kept only if it says so.
fn meaning(status: u64, is_replayed: bool, problem: &Value) -> Reply {
    match status {
        201 if is_replayed => return Reply::Replayed,
        201 => return Reply::Kept,
        _ => {}
    }
    let kind = problem["type"].as_str().unwrap_or("no type");
    let text = format!("{status} {kind}");
    let detail = problem["detail"].as_str().unwrap_or_default();
    match status {
        400..=499 if problem["stopped"] == true => Reply::Incomplete(text),
        400..=499 => Reply::Refused(text),
        503 if detail.ends_with("Nothing was kept.") => Reply::NothingKept(text),
        _ => Reply::Unknown(text),
    }
}

/// What an event reports, and its fields.
fn fields(event: &Event) -> (&'static str, Value) {
    let mut body = json!({ "timestamp": event.timestamp.as_millis() });
    if let Some(id) = &event.id {
        body["id"] = json!(id);
    }
    for (name, text) in target_fields(event.target) {
        body[name] = json!(text);
    }
    if event.kind != Kind::Stop {
        body["measured_usage"] = measures_json(event.measures);
    }
    if let Kind::Update { previous } = event.kind {
        let own = target_fields(event.target);
        let others = target_fields(previous).into_iter().zip(own);
        let others = others.filter(|(previous, own)| previous != own);
        let previous = others.map(|((name, text), _)| (name.to_owned(), json!(text)));
        body["previous"] = Value::Object(previous.collect());
    }
    if event.broken {
        body["space_id"] = Value::Null;
    }
    let kind = match event.kind {
        Kind::Start => "start",
        Kind::Stop => "stop",
        Kind::Update { .. } => "update",
    };
    (kind, body)
}

fn request(event: &Event) -> Request<Body> {
    let (kind, body) = fields(event);
    post(&format!("/v1/events/{kind}"), &body)
}

fn batch(events: &[Event]) -> Request<Body> {
    let item = |event| {
        let (kind, mut body) = fields(event);
        body["type"] = json!(kind);
        body
    };
    post("/v1/events", &events.iter().map(item).collect())
}

fn post(path: &str, body: &Value) -> Request<Body> {
    Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .expect("a fit request")
}

impl World {
    /// The stop of an open span that has such an interval; `None` where there is none. Only providers that
    /// are not well behaved send it.
    pub(crate) fn stop_at_a_bad_place(&self, seed: u64) -> Option<Event> {
        let rng = &mut Rng::new(seed, 0);
        let kept = self.store.all().into_iter().map(|kept| kept.span);
        let is_open = |span: &Span| span.end.is_none() && !self.is_well_behaved(span);
        let found: Vec<(Span, Vec<Interval>)> = kept
            .filter(is_open)
            .map(|span| (span.clone(), doubtful(&span)))
            .filter(|(_, doubtful)| !doubtful.is_empty())
            .collect();
        if found.is_empty() {
            return None;
        }
        let (span, doubtful) = rng.pick(&found);
        let interval = *rng.pick(doubtful);
        Some(Event {
            kind: Kind::Stop,
            id: Some(format!("bad-{seed}")),
            timestamp: place(rng, interval).max(span.start),
            target: target_number(&span.target),
            measures: 0,
            broken: false,
        })
    }

    fn is_well_behaved(&self, span: &Span) -> bool {
        let number = target_number(&span.target) % OTHER_PLAN;
        let behaved = self.setup.well_behaved.get(number);
        behaved.is_some_and(|is_well| *is_well)
    }
}

/// What of a span is excluded, sent again or refused.
fn doubtful(span: &Span) -> Vec<Interval> {
    let processing = &span.processing;
    let excluded = processing.excluded.iter();
    let again = processing.again.iter().map(|again| &again.range);
    let refused = processing.planned.iter();
    let refused = refused.filter(|_| processing.failure.is_some());
    let ranges = excluded.chain(again).map(|range| range.interval);
    ranges.chain(refused.map(|it| it.interval)).collect()
}

/// A moment before, within or behind an interval, or at its edge.
fn place(rng: &mut Rng, interval: Interval) -> Timestamp {
    let (low, high) = (
        interval.start.min(interval.end),
        interval.start.max(interval.end),
    );
    let length = high.since(low);
    match rng.below(10) {
        0..=4 => low.plus(rng.between(1, length - 1)),
        5 => low,
        6 => high,
        7..=8 => low.plus(-rng.log_uniform(2 * length)),
        _ => high.plus(rng.log_uniform(2 * length)),
    }
}
