//! Lists, the overview, and pages that are not there.

use crate::stub::{HOUR, Ledger, MIDNIGHT, Shown, span};

fn two() -> Ledger {
    let two = span("two", MIDNIGHT, Some(MIDNIGHT + HOUR));
    Ledger::default()
        .with(span("one/a", MIDNIGHT, None), Vec::new())
        .with(two, Vec::new())
}

/// A page over two spans.
async fn page(path: &str) -> Shown {
    two().console().get(path).await
}

#[tokio::test]
async fn a_search_shows_spans_and_keeps_what_was_asked_for() {
    let console = two().console();
    let empty = console.get("/console/spans").await;
    let received = "These spans were received last.";
    empty.counts(200, &[("data-test=\"span-row\"", 2), (received, 1)]);
    let query = "organization_id=acme&space_id=&state=open&from=1795132800000";
    let path = format!("/console/spans?{query}");
    let shown = console.get(&path).await;
    let month = "from=1793491200000&#38;to=1796083200000\"";
    let month = format!("href=\"?organization_id=acme&#38;state=open&#38;{month}");
    let texts = [
        ("data-test=\"span-row\"", 2),
        ("name=\"organization_id\" value=\"acme\"", 1),
        ("<option value=\"open\" selected>", 1),
        ("value=\"2026-11-20T00:00\"", 1),
        ("href=\"../console/spans/one%2Fa\"", 1),
        // This month is a click away.
        (month.as_str(), 1),
    ];
    shown.counts(200, &texts);
    // A time alone narrows too little to be asked for, and is no mistake.
    let shown = page("/console/spans?from=1793491200000&to=1796083200000").await;
    let from = "value=\"2026-11-01T00:00\"";
    shown.counts(200, &[("data-test=\"problem\"", 0), (from, 1)]);
}

#[tokio::test]
async fn what_is_wrong_with_a_search_stands_beside_it_in_the_words_of_the_form() {
    let hint = "<bdi>From, UTC</bdi>: Enter a time like 2026-11-20T14:00.";
    let detail = "<bdi>Plan</bdi>: It is &#60;b&#62;not enough&#60;/b&#62;.";
    for (query, texts) in [
        ("plan_id=x", &[("data-test=\"search\"", 1), (detail, 1)][..]),
        (
            "organization_id=acme&from=20.11.2026",
            &[
                ("name=\"from\" value=\"20.11.2026\"", 1),
                (hint, 1),
                ("RFC 3339", 0),
            ],
        ),
    ] {
        let shown = page(&format!("/console/spans?{query}")).await;
        shown.counts(400, texts);
    }
}

#[tokio::test]
async fn what_is_not_there_is_a_page_too() {
    let console = two().console();
    for (path, status) in [
        ("/console/spans/none", 404),
        ("/console/nothing", 404),
        ("/console/assets/x.css", 404),
        ("/console", 200),
        ("/console/", 200),
        ("/console/signed-out", 200),
    ] {
        assert_eq!(console.get(path).await.status, status, "{path}");
    }
    let shown = console.get("/console/spans/none").await;
    shown.counts(404, &[("There is no such thing", 2)]);
}

/// Below whatever prefix a router has taken away.
#[tokio::test]
async fn all_links_are_relative() {
    let console = two().suspended_by(&[812]).console();
    for path in [
        "/console",
        "/console/",
        "/console/spans",
        "/console/spans/two",
        "/console/suspended",
        "/console/suspended/c-0/resume",
        "/console/usage?organization_id=acme",
        "/console/audit",
        "/console/nothing",
        "/console/signed-out",
    ] {
        let shown = console.get(path).await;
        let base = url::Url::parse(&format!("http://a.example/prefix{path}")).unwrap();
        let mut links = 0;
        for attribute in ["href=\"", "src=\"", "action=\""] {
            for link in shown.text.split(attribute).skip(1) {
                let link = link.split('"').next().unwrap();
                let target = base.join(link).unwrap();
                let is_ours = target.path().starts_with("/prefix/console");
                assert!(is_ours && !link.starts_with('/'), "{path}: {link}");
                links += 1;
            }
        }
        assert!(links > 4, "{path}");
    }
}

#[tokio::test]
async fn the_audit_trail_says_who_did_what_and_why_and_what_it_changed() {
    let shown = two().console().get("/console/audit").await;
    let texts = [
        ("data-test=\"audit-row\"", 2),
        ("<bdi>The &#60;i&#62;plan&#60;/i&#62; has gone.</bdi>", 1),
        ("aria-current=\"page\">Audit</a>", 1),
        ("<i>plan", 0),
        ("<bdi>sampling paused: false \u{2192} true</bdi>", 1),
        ("<bdi>state: suspended \u{2192} open</bdi>", 1),
    ];
    shown.counts(200, &texts);
    let none = page("/console/audit?who=nobody").await;
    none.counts(200, &[("No match.", 1)]);
}

