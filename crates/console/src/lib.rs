//! The console: pages of the receiver for people.
//!
//! Pages are made on the server and readable without JavaScript. They show the answers of the API
//! within the same process ([`api`]), so its limits and scopes hold. [`session::require`] comes before
//! every page: it knows the person who is signed in. All links are relative ([`visit::relative`]), so
//! that pages work below the prefix of a router.

mod api;
mod csv;
mod frame;
mod lists;
mod operating;
mod query;
mod session;
mod show;
mod sign_in;
mod span;
mod timeline;
mod visit;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::HeaderMap;
use http::header::{ACCEPT, VARY};
use sampler_domain::Units;
use sampler_service::environment::{Clock, Random};
use sampler_service::http::not_found;
use sampler_service::oauth::Client;
use sampler_service::security::Authenticator;

use api::Refusal;
pub use session::Keys;
use sign_in::Attempts;

pub const PATH: &str = "/console";

/// Whether sampling is paused, as far as it is known without asking.
pub type IsPaused = Box<dyn Fn() -> bool + Send + Sync>;

pub struct Parts {
    /// The routes of the API, which checks requests with the same authenticator.
    pub api: Router,
    /// Checks the tokens of people who sign in.
    pub authenticator: Authenticator,
    /// The client with which people sign in; none where no tokens are needed.
    pub sign_in: Option<Client>,
    pub keys: Keys,
    pub is_paused: IsPaused,
    pub units: Units,
    pub clock: Arc<dyn Clock>,
    /// Randomness, for what nobody may guess.
    pub random: Arc<dyn Random>,
}

pub struct Console {
    parts: Parts,
    attempts: Attempts,
}

impl Console {
    pub fn new(parts: Parts) -> Self {
        Self {
            parts,
            attempts: Attempts::default(),
        }
    }

    /// The routes of the console, all below [`PATH`], and the way to it from the root.
    pub fn routes(self) -> Router {
        let console = Arc::new(self);
        let mut pages = Router::new()
            .route("/console", get(operating::overview))
            .route("/console/", get(operating::overview))
            .route("/console/spans", get(lists::spans))
            .route("/console/spans/{id}", get(span::show))
            .route("/console/suspended", get(operating::suspended))
            .route("/console/usage", get(lists::usage))
            .route("/console/audit", get(lists::audit))
            .route("/console/sign-out", post(sign_in::end))
            .route("/console/{*rest}", get(async || Refusal::no_page()));
        for action in operating::ACTIONS {
            let path = format!("/console/{}/{{id}}/{}", action.0, action.1);
            pages = pages.route(&path, operating::page_and_form(action));
        }
        pages
            .layer(from_fn_with_state(Arc::clone(&console), session::require))
            // Without a session: it begins and ends here.
            .route("/", get(root))
            .route("/console/sign-in", get(sign_in::begin))
            .route("/console/callback", get(sign_in::complete))
            .route("/console/signed-out", get(sign_in::ended))
            .route("/console/assets/{release}/{name}", get(frame::file))
            .layer(from_fn_with_state(Arc::clone(&console), frame::complete))
            .with_state(console)
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
