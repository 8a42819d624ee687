//! What keeps a browser from being used against us.

use crate::stub::{HOUR, Ledger, MIDNIGHT, span, suspended};

fn one() -> Ledger {
    Ledger::default().with(span("one", MIDNIGHT, Some(MIDNIGHT + HOUR)), Vec::new())
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
        let is_own = policy.starts_with("default-src 'self'; ");
        assert!(is_own, "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("referrer-policy", "same-origin"),
        ] {
            assert_eq!(shown.header(name), value, "{path}");
        }
        let script = "<script type=\"module\" src=\"";
        for (text, count) in [
            (" style=", 0),
            ("<style", 0),
            (" onclick", 0),
            ("javascript:", 0),
            ("http://", 0),
            ("https://", 0),
            (script, 1),
            ("<script", 1),
            ("data-test=\"open-banner\"", 1),
        ] {
            assert_eq!(shown.count(text), count, "{path}: {text}");
        }
    }
}

#[tokio::test]
async fn files_are_kept_for_ever_under_a_hash_of_what_they_hold() {
    let console = one().console();
    let page = console.get("/console").await.text;
    let addresses = page
        .split('"')
        .filter(|text| text.starts_with("console/assets/"));
    let addresses: Vec<&str> = addresses.collect();
    assert_eq!(addresses.len(), 4, "{addresses:?}");
    for address in addresses {
        let shown = console.get(&format!("/{address}")).await;
        assert_eq!(shown.status, 200, "{address}");
        let kept = shown.header("cache-control");
        assert_eq!(kept, "public, max-age=31536000, immutable");
        assert_eq!(shown.header("x-content-type-options"), "nosniff");
        assert!((1..20_000).contains(&shown.text.len()), "{address}");
    }
    // A page of another release finds this one's file, which is not kept.
    let other = "/console/assets/0123456789abcdef/console.css";
    let other = console.get(other).await;
    assert_eq!(other.status, 200);
    assert_eq!(other.header("cache-control"), "no-store");
    assert_eq!(other.header("content-type"), "text/css; charset=utf-8");
}

#[tokio::test]
async fn a_form_needs_the_secret_of_its_session() {
    let console = one().with(suspended("two"), Vec::new()).console();
    let shown = console.get("/console/spans/two/resume").await;
    let set = shown.header("set-cookie");
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(set.contains(attribute), "{set}");
    }
    assert!(!set.contains("Secure"), "a loopback has no TLS: {set}");
    let own = shown.cookie();
    let own = [("cookie", own.as_str())];
    let forged = [("cookie", "sampler_console=forged")];
    for (cookie, form) in [
        (&[][..], "csrf=x"),
        (&own, ""),
        (&own, "csrf="),
        (&own, "csrf=x"),
        (&own, "other=1"),
        (&forged, "csrf="),
    ] {
        for page in [
            "/console/sign-out",
            "/console/spans/two/skip",
            "/console/spans/two/resume",
            "/console/spans/two/resend",
            "/console/suspended/c-0/resume",
        ] {
            let refused = console.ask("POST", page, cookie, form).await;
            refused.counts(403, &[("Nothing was done.", 1)]);
        }
    }
    // Also where the secret is right, if the page that sends it is another site's.
    let csrf = shown.text.split("name=\"csrf\" value=\"").nth(1).unwrap();
    let form = format!("csrf={}", csrf.split('"').next().unwrap());
    for (headers, status) in [
        (&[own[0], ("sec-fetch-site", "cross-site")][..], 403),
        (&[own[0], ("sec-fetch-site", "same-site")], 403),
        (&own, 303),
    ] {
        let signed_out = console.ask("POST", "/console/sign-out", headers, &form);
        assert_eq!(signed_out.await.status, status, "{headers:?}");
    }
    // Elsewhere than on a loopback, the cookie is for TLS alone.
    let elsewhere = [("host", "sampler.example")];
    let shown = console.ask("GET", "/console", &elsewhere, "").await;
    let set = shown.header("set-cookie");
    assert!(
        set.starts_with("__Host-") && set.contains("Secure"),
        "{set}"
    );
}

#[tokio::test]
async fn an_address_that_is_no_text_leads_to_a_page() {
    let console = one().console();
    for path in [
        "/console/spans/%ff",
        "/console/spans/%ff/resume",
        "/console/spans/%c3%28/skip",
        "/console/suspended/%ff/resume",
        "/console/spans/%ff/resend",
        "/console/%ff",
    ] {
        let shown = console.get(path).await;
        assert_eq!(shown.status, 404, "{path}");
        let kind = shown.header("content-type");
        assert_eq!(kind, "text/html; charset=utf-8", "{path}");
        assert_eq!(shown.count("data-test=\"problem\""), 1, "{path}");
    }
}

#[tokio::test]
async fn a_page_is_asked_for_without_its_text_and_is_not_sent_to() {
    let console = one().console();
    let own = console.get("/console").await.cookie();
    for (method, path, status) in [
        ("HEAD", "/console", 200),
        ("HEAD", "/console/spans/one", 200),
        ("POST", "/console", 405),
        ("PUT", "/console/spans/one/skip", 405),
        ("DELETE", "/console/spans/one", 405),
        ("POST", "/console/nothing", 405),
    ] {
        let shown = console.ask(method, path, &[("cookie", &own)], "").await;
        assert_eq!(shown.status, status, "{method} {path}");
        assert!(method != "HEAD" || shown.text.is_empty(), "{path}");
    }
}
