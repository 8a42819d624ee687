//! The providers: they send events, again and again where they must, and remember each answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use sampler_domain::Timestamp;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::op::{Event, Kind, Sending};
use super::process::{HttpAnswer, Node};
use super::world::{Tally, World, measures_json, target_fields};
use sampler_testkit::rng::Rng;

/// What a provider knows after it has sent an event once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// 201.
    Kept,
    /// 201, and it was kept before.
    Replayed,
    /// 4xx: it was not kept, and never will be.
    Refused(String),
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

/// Sends events, one after the other.
pub(crate) async fn send(world: Arc<World>, receivers: Vec<Arc<Node>>, sending: Sending) {
    let turn = world.history.turn(sending.events[0].target);
    let turn = if sending.ordered {
        Some(turn.lock().await)
    } else {
        None
    };
    let mut rng = Rng::new(sending.seed, 0);
    for event in &sending.events {
        let index = world.history.begin(event, sending.must_succeed);
        for attempt in 1.. {
            let receiver = rng.pick(&receivers);
            let stays = rng.percent(50);
            let began = world.now();
            let reply = attempt_once(&world, receiver, event, sending.timeout, stays).await;
            world.log("provider", || {
                format!("{event}, attempt {attempt}: {reply:?}")
            });
            let is_final = matches!(reply, Reply::Kept | Reply::Replayed | Reply::Refused(_));
            world.history.note(index, reply, (began, world.now()));
            if is_final || !sending.retried {
                break;
            }
            let tick = world.setup.scale.tick;
            world.sleep(tick / 64 + rng.log_uniform(tick)).await;
        }
    }
    drop(turn);
}

/// Sends an event once. A client that times out disconnects, or (`stays`) the receiver does not
/// notice it.
async fn attempt_once(
    world: &World,
    receiver: &Node,
    event: &Event,
    limit: i64,
    stays: bool,
) -> Reply {
    Tally::add(&world.tally.requests);
    let Some(mut answer) = receiver.request(request(event)) else {
        return Reply::NothingKept("nobody listens".to_owned());
    };
    match timeout(Duration::from_millis(limit.unsigned_abs()), &mut answer).await {
        Ok(Ok(answer)) => reply(&answer),
        Ok(Err(_)) => Reply::Unknown("the connection broke".to_owned()),
        Err(_) => {
            if !stays {
                answer.abort();
            }
            Reply::Unknown("no answer came".to_owned())
        }
    }
}

fn request(event: &Event) -> Request<Body> {
    let mut body = json!({ "timestamp": event.timestamp.as_millis() });
    if let Some(id) = &event.id {
        body["id"] = json!(id);
    }
    for (name, text) in target_fields(event.target) {
        body[name] = json!(text);
    }
    let path = match event.kind {
        Kind::Start => {
            body["measured_usage"] = measures_json(event.measures);
            "/v1/events/start"
        }
        Kind::Stop => "/v1/events/stop",
    };
    if event.broken {
        body["space_id"] = Value::Null;
    }
    Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .expect("a fit request")
}

/// The meaning of an answer. A 503 promises that nothing was kept only if it says so.
fn reply(answer: &HttpAnswer) -> Reply {
    if answer.status == 201 {
        return if answer.replayed {
            Reply::Replayed
        } else {
            Reply::Kept
        };
    }
    let problem: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let kind = problem["type"].as_str().unwrap_or("no type");
    let text = format!("{} {kind}", answer.status);
    let detail = problem["detail"].as_str().unwrap_or_default();
    match answer.status {
        400..=499 => Reply::Refused(text),
        503 if detail.ends_with("Nothing was kept.") => Reply::NothingKept(text),
        _ => Reply::Unknown(text),
    }
}
