//! Search, and pages that are not there.

use axum::body::Body;
use axum::http::Request;

use crate::stub::{HOUR, Ledger, MIDNIGHT, span};

fn two() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.add(span("one", MIDNIGHT, None), Vec::new());
    ledger.add(span("two", MIDNIGHT, Some(MIDNIGHT + HOUR)), Vec::new());
    ledger
}

#[tokio::test]
async fn a_search_shows_spans_and_keeps_what_was_asked_for() {
    let console = two().console();
    let empty = console.page("/console/spans", "spans-empty").await;
    assert_eq!(
        (empty.count("data-test=\"search\""), empty.count("span-row")),
        (1, 2)
    );
    assert_eq!(empty.count("<h2>Recently received</h2>"), 1);
    let shown = console
        .page(
            "/console/spans?organization_id=acme&state=open&from=1795132800000",
            "spans",
        )
        .await;
    assert_eq!(shown.count("data-test=\"span-row\""), 2);
    assert_eq!(shown.count("name=\"organization_id\" value=\"acme\""), 1);
    assert_eq!(shown.count("<option selected>open</option>"), 1);
    assert_eq!(shown.count("value=\"2026-11-20T00:00\""), 1);
    assert_eq!(shown.count("href=\"/console/spans/one\""), 1);
}

