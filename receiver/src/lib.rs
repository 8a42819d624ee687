//! The receiver: takes start and stop events from resource providers and keeps them as spans
//! (sections 3, 6.1 and 6.2 of the paper). It is stateless; any number of instances share a store.
//!
//! A request goes through these, in this order: the door of `sampler_service::security` (who is
//! it?), [`admission`] (is there room?), [`body`] (is it of a fit size?), [`json`] (is it JSON?),
//! [`event`] (are the fields what they should be?), the slack, the store. What it is answered is
//! decided in [`controllers`].

pub mod admission;
mod body;
pub mod controllers;
mod event;
mod json;
pub mod settings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::post;
use sampler_abacus::Provisioning;
use sampler_domain::{Policy, Slack};
use sampler_service::environment::{Clock, Random};
use sampler_service::security::Door;
use sampler_store::SpanStore;

use admission::Admission;

/// How the receiver goes about it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The longest body, in bytes, before and after it is unpacked.
    pub max_payload: usize,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// Requests in flight at the most.
    pub max_inflight: usize,
    /// How far an event's timestamp may lie from now.
    pub slack: Slack,
    /// By which a span's first due moment is worked out.
    pub policy: Policy,
    /// Answers 201 to an `id` seen before where only timestamp or measures differ.
    pub lenient_repeats: bool,
    /// Lets a span begin before the end of the target's previous one.
    pub allow_overlap: bool,
    /// How long what the store gave no final answer to may still be carried out. Who comes back
    /// before that may be refused, and then find the event kept.
    pub unknown_for: Duration,
}

/// What the receiver works with.
pub struct Receiver {
    /// Where the spans are kept.
    pub store: Arc<dyn SpanStore>,
    /// Where mappings go, if anywhere.
    pub provisioning: Option<Provisioning>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Chance, for ids.
    pub random: Arc<dyn Random>,
    /// How to go about it.
    pub options: Options,
    /// Who may come in.
    pub admission: Admission,
    /// Whether the indexes are in place on which the answers rest.
    prepared: AtomicBool,
}

impl Receiver {
    /// A receiver that keeps nothing before it is told that the store is prepared.
    pub fn new(
        store: Arc<dyn SpanStore>,
        provisioning: Option<Provisioning>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        options: Options,
    ) -> Arc<Self> {
        let admission = Admission::new(options.max_inflight);
        let prepared = AtomicBool::new(false);
        Arc::new(Self {
            store,
            provisioning,
            clock,
            random,
            options,
            admission,
            prepared,
        })
    }

    /// Says that the indexes are in place: from now on events are taken.
    pub fn set_prepared(&self) {
        self.prepared.store(true, Ordering::Release);
    }

    /// Whether events are taken.
    pub fn is_prepared(&self) -> bool {
        self.prepared.load(Ordering::Acquire)
    }

    /// The routes of the API, behind `door`: whoever is to be kept out is kept out there, before a
    /// body is read.
    pub fn routes(self: Arc<Self>, door: Door) -> Router {
        let routes = Router::new()
            .route("/v1/events/start", post(controllers::start))
            .route("/v1/events/stop", post(controllers::stop))
            .route("/v1/mappings", post(controllers::map));
        let receiver = self;
        Door::guard(routes).with_state(Api { receiver, door })
    }
}

/// What each route is given.
#[derive(Clone)]
struct Api {
    receiver: Arc<Receiver>,
    door: Door,
}

impl FromRef<Api> for Arc<Receiver> {
    fn from_ref(api: &Api) -> Self {
        Self::clone(&api.receiver)
    }
}

impl FromRef<Api> for Door {
    fn from_ref(api: &Api) -> Self {
        api.door.clone()
    }
}
