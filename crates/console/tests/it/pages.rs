//! Search, and pages that are not there.

use crate::stub::{HOUR, Ledger, MIDNIGHT, Shown, Visit, span};

fn two() -> Ledger {
    let two = span("two", MIDNIGHT, Some(MIDNIGHT + HOUR));
    Ledger::default()
        .with(span("one", MIDNIGHT, None), Vec::new())
        .with(two, Vec::new())
}

/// A page over two spans.
async fn page(path: &str) -> Shown {
    two().console().get(path).await
}

#[tokio::test]
async fn a_search_shows_spans_and_keeps_what_was_asked_for() {
    let console = two().console();
    let empty = console.page("/console/spans", "spans-empty").await;
    empty.counts(
        200,
        &[
            ("data-test=\"search\"", 1),
            ("span-row", 2),
            ("<h2>Recently received</h2>", 1),
        ],
    );
    let query = "organization_id=acme&state=open&from=1795132800000";
    let path = format!("/console/spans?{query}");
    let shown = console.page(&path, "spans").await;
    shown.counts(
        200,
        &[
            ("data-test=\"span-row\"", 2),
            ("name=\"organization_id\" value=\"acme\"", 1),
            ("<option selected>open</option>", 1),
            ("value=\"2026-11-20T00:00\"", 1),
            ("href=\"/console/spans/one\"", 1),
        ],
    );
}

#[tokio::test]
async fn an_id_is_found_by_how_it_begins() {
    let console = two().console();
    let shown = console.page("/console/spans?id=ord", "found").await;
    let link = "<a href=\"/console/spans?resource_instance_id=ord%3Cb%3Eers\"><bdi class=\"id\">ord&#60;b&#62;ers</bdi></a>";
    shown.counts(200, &[(link, 1), ("data-test=\"span-row\"", 0)]);
    let none = console.get("/console/spans?id=x").await;
    none.counts(200, &[("data-test=\"found\"", 0), ("nothing-found", 1)]);
}

#[tokio::test]
async fn what_is_wrong_with_a_search_stands_beside_it() {
    let shown = page("/console/spans?plan_id=x").await;
    shown.counts(
        400,
        &[("data-test=\"search\"", 1), ("It is not enough.", 1)],
    );
    shown.shows(&["Add &#60;b&#62;organization_id&#60;/b&#62;."]);
    // A moment that is none stays in its field, and is named by its label.
    let path = "/console/spans?organization_id=acme&from=20.11.2026";
    page(path).await.counts(
        400,
        &[
            ("name=\"from\" value=\"20.11.2026\"", 1),
            (
                "<bdi>Runs after</bdi></code>: It must be a time like 2026-11-20T14:00.",
                1,
            ),
            ("RFC 3339", 0),
        ],
    );
}

#[tokio::test]
async fn fields_that_were_left_empty_are_taken_out_of_the_address() {
    let shown = page("/console/spans?organization_id=a%26b&space_id=&state=").await;
    shown.leads_to("/console/spans?organization_id=a%26b");
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
    shown.counts(404, &[("It is gone.", 1)]);
}

#[tokio::test]
async fn the_audit_trail_says_who_did_what_and_why_and_what_it_changed_in_words() {
    let shown = two().console().page("/console/audit", "audit").await;
    shown.counts(
        200,
        &[
            ("data-test=\"audit-row\"", 2),
            ("The &#60;i&#62;plan&#60;/i&#62; has gone.", 1),
            ("aria-current=\"page\">Audit</a>", 1),
            ("<i>plan", 0),
            ("<bdi>Sampling paused</bdi>", 1),
            ("<bdi>state: suspended \u{2192} open</bdi>", 1),
            ("&#34;paused&#34;", 0),
        ],
    );
    // A filter that nothing matches is not a trail without acts.
    let none = page("/console/audit?who=nobody").await;
    none.counts(200, &[("Nothing matches.", 1), ("Nobody did anything", 0)]);
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
        shown.shows(&[
            ">bob</bdi>",
            "<bdi>Abacus is &#60;b&#62;down&#60;/b&#62;.</bdi>",
            "2026-11-20T14:10:00.000Z",
        ]);
    }
    page("/console").await.counts(200, &[("pause-banner", 0)]);
}

#[tokio::test]
async fn times_that_people_ask_for_most_are_a_click_away() {
    let shown = page("/console/spans?organization_id=acme").await;
    let month = "/console/spans?organization_id=acme&#38;from=1793491200000&#38;to=1796083200000";
    shown.counts(200, &[(month, 1)]);
    // A time alone narrows too little to be asked for, and is no mistake.
    let shown = page("/console/spans?from=1793491200000&to=1796083200000").await;
    let from = "value=\"2026-11-01T00:00\"";
    shown.counts(200, &[("data-test=\"problem\"", 0), (from, 1)]);
}

#[tokio::test]
async fn spans_are_a_file_too() {
    let file = page("/console/spans?organization_id=acme&format=csv").await;
    let row = "\"two\",\"acme\",\"prod\",\"app:shop\",\"postgres\",\"small\",\"orders-db\",\
               \"2026-11-20T00:00:00.000Z\",\"2026-11-20T01:00:00.000Z\",\"stopped\",\
               \"2026-11-20T00:00:00.000Z\",\"0\",\"0\",\"3600000\",\"0\"";
    assert_eq!(file.lines_of_csv()[2..], [row]);
}

#[tokio::test]
async fn sums_of_all_time_have_no_bounds() {
    let path = "/console/usage?organization_id=acme";
    let shown = two().console().page(path, "usage-all").await;
    let bounds = "<td>beginning</td><td>no end</td>";
    shown.counts(200, &[(bounds, 3), ("10000", 0)]);
}

