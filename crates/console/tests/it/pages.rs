//! Search, and pages that are not there.

use crate::stub::{DAY, HOUR, Ledger, MIDNIGHT, span};

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
        (1, 0)
    );
    let shown = console
        .page(
            "/console/spans?organization_id=acme&state=open&from=1795132800000",
            "spans",
        )
        .await;
    assert_eq!(shown.count("data-test=\"span-row\""), 2);
    assert_eq!(shown.count("name=\"organization_id\" value=\"acme\""), 1);
    assert_eq!(shown.count("<option selected>open</option>"), 1);
    assert_eq!(shown.count("value=\"2026-11-20T00:00:00.000\""), 1);
    assert_eq!(shown.count("href=\"/console/spans/one\""), 1);
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
    assert_eq!(shown.count("data-test=\"audit-row\""), 1);
    assert_eq!(shown.count("The &#60;i&#62;plan&#60;/i&#62; has gone."), 1);
    assert_eq!(shown.count("aria-current=\"page\">Audit</a>"), 1);
    assert!(!shown.text.contains("<i>plan"));
}

#[tokio::test]
async fn usage_is_a_chart_a_table_and_a_file() {
    let console = two().console();
    let empty = console.page("/console/usage", "usage-empty").await;
    assert_eq!(empty.count("data-test=\"usage-row\""), 0);
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
    assert_eq!(shown.count(&(DAY * 512).to_string()), 1);
    assert!(!shown.text.contains("<small>"));
    let file = console.get(&format!("{path}&format=csv")).await;
    assert_eq!(file.header("content-type"), "text/csv; charset=utf-8");
    let lines: Vec<&str> = file.text.lines().collect();
    let head = "\"window_start\",\"window_end\",\"resource_id\",\"plan_id\",\"usages\",\"duration_ms\",\"amount memory\",\"amount odd\"";
    assert_eq!((lines.len(), lines[0]), (4, head));
    assert!(
        lines[3].ends_with(
            ",\"'=HYPERLINK(\"\"x\"\")\",\"<small>\",\"24\",\"-10800000\",\"-5529600000\",\"\""
        ),
        "{}",
        lines[3]
    );
    assert_eq!(console.get("/console/usage?window=day").await.status, 400);
}
