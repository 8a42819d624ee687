//! The receiver: takes start and stop events from resource providers and keeps them as spans
//! (sections 3, 6.1 and 6.2 of the paper). It is stateless; any number of instances share a store.
//!
//! A request passes these, in this order: `sampler_service::security` (its token), [`admission`]
//! (whether the receiver can take it now), [`body`] (its size), [`json`] (its syntax), [`event`] (its
//! fields), the slack (its timestamp), the store. [`controllers`] decide the answer. What requests that
//! only read share is in [`reading`].

pub mod admission;
mod announce;
mod body;
pub mod controllers;
mod event;
mod json;
pub mod problems;
pub mod reading;
pub mod settings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::{get, post};
use sampler_abacus::Provisioning;
use sampler_domain::{Policy, Slack};
use sampler_service::environment::{Clock, Random};
use sampler_service::security::Authenticator;
use sampler_settings::receiver::{EventsSettings, LimitsSettings};
use sampler_store::{Events, Queries};

use admission::Admission;
use controllers::{events, mappings, spans, usages};

/// The settings of the receiver.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much is taken in.
    pub limits: LimitsSettings,
    /// What events may be like.
    pub events: EventsSettings,
    /// How far an event's timestamp may lie from now.
    pub slack: Slack,
    /// The granularity and the grace, for the first `due_at` of a span.
    pub policy: Policy,
    /// How long the server may still execute a write whose outcome is unknown. `Retry-After` is at
    /// least as long.
    pub unknown_for: Duration,
    /// Whether mappings need the scope for all resources.
    pub mappings_full_scope: bool,
}

/// What the receiver works with.
pub struct Receiver {
    /// Where the spans are kept.
    pub store: Arc<dyn Events>,
    /// What is shown of them.
    pub queries: Arc<dyn Queries>,
    /// Where mappings go, if anywhere.
    pub provisioning: Option<Provisioning>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Chance, for ids.
    pub random: Arc<dyn Random>,
    /// The settings.
    pub options: Options,
    /// How many requests are served at a time, and whose turn it is.
    pub admission: Admission,
    /// Whether the indexes exist and the slack is announced.
    prepared: AtomicBool,
}

impl Receiver {
    /// A receiver that keeps nothing before it is told that the store is prepared.
    pub fn new(
        store: Arc<dyn Events>,
        queries: Arc<dyn Queries>,
        provisioning: Option<Provisioning>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        options: Options,
    ) -> Arc<Self> {
        let admission = Admission::new(options.limits.inflight, store.ranges());
        let prepared = AtomicBool::new(false);
        Arc::new(Self {
            store,
            queries,
            provisioning,
            clock,
            random,
            options,
            admission,
            prepared,
        })
    }

    /// Says that the indexes are in place, and that the workers know how old events may be: from now
    /// on events are taken. Programs call [`prepare`](Self::prepare), which sees to the latter.
    pub fn set_prepared(&self) {
        self.prepared.store(true, Ordering::Release);
    }

    /// Whether events are taken.
    pub fn is_prepared(&self) -> bool {
        self.prepared.load(Ordering::Acquire)
    }

    /// The routes of the API. `authenticator` checks the token of a request before its body is read.
    pub fn routes(self: Arc<Self>, authenticator: Authenticator) -> Router {
        // An original takes a slash behind each, too, so clients may send one. These are addresses
        // of their own: no path is rewritten, so what a router in front decided by it holds.
        let routes = Router::new()
            .route("/v1/events/start", post(events::start))
            .route("/v1/events/start/", post(events::start))
            .route("/v1/events/stop", post(events::stop))
            .route("/v1/events/stop/", post(events::stop))
            .route("/v1/mappings", post(mappings::map))
            .route("/v1/mappings/", post(mappings::map))
            .route("/v1/spans", get(spans::list))
            .route("/v1/spans/{id}", get(spans::get))
            .route("/v1/spans/{id}/usages", get(usages::list));
        let receiver = self;
        Authenticator::protect(routes).with_state(Api {
            receiver,
            authenticator,
        })
    }
}

/// What each route is given.
#[derive(Clone)]
struct Api {
    receiver: Arc<Receiver>,
    authenticator: Authenticator,
}

impl FromRef<Api> for Arc<Receiver> {
    fn from_ref(api: &Api) -> Self {
        Self::clone(&api.receiver)
    }
}

impl FromRef<Api> for Authenticator {
    fn from_ref(api: &Api) -> Self {
        api.authenticator.clone()
    }
}