#[tokio::test]
async fn usage_is_a_chart_a_table_and_a_file() {
    let console = two().console();
    let empty = console.page("/console/usage", "usage-empty").await;
    // The form begins with what makes a chart.
    empty.counts(
        200,
        &[
            ("data-test=\"usage-row\"", 0),
            ("name=\"from\" value=\"2026-10-21T00:00\"", 1),
            ("name=\"to\" value=\"2026-11-21T00:00\"", 1),
            ("<option selected>day</option>", 1),
        ],
    );
    let path = "/console/usage?organization_id=acme&window=day&group_by=resource_id,plan_id";
    let shown = console.page(path, "usage").await;
    shown.counts(
        200,
        &[
            ("data-test=\"usage-chart\"", 1),
            ("data-test=\"usage-row\"", 3),
            ("<g class=\"forward\">", 2),
            ("<g class=\"backward\">", 1),
            ("<option selected>day</option>", 1),
            (">44,236,800,000<", 1),
            // 512 MB for a day.
            (">12.288<", 1),
            ("GB·h = MB × ms ÷ 1000 ÷ 3600000: quantity × duration", 1),
            (">86,400,000<", 1),
            (">Plan</th>", 1),
            (">Resource</th>", 1),
            ("<small>", 0),
        ],
    );
    let file = console.get(&format!("{path}&format=csv")).await;
    let lines = file.lines_of_csv();
    let head = "\"window_start\",\"window_end\",\"resource_id\",\"plan_id\",\"usages\",\"duration_ms\",\"amount memory MB × ms\",\"memory GB·h\",\"amount odd × ms\"";
    assert_eq!((lines.len(), lines[0]), (4, head));
    let end = ",\"'=HYPERLINK(\"\"x\"\")\",\"<small>\",\"24\",\"-10800000\",\"-5529600000\",\"-1.536\",\"\"";
    assert!(lines[3].ends_with(end), "{}", lines[3]);
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
        let hook = format!("data-test=\"{hook}\"");
        assert_eq!(shown.count(&hook), 1, "{hook}");
    }
    shown.shows(&[
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
        "<span class=\"state stale\">stale</span>",
        "fails: processing, database; pauses: replication-lag",
        "not reported",
        "20 more",
        "7d44&#60;b&#62;-50",
    ]);
    assert!(shown.text.len() < 100_000);
    // Those that are up give way to those that are not.
    assert_eq!(shown.count("data-test=\"instance-row\""), 40);
    assert!(shown.count("cloudevents at meter.example.com") > 30);
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
        shown.counts(200, &[(told, 1), ("No span is suspended", 0)]);
    }
    let mut ledger = two();
    ledger.causes = (0, 0);
    let shown = ledger.console().get("/console").await;
    shown.counts(200, &[("No span is suspended", 1)]);
}

#[tokio::test]
async fn the_overview_stays_small_whatever_is_set() {
    let mut ledger = two();
    ledger.is_crowded = true;
    let shown = ledger.console().get("/console").await;
    assert!(shown.text.len() < 100_000, "{} bytes", shown.text.len());
    // The lowest rates are those to know of.
    shown.counts(200, &[("<dd>0 %</dd>", 10), ("990 more rates", 1)]);
}

#[tokio::test]
async fn control_is_confirmed_in_numbers_and_then_set() {
    let mut visit = Visit::new(two(), "/console/control").await;
    let shown = visit.console.page("/console/control", "control").await;
    shown.counts(200, &[("data-test=\"control-form\"", 1)]);
    shown.shows(&["redis = 50"]);
    let form = |rate: &str, tag: i64, more: &str| {
        format!(
            "tag=%22{tag}%22&rate={rate}&resources=redis+%3D+50%0D%0Aa+%3D+b+%3D+0&paused=true\
             &target_seconds=600&kp=8&ki=0&kd=0&reason=Abacus+is+slow.{more}"
        )
    };
    let confirmed = |tag| form("12.5", tag, "&confirmed=true");
    // What cannot be set is not offered.
    let refused = visit.send("/console/control", &form("abc", 7, "")).await;
    refused.counts(400, &[
        (
            "<bdi>Admitted of all new starts, %</bdi></code>: It must be a number from 0 to 100.",
            1,
        ),
        ("Change now", 0),
        ("name=\"rate\" value=\"abc\"", 1),
    ]);
    let asked = visit.send("/console/control", &form("12.5", 7, "")).await;
    asked.counts(200, &[("name=\"confirmed\" value=\"true\"", 1)]);
    asked.shows(&[
        "100 \u{2192} 12.5",
        "Sampling is paused",
        "redis = 50 a = b = 0",
    ]);
    let stale = visit.send("/console/control", &confirmed(6)).await;
    stale.counts(412, &[("It has changed", 1)]);
    let done = visit.send("/console/control", &confirmed(7)).await;
    done.leads_to("/console/control");
    visit.csrf = "x".to_owned();
    let forged = visit.send("/console/control", &confirmed(7)).await;
    assert_eq!(forged.status, 403);
}

#[tokio::test]
async fn the_root_leads_a_browser_to_the_console() {
    let console = Ledger::default().console();
    let asked = async |accept: &str| console.ask("GET", "/", &[("accept", accept)], "").await;
    let led = asked("text/html,application/xhtml+xml,*/*;q=0.8").await;
    led.leads_to("/console");
    assert_eq!(led.header("vary"), "accept");
    for accept in ["*/*", "application/json"] {
        let nothing = asked(accept).await;
        nothing.counts(404, &[("urn:sampler:problem:not-found", 1)]);
    }
}
