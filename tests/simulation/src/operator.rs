//! What operators do in a run: they look at what is suspended, excluded or missing, and act through the API, some
//! of them at once when they see it. They do not know what the upstream counts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use sampler_domain::{Interval, Span, Timestamp};
use sampler_store_testing::memory::Table;
use sampler_testkit::rng::{Rng, mix};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::process::Node;
use super::world::World;

/// What operators may be answered: done, or not any more, or not now.
const ANSWERS: [u16; 8] = [200, 202, 404, 409, 412, 422, 500, 503];

/// An action of an operator.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    path: String,
    /// The version of the span that the operator has seen.
    version: Option<i64>,
    body: Value,
}

/// The actions that are to be sent.
#[derive(Default)]
pub(crate) struct Acts {
    waiting: Mutex<VecDeque<Act>>,
    added: Notify,
}

impl Acts {
    pub(crate) fn add(&self, act: Act) {
        let mut waiting = self.waiting.lock().expect("nobody panics with it");
        waiting.push_back(act);
        self.added.notify_one();
    }

    pub(crate) async fn next(&self) -> Act {
        loop {
            let next = self
                .waiting
                .lock()
                .expect("nobody panics with it")
                .pop_front();
            match next {
                Some(act) => return act,
                None => self.added.notified().await,
            }
        }
    }
}

impl Act {
    fn on_span(span: &Span, verb: &str, more: &Value) -> Self {
        let mut body = json!({ "reason": "simulated" });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        Self {
            path: format!("/v1/spans/{}/{verb}", span.id),
            version: Some(span.processing.version),
            body,
        }
    }

    fn without_version(path: String) -> Self {
        Self {
            path,
            version: None,
            body: json!({ "reason": "simulated" }),
        }
    }

    pub(crate) fn resume(span: &Span) -> Self {
        Self::on_span(span, "resume", &Value::Null)
    }

    fn resume_cause(span: &Span) -> Option<Self> {
        let cause = span.suspension().map(|it| it.cause);
        let cause = cause.or(span.processing.probe)?;
        Some(Self::without_version(format!(
            "/v1/suspended/{cause}/resume"
        )))
    }

    pub(crate) fn resend(span: &Span) -> Self {
        Self::on_span(span, "resend", &Value::Null)
    }

    pub(crate) fn resend_missing(usage_guid: &str) -> Self {
        Self::without_version(format!("/v1/unconfirmed/{usage_guid}/resend"))
    }

    fn request(&self) -> Request<Body> {
        let mut request = Request::post(&self.path).header("content-type", "application/json");
        if let Some(version) = self.version {
            request = request.header("if-match", format!("\"{version}\""));
        }
        request
            .body(Body::from(self.body.to_string()))
            .expect("a fit request")
    }

    /// Sends it once.
    pub(crate) async fn send(self, world: Arc<World>, receiver: Arc<Node>) {
        world.count("acts of operators");
        world.log("operator", || format!("{} {}", self.path, self.body));
        let Some(answer) = receiver.request(self.request()) else {
            return;
        };
        let Ok(answer) = answer.await else { return };
        world.log("operator", || {
            format!("{} is answered {}", self.path, answer.status)
        });
        if !ANSWERS.contains(&answer.status) {
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            world.report_violation(format!(
                "{} is answered {}: {body}",
                self.path, answer.status
            ));
        }
    }
}

impl World {
    /// Operators skip, resume and resend some of what there is at this moment.
    pub(crate) fn operate(&self, seed: u64) {
        let rng = &mut Rng::new(seed, 0);
        let add = |act| self.acts.add(act);
        for span in self.store.all().into_iter().map(|kept| kept.span) {
            if span.suspension().is_some() {
                match rng.below(10) {
                    0..=4 => self.acts.add(self.skip(&span, rng)),
                    5 => self.acts.add(Act::resume(&span)),
                    6..=7 => Act::resume_cause(&span).into_iter().for_each(add),
                    _ => {}
                }
            }
            if !span.processing.excluded.is_empty() && rng.percent(30) {
                self.acts.add(part_resent(&span, rng));
            }
        }
        for usage in self.missing() {
            if rng.percent(30) {
                self.acts.add(Act::resend_missing(&usage));
            }
        }
    }

    /// The usages that are missing upstream.
    pub(crate) fn missing(&self) -> Vec<String> {
        let missing = |table: &mut Table| -> Vec<String> {
            let watches = table.watches().filter(|it| it.missing.is_some());
            watches.map(|it| it.usage_guid.clone()).collect()
        };
        self.store.with(missing)
    }

