//! The receiver: takes start and stop events from resource providers and keeps them as spans
//! (sections 3, 6.1 and 6.2 of the paper). It is stateless; any number of instances share a store.
//!
//! An event passes, in this order:
//!
//! 1. the token (`sampler_service::security`),
//! 2. the query; whether the token may write at all; the body ([`body`]),
//! 3. the limit `MAX_INFLIGHT` ([`admission`]): a request counts only once its body is complete,
//! 4. for a large body, the client's turn,
//! 5. the JSON, the token's scope for the resource, the fields ([`json`], [`event`]),
//! 6. for any other body, the client's turn,
//! 7. whether the database is prepared, the slack, and for a start the rate of new starts ([`decision`]; what
//!    the slack or the rate refuses is accepted if it repeats a kept event),
//! 8. the store.
//!
//! Each event of a batch ([`batch`]) passes 4 to 8, with turns and commands of its own kind, up to 512
//! concurrently. Events of one instance are processed in their order. Requests that read pass 1, then [`reading`];
//! actions of operators pass 1 and 2, then [`acts`].

mod acts;
mod admission;
mod batch;
mod body;
mod cloud_event;
pub mod console;
mod control;
mod decision;
mod event;
mod events;
mod failures;
mod json;
mod mappings;
mod openapi;
mod parameters;
pub mod problems;
pub mod reading;
mod span_actions;
mod spans;
mod suspended;
mod usages;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ::metrics::gauge;
use axum::Router;
use axum::extract::{FromRef, FromRequestParts};
use axum::http::{Uri, request};
use axum::routing::post;
use sampler_domain::{Policy, Slack};
use sampler_service::environment::{Clock, Random};
use sampler_service::metrics;
use sampler_service::problem::{self, Problem};
use sampler_service::security::{Authenticator, Grant};
use sampler_settings::{Of, Program, Settings};
use sampler_steering::Steering;
use sampler_store::{Events, Operating, Reading};
use sampler_upstream::Provisioning;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use admission::{Admission, Client};
use parameters::Parameters;

/// The receiver on the command line.
pub const PROGRAM: Program = Program {
    of: Of::Receiver,
    name: "sampler-receiver",
    about: "Takes start and stop events over HTTP and keeps them as spans.",
    version: env!("CARGO_PKG_VERSION"),
    printouts: &[("--help-metrics", || metrics::document(PROGRAM.name))],
};

/// The pause before what could not be read is read again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What a receiver goes by.
#[derive(Clone, Debug)]
pub struct Options {
    pub settings: Settings,
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
    pub settings: Settings,
    unknown_for: Duration,
    /// The granularity and the grace, for the first `due_at` of a span and the backlog.
    policy: Policy,
    /// How far an event's timestamp may be from now.
    slack: Slack,
    /// Limits requests, and gives clients their turns.
    admission: Admission,
    events: events::Counters,
    /// The control and the backlog, as this receiver has read them last.
    pub steering: Arc<Steering>,
    /// Whether the indexes exist, and the control and the age of events were read.
    prepared: AtomicBool,
}

impl Receiver {
    /// A receiver. It accepts no events before [`set_prepared`](Self::set_prepared).
    pub fn new(parts: Parts, options: Options) -> Arc<Self> {
        let settings = options.settings;
        Arc::new(Self {
            unknown_for: options.unknown_for,
            policy: settings.sampling.policy(),
            slack: settings.slack.slack(),
            admission: Admission::new(settings.limits.inflight),
            events: events::Counters::new(),
            steering: Steering::new(Arc::clone(&parts.operating)),
            prepared: AtomicBool::new(false),
            parts,
            settings,
        })
    }

    /// Reads the control, and how old events may be; then the receiver takes events. The indexes must exist. Tries
    /// again until `given_up` ends. Returns whether the receiver takes events.
    pub async fn prepare(&self, given_up: impl Future<Output = ()>) -> bool {
        let prepared = async {
            self.steering.poll().await;
            while !(self.steering.is_known() && self.steering.knows_event_age()) {
                tokio::time::sleep(RETRY_PAUSE).await;
                self.steering.poll().await;
            }
        };
        tokio::select! {
            () = given_up => return false,
            () = prepared => {}
        }
        self.set_prepared();
        true
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

    /// Sets the metrics of what waits now.
    pub fn measure(&self) {
        gauge!("sampler_queue_events").set(self.admission.waiting_events() as f64);
        self.steering.measure(self.parts.clock.now(), self.month());
    }

    /// The routes of the API. `authenticator` checks the token of a request before its body is read.
    pub fn routes(self: Arc<Self>, authenticator: Authenticator) -> Router {
        let (routes, description) = &*ROUTES;
        let api = Api {
            receiver: self,
            authenticator,
        };
        // The original also accepts a slash at the end of each path. The paths with a slash are routes
        // of their own and not rewritten, so that a router in front sees the path that is served.
        let routes = routes
            .clone()
            .route("/v1/events/", post(batch::post))
            .route("/v1/events/start/", post(events::start))
            .route("/v1/events/stop/", post(events::stop))
            .route("/v1/events/update/", post(events::update))
            .route("/v1/mappings/", post(mappings::map));
        Authenticator::require_token_elsewhere(routes)
            .with_state(api)
            .merge(description.clone())
    }
}

/// The routes of the API, and of what describes it. To make them takes longer than all else when a program
/// starts, and tests make many receivers.
static ROUTES: LazyLock<(Router<Api>, Router)> = LazyLock::new(|| {
    let (routes, document) = described().split_for_parts();
    (routes, openapi::routes(&document).merge(problem::routes()))
});

/// The routes of the API, each with its description.
fn described() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(openapi::Base::openapi())
        .routes(routes!(batch::post))
        .routes(routes!(events::start))
        .routes(routes!(events::stop))
        .routes(routes!(events::update))
        .routes(routes!(mappings::map))
        .routes(routes!(spans::list))
        .routes(routes!(spans::get))
        .routes(routes!(usages::list))
        .routes(routes!(usages::sums))
        .routes(routes!(suspended::list))
        .routes(routes!(suspended::get))
        .routes(routes!(suspended::resume))
        .routes(routes!(span_actions::resume))
        .routes(routes!(span_actions::skip))
        .routes(routes!(span_actions::resend))
        .routes(routes!(usages::unconfirmed))
        .routes(routes!(usages::resend))
        .routes(routes!(acts::list))
        .routes(routes!(control::backlog))
        .routes(routes!(control::get, control::put))
}

#[derive(Clone)]
struct Api {
    receiver: Arc<Receiver>,
    authenticator: Authenticator,
}

impl FromRef<Api> for Authenticator {
    fn from_ref(api: &Api) -> Self {
        api.authenticator.clone()
    }
}

/// A request whose token was checked: who serves it, what the token allows, and its address.
struct Caller {
    receiver: Arc<Receiver>,
    grant: Grant,
    uri: Uri,
}

impl Caller {
    fn client(&self) -> Client {
        Client::of(&self.grant, "")
    }

    fn parameters(&self) -> Parameters {
        Parameters::of(&self.uri)
    }
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut request::Parts, api: &Api) -> Result<Self, Problem> {
        Ok(Self {
            receiver: Arc::clone(&api.receiver),
            grant: Grant::from_request_parts(parts, api).await?,
            uri: parts.uri.clone(),
        })
    }
}
