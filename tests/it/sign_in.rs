//! What people can do to the token server without being signed in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::future::join_all;
use reqwest::header::{COOKIE, LOCATION, RETRY_AFTER, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use sampler_testkit::uaa::SigningKey;
use sampler_testkit::{Program, wait_until};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::landscape::{Landscape, PATIENCE};

/// How many may be signing in at a time.
const AT_ONCE: usize = 8;

/// A token server that takes codes, and answers when it is told to.
struct SlowTokenServer {
    address: String,
    asked: Arc<AtomicUsize>,
    answers: Arc<Semaphore>,
}

impl SlowTokenServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (asked, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let key = SigningKey::rsa("key-1").unwrap();
        let keys = json!({ "keys": [key.jwk()] });
        let description = json!({
            "issuer": address,
            "token_endpoint": format!("{address}/token"),
            "authorization_endpoint": format!("{address}/authorize"),
            "jwks_uri": format!("{address}/keys"),
        });
        let token = {
            let (asked, answers) = (Arc::clone(&asked), Arc::clone(&answers));
            async move || {
                asked.fetch_add(1, Ordering::Relaxed);
                answers.acquire().await.unwrap().forget();
                StatusCode::BAD_REQUEST
            }
        };
        let app = Router::new()
            .route(
                "/.well-known/openid-configuration",
                get(async move || Json(description)),
            )
            .route("/keys", get(async move || Json(keys)))
            .route("/token", post(token));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            address,
            asked,
            answers,
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    async fn receiver(&self, world: &Landscape) -> Program {
        let launch = world
            .receiver()
            .env("SECURED", "true")
            .env("SAMPLER_OIDC_ISSUER", &self.address)
            .env("SAMPLER_CONSOLE_KEY", "k".repeat(32))
            .env("SAMPLER_CONSOLE_CLIENT_ID", "console")
            .env("SAMPLER_CONSOLE_CLIENT_SECRET", "hush-hush-hush")
            .env("CLIENT_ID", "sampler")
            .env("CLIENT_SECRET", "hush-hush-hush");
        launch.start().await.unwrap()
    }
}

/// A browser that was sent to the token server, and is about to come back.
struct Returning {
    http: Client,
    address: String,
    cookie: String,
}

impl Returning {
    async fn new(receiver: &Program) -> Self {
        let http = Client::builder().redirect(Policy::none()).build().unwrap();
        let page = format!("{}/console/sign-in", receiver.base_url());
        let sent = http.get(page).send().await.unwrap();
        assert_eq!(sent.status(), StatusCode::SEE_OTHER);
        let cookie = sent.headers()[SET_COOKIE].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let location = Url::parse(sent.headers()[LOCATION].to_str().unwrap()).unwrap();
        let state = location.query_pairs().find(|(name, _)| name == "state");
        let state = state.unwrap().1.into_owned();
        Self {
            http,
            address: format!(
                "{}/console/callback?code=x&state={state}",
                receiver.base_url()
            ),
            cookie,
        }
    }

    async fn come_back(&self) -> Response {
        let request = self.http.get(&self.address).header(COOKIE, &self.cookie);
        request.send().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_asks_the_token_server_once_and_only_a_handful_of_attempts_do_at_a_time() {
    let world = Landscape::new("sign_in").await;
    let server = SlowTokenServer::start().await;
    let receiver = server.receiver(&world).await;

    let one = Returning::new(&receiver).await;
    let first = one.come_back();
    let others = async {
        wait_until("the first is there", PATIENCE, async || server.asked() == 1).await;
        let others = join_all((0..50).map(|_| one.come_back())).await;
        server.answers.add_permits(1);
        others
    };
    let (first, others) = tokio::join!(first, others);
    assert_eq!(first.status(), StatusCode::FORBIDDEN);
    for other in others {
        let status = other.status();
        assert!(
            status == StatusCode::BAD_REQUEST || status == StatusCode::SERVICE_UNAVAILABLE,
            "{status}"
        );
    }
    assert_eq!(server.asked(), 1);

    let mut many = Vec::new();
    for _ in 0..=AT_ONCE {
        many.push(Returning::new(&receiver).await);
    }
    let crowded = many.pop().unwrap();
    let taken = join_all(many.iter().map(Returning::come_back));
    let refused = async {
        wait_until("all are there", PATIENCE, async || {
            server.asked() == 1 + AT_ONCE
        })
        .await;
        let refused = crowded.come_back().await;
        server.answers.add_permits(AT_ONCE);
        refused
    };
    let (taken, refused) = tokio::join!(taken, refused);
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()[RETRY_AFTER], "5");
    assert!(
        taken
            .iter()
            .all(|answer| answer.status() == StatusCode::FORBIDDEN)
    );

    // It was not used: it can be tried again.
    server.answers.add_permits(1);
    assert_eq!(crowded.come_back().await.status(), StatusCode::FORBIDDEN);
    assert_eq!(server.asked(), 2 + AT_ONCE);
}
