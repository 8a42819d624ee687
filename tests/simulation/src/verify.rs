//! At the end, `sampler-verify` has nothing to say: it reads the API as a provider would, and shares no code with
//! what bills.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::http::header::LINK;
use http_body_util::BodyExt;
use sampler_domain::{Span, Timestamp};
use sampler_receiver::{Parts, Receiver};
use sampler_service::environment::Clock;
use sampler_service::security::Authenticator;
use sampler_testkit::rng::Rng;
use sampler_verify::events::{Event, EventKind};
use sampler_verify::{Policy, Target, api, check};
use serde::de::DeserializeOwned;
use tower::ServiceExt;

use super::process::SeededRandom;
use super::world::World;

/// Reading more entries would take longer than the run.
const ENTRIES_MAX: usize = 2_000;

/// A clock that stands still.
struct Stopped(Timestamp);

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// A reader of the API of a receiver that never fails.
struct Reader(Router);

impl Reader {
    fn of(world: &World) -> Self {
        let parts = Parts {
            events: world.store.clone(),
            reading: world.store.clone(),
            operating: world.store.clone(),
            provisioning: None,
            clock: Arc::new(Stopped(world.database_now())),
            random: Arc::new(SeededRandom::new(Rng::new(0, 0))),
        };
        let options = world.setup.receiver(&mut Rng::new(0, 0));
        let receiver = Receiver::new(parts, options);
        receiver.set_prepared();
        Self(receiver.routes(Authenticator::none()))
    }

    /// The document at this path, and the path of the next page.
    async fn get<T: DeserializeOwned>(&self, path: &str) -> (T, Option<String>) {
        let request = Request::get(path).body(Body::empty());
        let request = request.expect("a fit request");
        let answer = self.0.clone().oneshot(request).await;
        let (parts, body) = answer.unwrap_or_else(|never| match never {}).into_parts();
        let link = parts.headers.get(LINK).and_then(|link| link.to_str().ok());
        let next = link.and_then(|link| Some(link.split_once('<')?.1.split_once('>')?.0));
        let body = body.collect().await.expect("the body is at hand");
        let document = serde_json::from_slice(&body.to_bytes());
        (
            document.expect("it is as the verifier reads it"),
            next.map(str::to_owned),
        )
    }

    async fn entries(&self, span: &Span) -> Vec<api::Entry> {
        let mut entries = Vec::new();
        let mut path = Some(format!("/v1/spans/{}/usages", span.id));
        while let Some(page) = path {
            let (list, next) = self.get::<api::ListPage<api::Entry>>(&page).await;
            entries.extend(list.items);
            path = next;
        }
        entries
    }
}

impl World {
    /// Whether no entry has expired, no spans of a target may overlap, and there is not too much to read.
    fn is_verifiable(&self) -> bool {
        let facts = self.truth.facts();
        let has_few = facts.entries.len() <= ENTRIES_MAX;
        has_few && facts.gaps.is_empty() && self.setup.keeps_entries()
    }

    /// Verifies all spans that are kept.
    pub(crate) async fn verify(&self) {
        if !self.is_verifiable() {
            return;
        }
        let kept = self.store.all().into_iter().map(|kept| kept.span);
        let mut kept: Vec<Span> = kept.collect();
        kept.sort_by_key(|span| (span.start, span.end));
        let reader = Reader::of(self);
        let (mut spans, mut entries) = (Vec::new(), BTreeMap::new());
        for span in &kept {
            let path = format!("/v1/spans/{}", span.id);
            spans.push(reader.get::<api::Span>(&path).await.0);
            entries.insert(span.id.to_string(), reader.entries(span).await);
        }
        let policy = Policy {
            now: self.database_now().as_millis(),
            granularity: None,
            allowance: 0,
            kept: i64::MAX / 4,
        };
        let events = kept.iter().flat_map(events_of);
        let numbered = events.zip(1..).map(|(event, line)| Event { line, ..event });
        let entries = |span: &api::Span| entries.get(&span.id).cloned().unwrap_or_default();
        let report = check(numbered.collect(), &spans, entries, &policy);
        for row in report.spans.iter().filter(|row| !row.findings.is_empty()) {
            self.report_violation(format!("the verifier says: {row:?}"));
        }
        for contradiction in &report.events {
            self.report_violation(format!("the verifier says: {contradiction:?}"));
        }
    }
}

/// The events of a span, which were compared with those of the providers.
fn events_of(span: &Span) -> Vec<Event> {
    let target = Target::from_ids(span.target.fields().map(|(_, id)| id.to_string()));
    let measures = serde_json::to_string(span.measures.as_slice()).expect("it is JSON");
    let measures = serde_json::from_str(&measures).expect("it is read as it is written");
    let event = |kind, id: Option<String>, moment: Timestamp| Event {
        line: 0,
        kind,
        target: target.clone(),
        id,
        moment: moment.as_millis(),
    };
    let text = |id: &Option<sampler_domain::EventId>| id.as_ref().map(ToString::to_string);
    let start = event(EventKind::Start(measures), text(&span.start_id), span.start);
    let stop = span
        .end
        .map(|end| event(EventKind::Stop, text(&span.end_id), end));
    std::iter::once(start).chain(stop).collect()
}
