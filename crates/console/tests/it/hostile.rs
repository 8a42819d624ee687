//! Ids are what clients chose.

use serde_json::json;

use crate::stub::{HOUR, Ledger, MIDNIGHT, cause, excluded, sampled, span, with};

const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onfocus='alert(1)",
    "javascript:alert(1)",
    "{{ 7*7 }}&amp;",
    "\u{202e}drawkcab\u{2066}",
];

const RAW: [&str; 4] = [
    "<script>alert",
    "<img src=x",
    "onfocus='",
    "href=\"javascript",
];

#[tokio::test]
async fn markup_quotes_and_marks_of_direction_are_text() {
    for (index, text) in HOSTILE.into_iter().enumerate() {
        let id = format!("s{index}/..%2f?#{text}");
        let (start, end) = (MIDNIGHT, MIDNIGHT + 3 * HOUR);
        let usages = sampled(0, start, end, HOUR).into_iter();
        let usages = usages.map(|usage| with(usage, json!({ "id": text, "location": text })));
        let one = with(
            span(&id, start, Some(end)),
            json!({
                "target": {
                    "organization_id": text, "space_id": text, "consumer_id": text,
                    "resource_id": text, "plan_id": text, "resource_instance_id": text,
                },
                "excluded": [with(excluded(start, end), json!({ "error": text }))],
                "measured_usage": [{ "measure": text, "quantity": { text: [text] } }],
                "start_event_id": text, "end_event_id": text,
                "planned": { "start": end, "end": end, "usage_id": text },
                "delivery": { "last_error": { "at": end, "status": 400, "error": text } },
            }),
        );
        let why = json!({ "error": text, "plan_id": text, "resource_id": text });
        let ledger = Ledger {
            causes: vec![with(cause(text, 1), why)],
            ..Ledger::default()
        };
        let console = ledger.with(one, usages.collect()).console();
        let list = console.get("/console/spans?organization_id=x").await;
        let link = list.between("data-label=\"Instance\"><a href=\"..", "\"");
        let link = link.replace("&#38;", "&");
        let page = console.get(&link).await;
        let suspended = console.get("/console/suspended").await;
        for shown in [list, page, suspended] {
            shown.counts(200, &RAW.map(|raw| (raw, 0)));
            if index == 5 {
                let id = "<bdi class=\"id\">\u{202e}drawkcab\u{2066}</bdi>";
                shown.shows(&[id, ">U+202E U+2066</span>"]);
            }
        }
    }
}

#[tokio::test]
async fn a_query_is_text_as_well() {
    let console = Ledger::default().console();
    let path = "/console/spans?organization_id=%22%3E%3Cscript%3E&other=%22%3E%3Cimg%3E&%3Cb%3E=1";
    let shown = console.get(path).await;
    shown.counts(200, &[("<script>", 0), ("<img>", 0), ("<b>", 0)]);
}
