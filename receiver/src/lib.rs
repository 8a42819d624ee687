//! The receiver: takes start and stop events from resource providers and keeps them as spans
//! (sections 3, 6.1 and 6.2 of the paper). It is stateless; any number of instances share a store.
//!
//! An event passes, in this order:
//!
//! 1. the token: each handler takes a `Grant`, which axum makes of the request's head
//!    (`sampler_service::security`),
//! 2. the query; whether the token may write at all (for a batch before the query); the body ([`body`]),
//! 3. the limit `MAX_INFLIGHT` ([`admission`]): a request counts only once its body is complete,
//! 4. for a large body, the client's turn ([`admission`]),
//! 5. the JSON ([`json`]),
//! 6. the token's scope for the resource,
//! 7. the fields ([`event`]),
//! 8. for any other body, the client's turn,
//! 9. whether the database is prepared, and the slack,
//! 10. for a start, the rate of new starts (what the slack or the rate refuses is accepted if it repeats a kept event),
//! 11. the store.
//!
//! Each event of a batch ([`batch`]) passes 4 to 11, with turns and commands of its own kind, up to 512 concurrently.
//! Events of one target are processed in their order.
//!
//! [`controllers`] carry this out and choose the answer: 4 to 8 is `Receiver::admit` in `controllers/mod.rs`,
//! 9 to 11 `Receiver::keep` in `controllers/events/decision.rs`. Requests that read pass 1, then [`reading`]; actions
//! of operators pass 1 and 2, then [`actions`].

mod actions;
pub mod admission;
mod batch;
mod body;
mod cloud_event;
pub mod console;
mod control_body;
pub mod controllers;
mod errors;
mod event;
mod form;
mod json;
mod metrics;
mod openapi;
mod prepare;
pub mod problems;
pub mod reading;
pub mod settings;
mod steered;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::post;
use sampler_domain::{Policy, Slack};
use sampler_service::environment::{Clock, Random};
use sampler_service::problem;
use sampler_service::security::Authenticator;
use sampler_settings::ReceiverSettings;
use sampler_steering::Steering;
use sampler_store::{Events, Operating, Reading};
use sampler_upstream::Provisioning;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use admission::Admission;
use controllers::{
    audit, backlog, batches, cause_actions, control as control_routes, events, mappings,
    span_actions, spans, sums, suspended, unconfirmed, usages,
};

/// What a receiver goes by.
#[derive(Clone, Debug)]
pub struct Options {
    pub settings: ReceiverSettings,
    /// How long the server may still execute a write whose outcome is unknown. `Retry-After` is at
    /// least as long.
    pub unknown_for: Duration,
}

/// The parts that a receiver is made of.
#[derive(Clone)]
pub struct Parts {
    pub events: Arc<dyn Events>,
    /// The store, for reading spans, their usages and the audit trail.
    pub reading: Arc<dyn Reading>,
    /// The store of what operators do, of the control and of the backlog.
    pub operating: Arc<dyn Operating>,
    /// Takes mappings, if anything does.
    pub provisioning: Option<Provisioning>,
    pub clock: Arc<dyn Clock>,
    /// Randomness, for ids and for `Retry-After`.
    pub random: Arc<dyn Random>,
}

pub struct Receiver {
    pub parts: Parts,
    pub settings: ReceiverSettings,
    unknown_for: Duration,
    /// The granularity and the grace, for the first `due_at` of a span and the backlog.
    policy: Policy,
    /// How far an event's timestamp may be from now.
    slack: Slack,
    /// Limits requests, and gives clients their turns.
    pub admission: Admission,
    /// The control and the backlog, as this receiver has read them last.
    pub steering: Arc<Steering>,
    /// Whether the indexes exist, and the control and the age of events were read.
    prepared: AtomicBool,
}

impl Receiver {
    /// A receiver. It accepts no events before [`set_prepared`](Self::set_prepared).
    pub fn new(parts: Parts, options: Options) -> Arc<Self> {
        let Options {
            settings,
            unknown_for,
        } = options;
        let admission = Admission::new(settings.limits.inflight);
        let (policy, slack) = (settings.sampling.policy(), settings.slack.slack());
        let steering = Steering::new(Arc::clone(&parts.operating));
        let prepared = AtomicBool::new(false);
        Arc::new(Self {
            parts,
            settings,
            unknown_for,
            policy,
            slack,
            admission,
            steering,
            prepared,
        })
    }

    /// Accepts events from now on. Programs call [`prepare`](Self::prepare), which comes to this once
    /// everything is prepared.
    pub fn set_prepared(&self) {
        self.prepared.store(true, Ordering::Release);
    }

    /// Whether events are accepted.
    pub fn is_prepared(&self) -> bool {
        self.prepared.load(Ordering::Acquire)
    }

    /// The routes of the API. `authenticator` checks the token of a request before its body is read.
    pub fn routes(self: Arc<Self>, authenticator: Authenticator) -> Router {
        let (routes, description) = &*ROUTES;
        let served = self.served(routes.clone(), authenticator);
        served.merge(description.clone())
    }

    fn served(self: Arc<Self>, routes: Router<Api>, authenticator: Authenticator) -> Router {
        // The original also accepts a slash at the end of each path. The paths with a slash are routes
        // of their own and not rewritten, so that a router in front sees the path that is served.
        let routes = routes
            .route("/v1/events/", post(batches::post))
            .route("/v1/events/start/", post(events::start))
            .route("/v1/events/stop/", post(events::stop))
            .route("/v1/events/update/", post(events::update))
            .route("/v1/mappings/", post(mappings::map));
        let receiver = self;
        Authenticator::require_token_elsewhere(routes).with_state(Api {
            receiver,
            authenticator,
        })
    }
}

/// The routes of the API, and of what describes it. To make them takes longer than all else when a program
/// starts, and tests make many receivers.
static ROUTES: LazyLock<(Router<Api>, Router)> = LazyLock::new(|| {
    let (routes, document) = described().split_for_parts();
    let description = openapi::routes(&document).merge(openapi::docs::routes());
    (routes, description.merge(problem::routes(problems::all())))
});

/// The routes of the API, each with its description.
fn described() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(batches::post))
        .routes(routes!(events::start))
        .routes(routes!(events::stop))
        .routes(routes!(events::update))
        .routes(routes!(mappings::map))
        .routes(routes!(spans::list))
        .routes(routes!(spans::get))
        .routes(routes!(usages::list))
        .routes(routes!(sums::list))
        .routes(routes!(suspended::list))
        .routes(routes!(suspended::get))
        .routes(routes!(cause_actions::resume))
        .routes(routes!(span_actions::resume))
        .routes(routes!(span_actions::skip))
        .routes(routes!(span_actions::resend))
        .routes(routes!(unconfirmed::list))
        .routes(routes!(unconfirmed::resend))
        .routes(routes!(audit::list))
        .routes(routes!(backlog::get))
        .routes(routes!(control_routes::get, control_routes::put))
}

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