#[tokio::test]
async fn a_pause_is_told_on_every_page_and_explained_on_the_first() {
    let ledger = Ledger {
        is_paused: true,
        ..two()
    };
    let console = ledger.console();
    for path in ["/console", "/console/spans/two", "/console/nothing"] {
        let shown = console.get(path).await;
        assert_eq!(shown.count("data-test=\"pause-banner\""), 1, "{path}");
    }
    console.get("/console").await.shows(&[
        ">bob</bdi>",
        "<bdi>Abacus is &#60;b&#62;down&#60;/b&#62;.</bdi>",
        "2026-11-20T14:10:00.000Z",
    ]);
    let running = page("/console").await;
    running.counts(200, &[("pause-banner", 0), ("bob", 0)]);
}

#[tokio::test]
async fn spans_are_a_file_too() {
    let file = page("/console/spans?organization_id=acme&format=csv").await;
    let row = "\"two\",\"acme\",\"prod\",\"app:shop\",\"postgres\",\"small\",\"orders-db\",\
               \"2026-11-20T00:00:00.000Z\",\"2026-11-20T01:00:00.000Z\",\"stopped\",\
               \"2026-11-20T00:00:00.000Z\",\"0\",\"0\",\"3600000\"";
    assert_eq!(file.lines_of_csv()[2..], [row]);
}

#[tokio::test]
async fn sums_are_a_table_and_a_file() {
    let console = two().console();
    let empty = console.get("/console/usage").await;
    empty.counts(200, &[("data-test=\"usage-row\"", 0)]);
    let path = "/console/usage?organization_id=acme&window=day&group_by=resource_id,plan_id";
    let shown = console.get(path).await;
    let texts = [
        ("data-test=\"usage-row\"", 3),
        ("<option value=\"day\" selected>", 1),
        ("<option value=\"resource_id,plan_id\" selected>", 1),
        (">44,236,800,000<", 1),
        // 512 MB for a day.
        (">12.288<", 1),
        ("GB\u{b7}h = MB × ms ÷ 1000 ÷ 3600000", 1),
        ("title=\"86400000 ms\"", 1),
        (">Plan</th>", 1),
        ("<small>", 0),
    ];
    shown.counts(200, &texts);
    let file = console.get(&format!("{path}&format=csv")).await;
    let lines = file.lines_of_csv();
    let head = "\"window_start\",\"window_end\",\"resource_id\",\"plan_id\",\"usages\",\
                \"duration_ms\",\"memory MB × ms\",\"memory GB·h\",\"odd × ms\"";
    assert_eq!((lines.len(), lines[0]), (4, head));
    let end = ",\"'=HYPERLINK(\"\"x\"\")\",\"<small>\",\"24\",\"-10800000\",\"-5529600000\",\"-1.536\",\"\"";
    assert!(lines[3].ends_with(end), "{}", lines[3]);
    assert_eq!(console.get("/console/usage?window=day").await.status, 400);
    // Sums of all time have no bounds.
    let all = console.get("/console/usage?organization_id=acme").await;
    all.counts(200, &[(">beginning<", 3), (">no end<", 3)]);
}

#[tokio::test]
async fn the_overview_says_how_things_stand() {
    for causes in [0, 1, 6] {
        let ledger = two().suspended_by(&vec![812; causes]);
        let shown = ledger.console().get("/console").await;
        let all = format!("their spans ({causes})");
        let texts = [
            ("data-test=\"backlog\"", 1),
            ("data-test=\"month-close\"", 1),
            ("data-test=\"sampling\"", 1),
            ("data-test=\"causes\"", 1),
            ("<data value=\"1200\">1,200</data>", 1),
            ("5012.3 usages a second", 1),
            ("spans left of 2026-10", 1),
            // The largest causes, and how many there are.
            ("data-test=\"cause-row\"", causes.min(5)),
            ("unprocessable &#60;plan&#62;", causes.min(5)),
            (all.as_str(), 1),
            ("No span is suspended", usize::from(causes == 0)),
        ];
        shown.counts(200, &texts);
    }
}

#[tokio::test]
async fn the_root_leads_a_browser_to_the_console() {
    let console = Ledger::default().console();
    let asked = async |accept: &str| console.ask("GET", "/", &[("accept", accept)], "").await;
    let led = asked("text/html,application/xhtml+xml,*/*;q=0.8").await;
    led.leads_to("console");
    assert_eq!(led.header("vary"), "accept");
    for accept in ["*/*", "application/json"] {
        let nothing = asked(accept).await;
        nothing.counts(404, &[("/problems/not-found", 1)]);
    }
}
