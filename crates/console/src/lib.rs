//! The console: pages of the receiver for people.
//!
//! Pages are made on the server and readable without JavaScript. They show the answers of the API
//! within the same process ([`api`]), so its limits and scopes hold. [`session`] comes before every
//! page: it knows the person who is signed in, and that person's scopes.

mod address;
mod api;
mod assets;
mod attempts;
mod changes;
mod chart;
mod csv;
mod estimate;
mod form;
mod page;
mod pages;
mod parameters;
mod reference;
mod session;
mod show;
mod sign_in;
mod timeline;
mod visit;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::HeaderMap;
use http::header::{ACCEPT, VARY};
use sampler_domain::Units;
use sampler_oauth::CodeFlow;
use sampler_service::environment::{Clock, Random};
use sampler_service::http::not_found;
use sampler_service::security::Authenticator;

use assets::Assets;
use attempts::Attempts;
pub use reference::Reference;
pub use session::{KEY_LEN_MIN, Keys};

pub const PATH: &str = "/console";

/// Past numbers of due spans, and how long ago each was: the oldest first.
pub type PastBacklogs = Box<dyn Fn() -> Vec<(Duration, u64)> + Send + Sync>;

/// Whether sampling is paused, as far as it is known without asking.
pub type IsPaused = Box<dyn Fn() -> bool + Send + Sync>;

pub struct Parts {
    /// The routes of the API, which checks requests with the same authenticator.
    pub api: Router,
    /// Checks the tokens of people who sign in.
    pub authenticator: Authenticator,
    /// The sign-in of people; none where no tokens are needed.
    pub sign_in: Option<CodeFlow>,
    pub keys: Keys,
    /// Earlier counts of the backlog.
    pub past: PastBacklogs,
    pub is_paused: IsPaused,
    pub units: Units,
    pub clock: Arc<dyn Clock>,
    /// Randomness, for what nobody may guess.
    pub random: Arc<dyn Random>,
}

pub struct Console {
    parts: Parts,
    assets: Assets,
    attempts: Attempts,
}

impl Console {
    pub fn new(parts: Parts) -> Self {
        Self {
            parts,
            assets: Assets::embedded("/console/assets"),
            attempts: Attempts::default(),
        }
    }

    /// The routes of the console, all below [`PATH`], and the way to it from the root.
    pub fn routes(self) -> Router {
        let console = Arc::new(self);
        let pages = Router::new()
            .route("/console", get(pages::overview::show))
            .route("/console/", get(pages::overview::show))
            .route("/console/spans", get(pages::spans::list))
            .route("/console/spans/{id}", get(pages::span::show))
            .route(
                "/console/spans/{id}/resume",
                get(pages::actions::show_resume).post(pages::actions::resume),
            )
            .route(
                "/console/spans/{id}/skip",
                get(pages::actions::show_skip).post(pages::actions::skip),
            )
            .route(
                "/console/spans/{id}/usages/{usage}/resend",
                get(pages::resend::show).post(pages::resend::carry_out),
            )
            .route("/console/suspended", get(pages::suspended::show))
            .route(
                "/console/suspended/{cause}/resume",
                get(pages::actions::show_resume_of_cause).post(pages::actions::resume_cause),
            )
            .route("/console/usage", get(pages::usage::show))
            .route(
                "/console/control",
                get(pages::control::show).post(pages::control::set),
            )
            .route("/console/audit", get(pages::audit::show))
            .route("/console/sign-out", post(sign_in::end))
            .route("/console/{*rest}", get(pages::nothing))
            .layer(middleware::from_fn_with_state(
                Arc::clone(&console),
                session::require,
            ));
        // Without a session: it begins and ends here.
        let around = Router::new()
            .route("/", get(root))
            .route("/console/sign-in", get(sign_in::begin))
            .route("/console/callback", get(sign_in::complete))
            .route("/console/signed-out", get(sign_in::ended))
            .route("/console/assets/{name}", get(assets::serve));
        pages
            .merge(around)
            .layer(middleware::from_fn(page::protect))
            .with_state(console)
    }

    /// Whether nobody needs to sign in.
    fn is_open(&self) -> bool {
        self.parts.sign_in.is_none()
    }
}

/// Leads a browser to the console. For others there is nothing at the root.
async fn root(headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let answer = if accept.is_some_and(|accept| accept.contains("text/html")) {
        Redirect::to(PATH).into_response()
    } else {
        not_found().await.into_response()
    };
    ([(VARY, "accept")], answer).into_response()
}