#[tokio::test]
async fn an_id_is_found_by_how_it_begins() {
    let console = two().console();
    let shown = console.page("/console/spans?id=ord", "found").await;
    let link = "<a href=\"/console/spans?resource_instance_id=ord%3Cb%3Eers\"><bdi class=\"id\">ord&#60;b&#62;ers</bdi></a>";
    assert_eq!(shown.count(link), 1, "{}", shown.text);
    assert_eq!(shown.count("data-test=\"span-row\""), 0);
    let none = console.get("/console/spans?id=x").await;
    assert_eq!(
        (
            none.count("data-test=\"found\""),
            none.count("nothing-found")
        ),
        (0, 1)
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_search_stands_beside_it() {
    let shown = two().console().get("/console/spans?plan_id=x").await;
    assert_eq!(shown.status, 400);
    assert_eq!(shown.count("data-test=\"search\""), 1);
    assert_eq!(shown.count("It is not enough."), 1);
    assert!(
        shown
            .text
            .contains("Add &#60;b&#62;organization_id&#60;/b&#62;."),
        "{}",
        shown.text
    );
}

#[tokio::test]
async fn fields_that_were_left_empty_are_taken_out_of_the_address() {
    let shown = two()
        .console()
        .get("/console/spans?organization_id=a%26b&space_id=&state=")
        .await;
    assert_eq!(
        (shown.status, shown.header("location")),
        (303, "/console/spans?organization_id=a%26b")
    );
}

#[tokio::test]
async fn what_is_not_there_is_a_page_too() {
    let console = two().console();
    for path in [
        "/console/spans/none",
        "/console/nothing",
        "/console/assets/x.css",
    ] {
        assert_eq!(console.get(path).await.status, 404, "{path}");
    }
    let shown = console.get("/console/spans/none").await;
    assert_eq!(shown.count("It is gone."), 1);
    for path in ["/console", "/console/", "/console/signed-out"] {
        assert_eq!(console.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn the_audit_trail_says_who_did_what_and_why() {
    let shown = two().console().page("/console/audit", "audit").await;
    assert_eq!(shown.count("data-test=\"audit-row\""), 2);
    assert_eq!(shown.count("The &#60;i&#62;plan&#60;/i&#62; has gone."), 1);
    assert_eq!(shown.count("aria-current=\"page\">Audit</a>"), 1);
    assert!(!shown.text.contains("<i>plan"));
}

#[tokio::test]
async fn what_an_act_changed_is_told_in_words() {
    let shown = two().console().get("/console/audit").await;
    for text in [
        "<bdi>Sampling paused</bdi>",
        "<bdi>state: suspended \u{2192} open</bdi>",
    ] {
        assert_eq!(shown.count(text), 1, "{text}: {}", shown.text);
    }
    assert_eq!(shown.count("&#34;paused&#34;"), 0);
}

#[tokio::test]
async fn a_pause_is_told_on_every_page_with_who_and_why() {
    let mut ledger = two();
    ledger.is_paused = true;
    let console = ledger.console();
    for path in [
        "/console",
        "/console/spans",
        "/console/spans/one",
        "/console/nothing",
    ] {
        let shown = console.get(path).await;
        assert_eq!(shown.count("data-test=\"pause-banner\""), 1, "{path}");
        for text in [
            ">bob</bdi>",
            "<bdi>Abacus is &#60;b&#62;down&#60;/b&#62;.</bdi>",
            "2026-11-20T14:10:00.000Z",
        ] {
            assert!(shown.text.contains(text), "{path}: {text}: {}", shown.text);
        }
    }
    let shown = two().console().get("/console").await;
    assert_eq!(shown.count("pause-banner"), 0);
}

#[tokio::test]
async fn times_that_people_ask_for_most_are_a_click_away() {
    let console = two().console();
    let shown = console.get("/console/spans?organization_id=acme").await;
    let month = "/console/spans?organization_id=acme&#38;from=1793491200000&#38;to=1796083200000";
    assert_eq!(shown.count(month), 1, "{}", shown.text);
    // A time alone narrows too little to be asked for, and is no mistake.
    let shown = console
        .get("/console/spans?from=1793491200000&to=1796083200000")
        .await;
    assert_eq!(
        (shown.status, shown.count("data-test=\"problem\"")),
        (200, 0)
    );
    assert_eq!(shown.count("value=\"2026-11-01T00:00\""), 1);
}

#[tokio::test]
async fn spans_are_a_file_too() {
    let path = "/console/spans?organization_id=acme&format=csv";
    let file = two().console().get(path).await;
    assert_eq!(file.header("content-type"), "text/csv; charset=utf-8");
    let lines: Vec<&str> = file.text.lines().collect();
    assert_eq!(lines.len(), 3);
    let row = "\"two\",\"acme\",\"prod\",\"app:shop\",\"postgres\",\"small\",\"orders-db\",\
               \"2026-11-20T00:00:00.000Z\",\"2026-11-20T01:00:00.000Z\",\"stopped\",\
               \"2026-11-20T00:00:00.000Z\",\"0\",\"0\",\"3600000\",\"0\"";
    assert_eq!(lines[2], row);
}

#[tokio::test]
async fn a_filter_that_nothing_matches_is_not_a_trail_without_acts() {
    let shown = two().console().get("/console/audit?who=nobody").await;
    assert_eq!(shown.count("Nothing matches."), 1, "{}", shown.text);
    assert_eq!(shown.count("Nobody did anything"), 0);
}

#[tokio::test]
async fn a_moment_that_is_none_stays_in_its_field_and_is_named_by_its_label() {
    let path = "/console/spans?organization_id=acme&from=20.11.2026";
    let shown = two().console().get(path).await;
    assert_eq!(shown.status, 400);
    for text in [
        "name=\"from\" value=\"20.11.2026\"",
        "<bdi>Runs after</bdi></code>: It must be a time like 2026-11-20T14:00.",
    ] {
        assert_eq!(shown.count(text), 1, "{text}: {}", shown.text);
    }
    assert_eq!(shown.count("RFC 3339"), 0);
}

#[tokio::test]
async fn sums_of_all_time_have_no_bounds() {
    let path = "/console/usage?organization_id=acme";
    let shown = two().console().page(path, "usage-all").await;
    assert_eq!(shown.count("<td>beginning</td><td>no end</td>"), 3);
    assert_eq!(shown.count("10000"), 0, "{}", shown.text);
}

#[tokio::test]
async fn usage_is_a_chart_a_table_and_a_file() {
    let console = two().console();
    let empty = console.page("/console/usage", "usage-empty").await;
    assert_eq!(empty.count("data-test=\"usage-row\""), 0);
    // The form begins with what makes a chart.
    for text in [
        "name=\"from\" value=\"2026-10-21T00:00\"",
        "name=\"to\" value=\"2026-11-21T00:00\"",
        "<option selected>day</option>",
    ] {
        assert_eq!(empty.count(text), 1, "{text}: {}", empty.text);
    }
    let path = "/console/usage?organization_id=acme&window=day&group_by=resource_id,plan_id";
    let shown = console.page(path, "usage").await;
    assert_eq!(shown.count("data-test=\"usage-chart\""), 1);
    assert_eq!(shown.count("data-test=\"usage-row\""), 3);
    assert_eq!(
        (
            shown.count("<g class=\"forward\">"),
            shown.count("<g class=\"backward\">")
        ),
        (2, 1)
    );
    assert_eq!(shown.count("<option selected>day</option>"), 1);
    for text in [
        ">44,236,800,000<",
        // 512 MB for a day.
        ">12.288<",
        "GB·h = MB × ms ÷ 1000 ÷ 3600000: quantity × duration",
        ">86,400,000<",
        ">Plan</th>",
        ">Resource</th>",
    ] {
        assert_eq!(shown.count(text), 1, "{text}: {}", shown.text);
    }
    assert!(!shown.text.contains("<small>"));
    let file = console.get(&format!("{path}&format=csv")).await;
    assert_eq!(file.header("content-type"), "text/csv; charset=utf-8");
    let lines: Vec<&str> = file.text.lines().collect();
    let head = "\"window_start\",\"window_end\",\"resource_id\",\"plan_id\",\"usages\",\"duration_ms\",\"amount memory MB × ms\",\"memory GB·h\",\"amount odd × ms\"";
    assert_eq!((lines.len(), lines[0]), (4, head));
    assert!(
        lines[3].ends_with(
            ",\"'=HYPERLINK(\"\"x\"\")\",\"<small>\",\"24\",\"-10800000\",\"-5529600000\",\"-1.536\",\"\""
        ),
        "{}",
        lines[3]
    );
    assert_eq!(console.get("/console/usage?window=day").await.status, 400);
}

#[tokio::test]
async fn the_overview_says_how_things_stand() {
    let shown = two().console().page("/console", "overview").await;
    for hook in [
        "backlog",
        "intake",
        "month-close",
        "causes",
        "rates",
        "instances",
    ] {
        assert_eq!(shown.count(&format!("data-test=\"{hook}\"")), 1, "{hook}");
    }
    for text in [
        "<data value=\"1200\">1,200</data>",
        "value=\"86400500\"",
        "5012.3",
        "over the last two minutes",
        "<data value=\"240\">240</data> <span>events in the last minute</span>",
        "3 in the last minute",
        "2026-11-20T15:09:59.000Z",
        "300,738 usages a minute",
        // One of the 59 workers is stale.
        "<data value=\"5800\">5,800</data>",
        "Too late",
        "&#60;plan&#62;",
        "2026-10",
        // The trend is there when the page is opened for the first time.
        "4,800 spans due 2\u{a0}min ago, 1,200 now",
        "<rect x=\"0%\" y=\"0\" width=\"50%\" height=\"48\"/>",
        "<rect x=\"50%\" y=\"24\" width=\"50%\" height=\"24\"/>",
    ] {
        assert!(shown.text.contains(text), "{text}: {}", shown.text);
    }
    assert!(shown.text.len() < 100_000);
    // Those that are up give way to those that are not.
    assert_eq!(shown.count("data-test=\"instance-row\""), 40);
    assert!(shown.count("cloudevents at meter.example.com") > 30);
    for text in [
        "<span class=\"state stale\">stale</span>",
        "fails: processing, database; pauses: replication-lag",
        "not reported",
        "20 more",
        "7d44&#60;b&#62;-50",
    ] {
        assert!(shown.text.contains(text), "{text}: {}", shown.text);
    }
}

#[tokio::test]
async fn the_overview_tells_of_causes_that_it_does_not_show() {
    for (causes, told) in [
        ((1, 0), ">Their spans<"),
        ((7, 0), ">2</data> more causes<"),
        ((7, 1_000), ">1,002</data> more causes<"),
        ((5, 1), ">1</data> more cause<"),
    ] {
        let mut ledger = two();
        ledger.causes = causes;
        let shown = ledger.console().get("/console").await;
        assert_eq!(shown.count(told), 1, "{causes:?}: {}", shown.text);
        assert_eq!(shown.count("No span is suspended"), 0, "{causes:?}");
    }
    let mut ledger = two();
    ledger.causes = (0, 0);
    let shown = ledger.console().get("/console").await;
    assert_eq!(shown.count("No span is suspended"), 1);
}

#[tokio::test]
async fn the_overview_stays_small_whatever_is_set() {
    let mut ledger = two();
    ledger.is_crowded = true;
    let shown = ledger.console().get("/console").await;
    assert!(shown.text.len() < 100_000, "{} bytes", shown.text.len());
    // The lowest rates are those to know of.
    assert_eq!(shown.count("<dd>0 %</dd>"), 10);
    assert_eq!(shown.count("990 more rates"), 1);
}

#[tokio::test]
async fn control_is_confirmed_in_numbers_and_then_set() {
    let console = two().console();
    let shown = console.page("/console/control", "control").await;
    assert_eq!(shown.count("data-test=\"control-form\""), 1);
    assert!(shown.text.contains("redis = 50"), "{}", shown.text);
    let csrf = shown.text.split("name=\"csrf\" value=\"").nth(1).unwrap();
    let csrf = csrf.split('"').next().unwrap();
    let cookie = shown
        .header("set-cookie")
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let send_rate = async |rate: &str, tag: &str, csrf: &str, more: &str| {
        let form = format!(
            "csrf={csrf}&tag={tag}&rate={rate}&resources=redis+%3D+50%0D%0Aa+%3D+b+%3D+0&paused=true\
             &target_seconds=600&kp=8&ki=0&kd=0&reason=Abacus+is+slow.{more}"
        );
        let request = Request::post("/console/control").header("host", "127.0.0.1:7070");
        console
            .send(
                request
                    .header("cookie", &cookie)
                    .body(Body::from(form))
                    .unwrap(),
            )
            .await
    };
    let send = async |tag: &str, csrf: &str, more: &str| send_rate("12.5", tag, csrf, more).await;
    let tag = "%227%22";
    // What cannot be set is not offered.
    let refused = send_rate("abc", tag, csrf, "").await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    let why = "<bdi>Admitted of all new starts, %</bdi></code>: It must be a number from 0 to 100.";
    assert_eq!(refused.count(why), 1, "{}", refused.text);
    assert_eq!(refused.count("Change now"), 0);
    assert_eq!(refused.count("name=\"rate\" value=\"abc\""), 1);
    assert_eq!(send(tag, "x", "&confirmed=true").await.status, 403);
    let asked = send(tag, csrf, "").await;
    assert_eq!(asked.status, 200);
    for change in [
        "100 \u{2192} 12.5",
        "Sampling is paused",
        "redis = 50 a = b = 0",
    ] {
        assert!(asked.text.contains(change), "{change}: {}", asked.text);
    }
    assert_eq!(asked.count("name=\"confirmed\" value=\"true\""), 1);
    let stale = send("%226%22", csrf, "&confirmed=true").await;
    assert_eq!((stale.status, stale.count("It has changed")), (412, 1));
    let done = send(tag, csrf, "&confirmed=true").await;
    assert_eq!(
        (done.status, done.header("location")),
        (303, "/console/control")
    );
}

#[tokio::test]
async fn the_root_leads_a_browser_to_the_console() {
    let console = Ledger::default().console();
    let asked = |accept: &str| {
        let request = Request::get("/").header("host", "127.0.0.1:7070");
        request
            .header("accept", accept)
            .body(Body::empty())
            .unwrap()
    };
    let led = console
        .send(asked("text/html,application/xhtml+xml,*/*;q=0.8"))
        .await;
    assert_eq!((led.status, led.header("location")), (303, "/console"));
    assert_eq!(led.header("vary"), "accept");
    for accept in ["*/*", "application/json"] {
        let nothing = console.send(asked(accept)).await;
        assert_eq!(nothing.status, 404, "{accept}");
        assert!(
            nothing.text.contains("urn:sampler:problem:not-found"),
            "{}",
            nothing.text
        );
    }
}
