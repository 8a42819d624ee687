//! The client of the Cloud Controller's API (v3).

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use sampler_service::oauth::http::{describe, read_body};
use sampler_service::oauth::{
    AccessToken, ClientCredentials, Discoverer, FetchError, NoToken, TokenServer,
};
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::mapping::Mapping;
use super::usage_event::text;
use crate::connection::{credentials, secret_client, variable};
use crate::failure::Failure;
use crate::output::{printable, warn};

/// Holds the secret of the platform's client, unless a file does.
const SECRET_VARIABLE: &str = "SAMPLER_CF_CLIENT_SECRET";
/// Who has one of these sees all usage events. Anybody else gets empty lists.
const SCOPES: [&str; 3] = [
    "cloud_controller.global_auditor",
    "cloud_controller.admin_read_only",
    "cloud_controller.admin",
];
/// How long an answer may take: a page may have 5,000 rows.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);
/// In bytes.
const ANSWER_LEN_MAX: usize = 256 << 20;
/// How long a command asks again at its start.
const PATIENCE: Duration = Duration::from_mins(1);
/// The pauses between attempts, and the shortest and longest that a server can ask for.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
const PAUSE_ASKED_MIN: Duration = Duration::from_millis(100);
const PAUSE_ASKED_MAX: Duration = Duration::from_hours(1);

/// How long it is worth asking again.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Whether it keeps asking, whatever the answer.
    is_endless: Cell<bool>,
}

impl Patience {
    /// Everything has worked once.
    pub(super) fn be_endless(&self) {
        self.is_endless.set(true);
    }

    /// Attempts something until there is an answer, or until it is not worth asking again.
    pub(super) async fn until_answered<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, Trouble>,
    ) -> Result<T, Failure> {
        let (since, mut own, mut is_told) = (Instant::now(), PAUSE_FIRST, false);
        loop {
            let trouble = match attempt().await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            let pause = match trouble.asked {
                Some(asked) => asked.clamp(PAUSE_ASKED_MIN, PAUSE_ASKED_MAX),
                None => own,
            };
            if !self.is_endless.get() {
                let is_late = since.elapsed() + pause > PATIENCE;
                if !trouble.may_pass || is_late {
                    return Err(trouble.failure);
                }
            } else if !is_told {
                is_told = true;
                warn(&format!("{}; it is asked again", trouble.failure));
            }
            own = (own * 2).min(PAUSE_MAX);
            tokio::time::sleep(pause).await;
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) failure: Failure,
    /// Whether asking again may help.
    pub(super) may_pass: bool,
    /// The pause that the server asks for.
    pub(super) asked: Option<Duration>,
}

/// Whether an answer of this status may be another one later.
pub(super) fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..)
}

/// Whether the reason is the certificate of the server, which does not change by asking.
pub(super) fn is_certificate(why: &str) -> bool {
    why.contains("certificate")
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) document: Value,
}

impl Answer {
    /// The words of an error.
    pub(super) fn detail(&self) -> String {
        printable(text(&self.document, "/errors/0/detail").unwrap_or_default())
    }
}

#[derive(Debug)]
pub(super) struct Platform {
    api: Url,
    client_id: String,
    http: reqwest::Client,
    token: Arc<ClientCredentials>,
    pub(super) mapping: Mapping,
    pub(super) patience: Patience,
}

impl Platform {
    pub(super) fn new(
        api: Url,
        client_id: Option<String>,
        secret_file: Option<&Path>,
        mapping: Mapping,
    ) -> Result<Self, Failure> {
        let http = secret_client(&api, ANSWER_LIMIT)?;
        let client_id = client_id.ok_or_else(|| {
            Failure::Input("--cf-client-id names the platform's client".to_owned())
        })?;
        let secret = match secret_file {
            Some(path) => secret_in(path)?,
            None => variable(SECRET_VARIABLE),
        };
        let secret = secret.ok_or_else(|| {
            Failure::Input(format!(
                "--cf-client-secret-file or {SECRET_VARIABLE} must hold the secret of {client_id}"
            ))
        })?;
        let uaa = TokenServer::CloudFoundry(api.clone());
        let server = Discoverer::new(uaa, http.clone(), None);
        Ok(Self {
            token: credentials(client_id.clone(), secret, server),
            client_id,
            api,
            http,
            mapping,
            patience: Patience::default(),
        })
    }

    /// Makes sure that this is a platform, and that its client sees everything.
    pub(super) async fn check(&self) -> Result<(), Failure> {
        self.patience.until_answered(|| self.try_check()).await
    }

