//! The console of a real receiver, in a real browser and without one.

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use sampler_testkit::abacus::Fault;
use sampler_testkit::build::{start_event, stop_event, with};
use sampler_testkit::node::OidcProvider;
use sampler_testkit::node::visit;
use sampler_testkit::program::Launch;
use sampler_testkit::{Program, now_millis, wait_until};
use serde_json::{Value, json};

use crate::landscape::{DAY, HOUR, Landscape, PATIENCE, status};

const ORGANIZATION: &str = "org";
const CLIENT: &str = "sampler-console";
const SECRET: &str = "hush: 100% +secret/of&ours";
const SCOPE: &str = "openid abacus.sampler.read abacus.sampler.admin";

/// An id that is text in a page and nothing else.
const HOSTILE: &str = "<script>alert(1)</script>\"'\u{202e}\u{2066}";

async fn start(world: &Landscape, receiver: &Program, event: &Value) -> String {
    let event = with(event.clone(), "organization_id", ORGANIZATION);
    let started = world.post(receiver, "/v1/events/start", &event).await;
    assert_eq!(started.status().as_u16(), 201);
    let location = started.headers()[LOCATION].to_str().unwrap();
    location.rsplit('/').next().unwrap().to_owned()
}

async fn sampled_to(world: &Landscape, receiver: &Program, span: &str) -> Value {
    let span = world.json(receiver, &format!("/v1/spans/{span}")).await;
    span["sampled_to"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_what_the_api_answers_to_everybody() {
    let world = Landscape::new("console").await;
    let receiver = world.ready_receiver().await;
    let _worker = world.worker().start().await.unwrap();
    let begin = now_millis() - 2 * DAY - HOUR / 2;
    let late = start(&world, &receiver, &start_event(1, begin)).await;
    let hostile = with(start_event(2, begin), "resource_instance_id", HOSTILE);
    let open = start(&world, &receiver, &hostile).await;
    for span in [&late, &open] {
        // By hours, up to the last boundary, so that nothing comes while pages are compared.
        wait_until("it is sampled", PATIENCE, async || {
            sampled_to(&world, &receiver, span).await.as_i64() > Some(begin + 2 * DAY - HOUR / 2)
        })
        .await;
    }
    let stop = stop_event(1, begin + DAY + 1);
    let stop = with(stop, "organization_id", ORGANIZATION);
    world.take(&receiver, "/v1/events/stop", &stop).await;
    world.until_complete(1).await;
    let known = json!({
        "base": receiver.base_url(),
        "organization": ORGANIZATION,
        "spans": [late, open],
        "hostile": open,
        "pages": {
            "overview": "/console",
            "search": "/console/spans",
            "spans": format!("/console/spans?organization_id={ORGANIZATION}"),
            "audit": "/console/audit",
            "usage": "/console/usage",
            "suspended-none": "/console/suspended",
            "sums": format!("/console/usage?organization_id={ORGANIZATION}&window=day&group_by=plan_id&from={}&to={}", begin - DAY, begin + 3 * DAY),
            "wrong": "/console/spans?plan_id=x",
            "nothing": "/console/nothing",
        },
    });
    for name in ["pages", "unscripted", "keyboard", "habits"] {
        visit(name, &known).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_described_and_tried_in_a_browser() {
    let world = Landscape::new("console_docs").await;
    let receiver = world.ready_receiver().await;
    start(&world, &receiver, &start_event(1, now_millis())).await;
    let known = json!({ "base": receiver.base_url(), "organization": ORGANIZATION });
    visit("docs", &known).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_resumed_and_usages_skipped_in_a_browser() {
    let world = Landscape::new("console_acts").await;
    let receiver = world.ready_receiver().await;
    let _worker = world.worker().start().await.unwrap();
    for (status, plan) in [(400, "large"), (422, "small <b>")] {
        world
            .abacus
            .fault(Fault::status(status).only_where("plan_id", plan));
    }
    let begin = now_millis() - DAY - HOUR / 2;
    let mut spans = Vec::new();
    for number in 1..=5 {
        let plan = if number <= 3 { "large" } else { "small <b>" };
        let event = with(start_event(number, begin), "plan_id", plan);
        spans.push(start(&world, &receiver, &event).await);
    }
    wait_until("all are suspended", PATIENCE, async || {
        let backlog = world.json(&receiver, "/v1/backlog").await;
        backlog["suspended"] == 5
    })
    .await;
    let known = json!({ "base": receiver.base_url(), "span": spans[4], "plan": "large" });
    visit("skip", &known).await.unwrap();
    world.abacus.clear_faults();
    visit("resume", &known).await.unwrap();
    visit("resend", &known).await.unwrap();
    let span = format!("/v1/spans/{}", spans[0]);
    // By hours, up to the last boundary: at least half an hour less than a day.
    wait_until("it is billed", PATIENCE, async || {
        let span = world.json(&receiver, &span).await;
        span["proof"]["billed"].as_i64() >= Some(DAY - HOUR / 2)
    })
    .await;
}

/// A receiver at which people sign in.
fn secured(launch: Launch, provider: &OidcProvider) -> Launch {
    launch
        .env("SECURED", "true")
        .env("HEALTHCHECK_SECURED", "false")
        .env("SAMPLER_OIDC_ISSUER", provider.issuer())
        .env("SAMPLER_TOKEN_AUDIENCE", "urn:sampler")
        .env("CLIENT_ID", "sampler")
        .env("CLIENT_SECRET", "of the program")
        .env("SAMPLER_CONSOLE_CLIENT_ID", CLIENT)
        .env("SAMPLER_CONSOLE_CLIENT_SECRET", SECRET)
}

fn with_key(launch: Launch) -> Launch {
    let keys = format!("{}, {}", "n".repeat(32), "o".repeat(40));
    launch.env("SAMPLER_CONSOLE_KEY", keys)
}

/// A browser without a face: it keeps cookies, and follows where it is sent.
struct Visitor {
    http: Client,
    cookies: Vec<(String, String)>,
}

impl Visitor {
    fn new() -> Self {
        let http = Client::builder().redirect(Policy::none()).timeout(PATIENCE);
        Self {
            http: http.build().unwrap(),
            cookies: Vec::new(),
        }
    }

    async fn send(&mut self, url: &str, form: Option<&str>) -> Response {
        let cookies = self.cookies.iter();
        let cookies: Vec<_> = cookies
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let request = match form {
            Some(form) => {
                let request = self.http.post(url).body(form.to_owned());
                request.header("content-type", "application/x-www-form-urlencoded")
            }
            None => self.http.get(url),
        };
        let request = request.header(COOKIE, cookies.join("; "));
        let response = request.send().await.unwrap();
        for cookie in response.headers().get_all(SET_COOKIE) {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            if !value.is_empty() {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        response
    }

    /// Follows redirects, to the address where they end.
    async fn follow(&mut self, url: &str, form: Option<&str>) -> (String, u16, String) {
        let mut url = reqwest::Url::parse(url).unwrap();
        let mut response = self.send(url.as_str(), form).await;
        for _ in 0..20 {
            let Some(location) = response.headers().get(LOCATION) else {
                break;
            };
            url = url.join(location.to_str().unwrap()).unwrap();
            // The claims of a token begin so behind a dot. Codes and states are random and have no dot.
            assert!(!url.as_str().contains(".eyJ"), "a token is in an address");
            response = self.send(url.as_str(), None).await;
        }
        let status = response.status().as_u16();
        (url.to_string(), status, response.text().await.unwrap())
    }

    /// Wants to see a page, signs in with this name, and gets where that leads.
    async fn sign_in(&mut self, page: &str, name: &str) -> (String, u16, String) {
        let (login, _, _) = self.follow(page, None).await;
        assert!(login.contains("/interaction/"), "{login}");
        let form = format!("prompt=login&login={name}&password=any");
        let (consent, status, text) = self.follow(&login, Some(&form)).await;
        assert!(
            consent.contains("/interaction/"),
            "{consent} {status} {text}"
        );
        self.follow(&consent, Some("prompt=consent")).await
    }

    /// Whether it has a session.
    fn is_signed_in(&self) -> bool {
        let mut names = self.cookies.iter().map(|(name, _)| name);
        names.any(|name| name == "sampler_console")
    }

    /// What a page is answered that is asked for with the cookies of now, whatever comes of it.
    async fn status(&self, page: &str) -> u16 {
        let mut same = Self::new();
        same.cookies.clone_from(&self.cookies);
        same.send(page, None).await.status().as_u16()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn people_sign_in_at_a_certified_provider_and_see_what_their_scopes_allow() {
    let world = Landscape::new("console_oidc").await;
    // The spans come from a receiver that needs no tokens.
    let plain = world.ready_receiver().await;
    let begin = now_millis() - HOUR;
    let postgres = start(&world, &plain, &start_event(1, begin)).await;
    let redis = with(start_event(2, begin), "resource_id", "redis");
    let redis = start(&world, &plain, &redis).await;
    let people = json!({ "nobody": "openid", "paula": "openid abacus.sampler.postgres.read" });
    let provider = OidcProvider::for_people((CLIENT, SECRET, SCOPE), &people, 300)
        .await
        .unwrap();
    let launch = || with_key(secured(world.receiver(), &provider));
    let receiver = world.ready(launch()).await;
    let base = receiver.base_url();
    let search = format!("{base}/console/spans?organization_id={ORGANIZATION}");

    let mut alice = Visitor::new();
    let (url, status, text) = alice.sign_in(&search, "alice").await;
    assert_eq!((url.as_str(), status), (search.as_str(), 200), "{text}");
    assert_eq!(text.matches("data-test=\"span-row\"").count(), 2);
    assert!(text.contains("alice") && !text.contains("eyJ"));

    // A scope of one resource: the others do not exist.
    let mut paula = Visitor::new();
    let (_, _, text) = paula.sign_in(&search, "paula").await;
    assert_eq!(text.matches("data-test=\"span-row\"").count(), 1);
    for (span, expected) in [(&postgres, 200), (&redis, 404)] {
        let page = format!("{base}/console/spans/{span}");
        assert_eq!(paula.status(&page).await, expected);
    }

    // Nothing of the whole is told, and nothing can be done.
    let (_, status, text) = paula.follow(&format!("{base}/console"), None).await;
    assert_eq!(status, 200);
    let parts = ["backlog", "month-close", "sampling", "causes"];
    let told = parts.map(|part| {
        let part = text.split(&format!("data-test=\"{part}\"")).nth(1);
        part.is_some_and(|part| {
            let part = part.split("</section>").next().unwrap_or_default();
            !part.contains("data-test=\"no-part\"")
        })
    });
    assert_eq!(told, [false, false, false, true], "{text}");
    for page in [&format!("spans/{postgres}/resume"), "audit"] {
        let address = format!("{base}/console/{page}");
        assert_eq!(paula.status(&address).await, 403, "{address}");
    }

    // Without a scope of Sampler there is no session.
    let mut nobody = Visitor::new();
    let (_, status, text) = nobody.sign_in(&search, "nobody").await;
    assert_eq!(status, 403, "{text}");
    assert!(!nobody.is_signed_in());

    // A cookie is no key to the API, and what comes with a state of somebody else signs nobody in.
    let list = format!("{base}/v1/spans?organization_id={ORGANIZATION}");
    assert_eq!(alice.status(&list).await, 401);
    let mut stranger = Visitor::new();
    for query in ["", "?code=x", "?code=x&state=y", "?error=access_denied"] {
        let (_, status, _) = stranger
            .follow(&format!("{base}/console/callback{query}"), None)
            .await;
        assert_eq!(status, 400, "{query}");
    }
    assert!(stranger.cookies.is_empty());

    // All have the same key. Who has signed in at one installation is nobody at another.
    let page = |receiver: &Program| format!("{}/console", receiver.base_url());
    let second = world.ready(launch()).await;
    assert_eq!(alice.status(&page(&second)).await, 200, "of the same");
    for (name, value) in [
        ("SAMPLER_OIDC_ISSUER", "http://127.0.0.1:1"),
        ("SAMPLER_TOKEN_AUDIENCE", "urn:other"),
        ("SAMPLER_CONSOLE_CLIENT_ID", "other"),
    ] {
        let other = launch().env(name, value).start().await.unwrap();
        assert_eq!(alice.status(&page(&other)).await, 303, "another {name}");
    }

    // Out again: only with the secret of the session.
    let out = format!("{base}/console/sign-out");
    let forged = alice.send(&out, Some("csrf=x")).await;
    assert_eq!(forged.status(), 403);
    let (_, _, page) = alice.follow(&search, None).await;
    let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap();
    let csrf = csrf.split('"').next().unwrap();
    let (url, status, _) = alice.follow(&out, Some(&format!("csrf={csrf}"))).await;
    assert_eq!((url, status), (format!("{base}/console/signed-out"), 200));
    assert!(!alice.is_signed_in());
    assert_eq!(alice.status(&search).await, 303);

    let lines = receiver.lines().join("\n");
    assert!(
        !lines.contains("eyJ") && !lines.contains(SECRET),
        "a secret is in the output"
    );
    let known = json!({
        "base": base, "issuer": provider.issuer(), "organization": ORGANIZATION, "all": 2,
    });
    visit("signing", &known).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_token_and_the_console_can_be_off() {
    let world = Landscape::new("console_end").await;
    let provider = OidcProvider::for_people((CLIENT, SECRET, SCOPE), &json!({}), 3)
        .await
        .unwrap();
    let launch = || with_key(secured(world.receiver(), &provider));
    let receiver = world.ready(launch()).await;
    let mut alice = Visitor::new();
    let page = format!("{}/console", receiver.base_url());
    let (_, answered, _) = alice.sign_in(&page, "alice").await;
    assert_eq!(answered, 200);
    // Whatever the browser keeps: the cookie says itself when it ends.
    wait_until("the session has ended", PATIENCE, async || {
        alice.status(&page).await == 303
    })
    .await;

    let off = world.receiver().env("SAMPLER_CONSOLE", "false");
    let off = world.ready(off).await;
    let without_key = world.ready(secured(world.receiver(), &provider)).await;
    for receiver in [&off, &without_key] {
        assert_eq!(status(&world.http, receiver, "/console").await, 404);
    }
    wait_until("it says why", PATIENCE, async || {
        let lines = without_key.lines();
        lines.iter().any(|line| line.contains("console.off"))
    })
    .await;
}