    /// Whether a usage was set aside, and is watched: so it is sent again, or will be.
    pub(crate) fn knows_of_set_aside(&self) -> bool {
        let aside = self.books.set_aside();
        self.store.with(|table| {
            let mut aside = aside.iter();
            aside.any(|usage| table.watch_of(&usage.dedup_id).is_some())
        })
    }

    /// Whether an operator has a usage sent again that is missing.
    pub(crate) fn is_resent(&self, usage_guid: &str) -> bool {
        self.store.with(|table| {
            let watch = table.watch_of(usage_guid);
            watch.is_some_and(|watch| watch.is_resent)
        })
    }

    /// A span has changed just now: an operator may act before anything else happens.
    pub(crate) fn watch(&self, before: &Span, after: &Span) {
        let (old, new) = (&before.processing, &after.processing);
        let is_suspended = before.suspension().is_none() && after.suspension().is_some();
        let is_excluded = old.excluded.len() < new.excluded.len();
        let is_probed = old.probe.is_none() && new.probe.is_some();
        if !(is_suspended || is_excluded || is_probed) {
            return;
        }
        let rng = &mut self.rng_of_watch(&after.id.to_string(), new.version.unsigned_abs());
        if !self.is_watched(rng) {
            return;
        }
        let act = match rng.below(3) {
            _ if is_excluded => Some(part_resent(after, rng)),
            0 if is_suspended => Some(self.skip(after, rng)),
            1 if is_suspended => Some(Act::resume(after)),
            _ => Act::resume_cause(after),
        };
        if let Some(act) = act {
            self.acts.add(act);
        }
    }

    /// A usage is missing upstream since just now: the same.
    pub(crate) fn watch_missing(&self, usage_guid: &str) {
        let now = self.now().as_millis().unsigned_abs();
        let rng = &mut self.rng_of_watch(usage_guid, now);
        if self.is_watched(rng) {
            self.acts.add(Act::resend_missing(usage_guid));
        }
    }

    fn rng_of_watch(&self, name: &str, round: u64) -> Rng {
        let bytes = name.bytes();
        let row = bytes.fold(round, |all, byte| mix(all ^ u64::from(byte)));
        Rng::new(self.setup.seed ^ row, 10)
    }

    fn is_watched(&self, rng: &mut Rng) -> bool {
        self.setup.has_operator && !self.is_over() && rng.percent(self.setup.watchful)
    }

    /// Skips the refused interval, or more; now and then up to a time that does not fit.
    fn skip(&self, span: &Span, rng: &mut Rng) -> Act {
        let planned = span.processing.planned.as_ref();
        let refused = planned.map_or(span.processing.last, |planned| planned.interval);
        let cut = span.processing.cuts.last();
        if rng.percent(50) || refused.end < refused.start {
            return Act::on_span(span, "skip", &Value::Null);
        }
        let mut until = refused.end;
        if let Some(cut) = cut {
            let now = self.database_now();
            for _ in 0..rng.below(6) {
                let next = cut.granularity.boundary_after(until);
                until = next.filter(|next| *next <= now).unwrap_or(until);
            }
        }
        if rng.percent(10) {
            let length = self.setup.scale.length;
            until = until.plus(rng.between(-length, 2 * length));
        }
        let until = span.end.map_or(until, |end| until.min(end));
        let times = json!({ "until": until.as_millis() });
        Act::on_span(span, "skip", &times)
    }
}

/// Sends again what is excluded: mostly all of it, or a part.
fn part_resent(span: &Span, rng: &mut Rng) -> Act {
    let excluded = &span.processing.excluded;
    if excluded.is_empty() || rng.percent(60) {
        return Act::resend(span);
    }
    let Interval { start, end } = rng.pick(excluded).interval;
    let (low, high) = (start.min(end), start.max(end));
    let within = |rng: &mut Rng| -> Timestamp { low.plus(rng.between(0, high.since(low))) };
    let times = match rng.below(4) {
        0 => json!({ "from": low.as_millis(), "to": high.as_millis() }),
        1 => json!({ "from": within(rng).as_millis() }),
        2 => json!({ "to": within(rng).as_millis() }),
        _ => json!({ "from": low.as_millis(), "to": within(rng).max(low.plus(1)).as_millis() }),
    };
    Act::on_span(span, "resend", &times)
}
