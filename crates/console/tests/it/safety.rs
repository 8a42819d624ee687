//! What keeps a browser from being used against us.

use axum::body::Body;
use axum::http::Request;

use crate::stub::{HOUR, Ledger, MIDNIGHT, Shown, span};

fn one() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.add(span("one", MIDNIGHT, Some(MIDNIGHT + HOUR)), Vec::new());
    ledger
}

#[tokio::test]
async fn pages_may_load_nothing_but_our_own_files_and_are_not_kept() {
    let console = one().console();
    for path in [
        "/console",
        "/console/spans/one",
        "/console/nothing",
        "/console/signed-out",
    ] {
        let shown = console.get(path).await;
        let policy = shown.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'self'; "),
            "{path}: {policy}"
        );
        assert!(policy.contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(shown.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(shown.header("cache-control"), "no-store", "{path}");
        assert_eq!(shown.header("referrer-policy"), "same-origin", "{path}");
        for inline in [
            " style=",
            "<style",
            " onclick",
            "javascript:",
            "http://",
            "https://",
        ] {
            assert_eq!(shown.count(inline), 0, "{path}: {inline}");
        }
        assert_eq!(
            shown.count("<script type=\"module\" src=\"/console/assets/"),
            1,
            "{path}"
        );
        assert_eq!(shown.count("<script"), 1, "{path}");
        assert_eq!(shown.count("data-test=\"open-banner\""), 1, "{path}");
    }
}

#[tokio::test]
async fn files_are_kept_for_ever_under_a_hash_of_what_they_hold() {
    let console = one().console();
    let page = console.get("/console").await.text;
    let addresses = page
        .split('"')
        .filter(|text| text.starts_with("/console/assets/"));
    let addresses: Vec<&str> = addresses.collect();
    assert_eq!(addresses.len(), 3, "{addresses:?}");
    for address in addresses {
        let shown = console.get(address).await;
        assert_eq!(shown.status, 200, "{address}");
        assert_eq!(
            shown.header("cache-control"),
            "public, max-age=31536000, immutable"
        );
        assert_eq!(shown.header("x-content-type-options"), "nosniff");
        assert!(
            !shown.text.is_empty() && shown.text.len() < 20_000,
            "{address}"
        );
    }
    // A page of another release finds this one's file, which is not kept.
    let other = console
        .get("/console/assets/console.0123456789abcdef.css")
        .await;
    assert_eq!(
        (other.status, other.header("cache-control")),
        (200, "no-store")
    );
    assert_eq!(other.header("content-type"), "text/css; charset=utf-8");
}

fn cookie(shown: &Shown) -> String {
    shown
        .header("set-cookie")
        .split(';')
        .next()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_form_needs_the_secret_of_its_session() {
    let console = one().console();
    let shown = console.get("/console/control").await;
    let set = shown.header("set-cookie");
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/console"] {
        assert!(set.contains(attribute), "{set}");
    }
    assert!(!set.contains("Secure"), "a loopback has no TLS: {set}");
    let sign_out = async |headers: &[(&str, &str)], form: &str| {
        let mut request = Request::post("/console/sign-out").header("host", "127.0.0.1:7070");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        console
            .send(request.body(Body::from(form.to_owned())).unwrap())
            .await
            .status
    };
    let own = cookie(&shown);
    let own = ("cookie", own.as_str());
    assert_eq!(sign_out(&[], "csrf=x").await, 403);
    for form in ["", "csrf=", "csrf=x", "other=1"] {
        assert_eq!(sign_out(&[own], form).await, 403, "{form}");
    }
    let forged = ("cookie", "sampler_console=forged");
    assert_eq!(sign_out(&[forged], "csrf=").await, 403);
    // Also where the secret is right, if the page that sends it is another site's.
    let csrf = shown.text.split("name=\"csrf\" value=\"").nth(1).unwrap();
    let form = format!("csrf={}", csrf.split('"').next().unwrap());
    for (headers, status) in [
        (&[own, ("sec-fetch-site", "cross-site")][..], 403),
        (&[own, ("origin", "http://127.0.0.1:1")], 403),
        (&[own], 303),
    ] {
        assert_eq!(sign_out(headers, &form).await, status, "{headers:?}");
    }
    // Elsewhere than on a loopback, the cookie is for TLS alone.
    let request = Request::get("/console").header("host", "sampler.example");
    let shown = console.send(request.body(Body::empty()).unwrap()).await;
    assert!(shown.header("set-cookie").contains("Secure"));
}

#[tokio::test]
async fn an_address_that_is_no_text_leads_to_a_page() {
    let console = one().console();
    for path in [
        "/console/spans/%ff",
        "/console/spans/%ff/resume",
        "/console/spans/%c3%28/skip",
        "/console/suspended/%ff/resume",
        "/console/spans/one/usages/%ff/resend",
        "/console/spans/%ff/usages/x/resend",
        "/console/%ff",
    ] {
        let shown = console.get(path).await;
        assert_eq!(shown.status, 404, "{path}: {}", shown.text);
        assert_eq!(
            shown.header("content-type"),
            "text/html; charset=utf-8",
            "{path}"
        );
        assert_eq!(
            shown.count("data-test=\"problem\""),
            1,
            "{path}: {}",
            shown.text
        );
    }
}

#[tokio::test]
async fn a_page_is_asked_for_without_its_text_and_is_not_sent_to() {
    let console = one().console();
    for path in ["/console", "/console/spans/one", "/console/control"] {
        let head = Request::head(path).header("host", "127.0.0.1:7070");
        let shown = console.send(head.body(Body::empty()).unwrap()).await;
        assert_eq!((shown.status, shown.text.len()), (200, 0), "{path}");
    }
    let own = cookie(&console.get("/console").await);
    for (method, path, status) in [
        ("POST", "/console", 405),
        ("PUT", "/console/control", 405),
        ("DELETE", "/console/spans/one", 405),
        ("POST", "/console/nothing", 405),
    ] {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("host", "127.0.0.1:7070");
        let with = request.header("cookie", &own).body(Body::empty()).unwrap();
        assert_eq!(console.send(with).await.status, status, "{method} {path}");
    }
}
