//! The console: pages of the receiver for people.
//!
//! Pages are made on the server and readable without JavaScript. They show the answers of the API
//! within the same process ([`api`]), so its limits and scopes hold. [`session`] comes before every
//! page: it knows the person who is signed in, and that person's scopes. All links are relative
//! ([`address::relative`]), so that pages work below the prefix of a router.

mod address;
mod api;
mod assets;
mod attempts;
mod cookies;
mod csv;
mod form;
mod page;
mod pages;
mod parameters;
mod session;
mod show;
mod sign_in;
mod timeline;
mod view;
mod visit;

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::HeaderMap;
use http::header::{ACCEPT, VARY};
use sampler_domain::Units;
use sampler_service::environment::{Clock, Random};
use sampler_service::http::not_found;
use sampler_service::oauth::CodeFlow;
use sampler_service::security::Authenticator;

use assets::Assets;
use attempts::Attempts;
pub use cookies::Keys;
use pages::acts::{self, ActKind};

pub const PATH: &str = "/console";

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
            assets: Assets::embedded(),
            attempts: Attempts::default(),
        }
    }

    /// The routes of the console, all below [`PATH`], and the way to it from the root.
    pub fn routes(self) -> Router {
        let console = Arc::new(self);
        let act = acts::routes;
        let pages = Router::new()
            .route("/console", get(pages::overview::show))
            .route("/console/", get(pages::overview::show))
            .route("/console/spans", get(pages::spans::list))
            .route("/console/spans/{id}", get(pages::span::show))
            .route("/console/spans/{id}/resume", act(ActKind::Resume))
            .route("/console/spans/{id}/skip", act(ActKind::Skip))
            .route("/console/spans/{id}/resend", act(ActKind::Resend))
            .route("/console/suspended", get(pages::suspended::show))
            .route(
                "/console/suspended/{cause}/resume",
                act(ActKind::ResumeCause),
            )
            .route("/console/usage", get(pages::usage::show))
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
        Redirect::to("console").into_response()
    } else {
        not_found().await.into_response()
    };
    ([(VARY, "accept")], answer).into_response()
}