    async fn try_check(&self) -> Result<(), Trouble> {
        let root = self.send("/", &[], None).await?;
        if root.document.pointer("/links").is_none() {
            return Err(self.fatal("GET / names no links: this is not the API of a Cloud Foundry"));
        }
        let token = self.token().await?;
        let mut scopes = token.scope().unwrap_or_default().split(' ');
        if !scopes.any(|scope| SCOPES.contains(&scope)) {
            let (id, scope) = (printable(&self.client_id), SCOPES[0]);
            return Err(self.fatal(&format!(
                "its UAA gives the client {id} none of the scopes that see all usage events: the client \
                 needs {scope}"
            )));
        }
        Ok(())
    }

    /// Asks for something until it is answered 200, 404 or 422.
    pub(super) async fn get(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<Answer, Failure> {
        let attempt = || self.authorized(path, query);
        self.patience.until_answered(attempt).await
    }

    async fn authorized(&self, path: &str, query: &[(&str, String)]) -> Result<Answer, Trouble> {
        let token = self.token().await?;
        let answer = self.send(path, query, Some(&token)).await?;
        if answer.status != 401 {
            return Ok(answer);
        }
        // The next attempt has another one, unless this is brand new.
        self.token.refused(&token);
        let words = format!("GET {path} is answered 401: {}", answer.detail());
        Err(self.trouble(&words, true))
    }

    async fn token(&self) -> Result<AccessToken, Trouble> {
        self.token.token().await.map_err(|NoToken(error)| {
            let may_pass = match &error {
                FetchError::Unreachable(why) => !is_certificate(why),
                FetchError::Status { status, .. } => may_pass(*status),
                FetchError::Document(_) => false,
            };
            let id = printable(&self.client_id);
            self.trouble(&format!("no token for the client {id}: {error}"), may_pass)
        })
    }

    async fn send(
        &self,
        path: &str,
        query: &[(&str, String)],
        token: Option<&AccessToken>,
    ) -> Result<Answer, Trouble> {
        let mut url = self.api.clone();
        url.set_path(&format!("{}{path}", self.api.path().trim_end_matches('/')));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.http.get(url);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token.header());
        }
        let response = request
            .send()
            .await
            .map_err(|error| self.unreachable(error))?;
        self.read(path, response).await
    }

    async fn read(&self, path: &str, response: Response) -> Result<Answer, Trouble> {
        let status = response.status().as_u16();
        let [media_type, asked] = [CONTENT_TYPE, RETRY_AFTER]
            .map(|name| Some(response.headers().get(name)?.to_str().ok()?.to_owned()));
        let is_web_page = media_type.is_some_and(|it| it.contains("html"));
        let asked = asked.and_then(|seconds| seconds.trim().parse().ok());
        let body = read_body(response, ANSWER_LEN_MAX).await;
        let body = body.map_err(|error| self.unreachable(error))?;
        let body =
            body.ok_or_else(|| self.fatal(&format!("GET {path}: the answer is too long")))?;
        let document = serde_json::from_slice(&body);
        match (status, document) {
            (200 | 401 | 404 | 422, Ok(document)) => Ok(Answer { status, document }),
            (200, Err(error)) if !is_web_page => {
                let words = format!("the answer to GET {path} is cut or not JSON: {error}");
                Err(self.trouble(&words, true))
            }
            (200, Err(_)) => Err(self.fatal(&format!(
                "GET {path} is answered 200 with a web page: this is not the API of a Cloud Foundry"
            ))),
            (_, document) => {
                let document = document.unwrap_or_default();
                let said = Answer { status, document }.detail();
                let words = format!("GET {path} is answered {status} {said}");
                Err(Trouble {
                    asked: asked.map(Duration::from_secs),
                    ..self.trouble(words.trim_end(), may_pass(status))
                })
            }
        }
    }

    fn unreachable(&self, error: reqwest::Error) -> Trouble {
        let why = describe(error);
        let may_pass = !is_certificate(&why);
        self.trouble(&format!("it cannot be reached: {why}"), may_pass)
    }

    pub(super) fn fatal(&self, words: &str) -> Trouble {
        self.trouble(words, false)
    }

    fn trouble(&self, words: &str, may_pass: bool) -> Trouble {
        Trouble {
            failure: Failure::Unanswered(format!("Cloud Foundry at {}: {words}", self.api)),
            may_pass,
            asked: None,
        }
    }
}

/// The secret in a file, unless that is empty.
fn secret_in(path: &Path) -> Result<Option<SecretString>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::of_file(path, &error))?;
    let secret = text.trim_end_matches(['\r', '\n']);
    Ok((!secret.is_empty()).then(|| secret.into()))
}
