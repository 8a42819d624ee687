//! Ids are what clients chose.

use sampler_api::{LastError, Measure, Plan, Target};
use serde_json::json;

use crate::stub::{HOUR, Ledger, MIDNIGHT, at, cause, excluded, sampled, span};

const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onfocus='alert(1)",
    "javascript:alert(1)",
    "{{ 7*7 }}&amp;",
    "\u{202e}drawkcab\u{2066}",
];

#[tokio::test]
async fn markup_quotes_and_marks_of_direction_are_text() {
    for (index, text) in HOSTILE.into_iter().enumerate() {
        let id = format!("s{index}/..%2f?#{text}");
        let (start, end) = (MIDNIGHT, MIDNIGHT + 3 * HOUR);
        let mut usages = sampled(0, start, end, HOUR);
        for usage in &mut usages {
            usage.id = text.to_owned();
            usage.location = Some(text.to_owned());
        }
        let mut one = span(&id, start, Some(end));
        one.target = Target {
            organization_id: text.to_owned(),
            space_id: text.to_owned(),
            consumer_id: text.to_owned(),
            resource_id: text.to_owned(),
            plan_id: text.to_owned(),
            resource_instance_id: text.to_owned(),
        };
        one.excluded = vec![excluded(start, end)];
        one.excluded[0].error = Some(text.to_owned());
        one.measured_usage = vec![Measure {
            measure: text.to_owned(),
            quantity: json!({ text: [text] }),
        }];
        (one.start_event_id, one.end_event_id) = (Some(text.to_owned()), Some(text.to_owned()));
        one.planned = Some(Plan {
            start: at(end),
            end: at(end),
            usage_id: text.to_owned(),
        });
        one.delivery.last_error = Some(LastError {
            at: at(end),
            status: Some(400),
            error: text.to_owned(),
        });
        let mut why = cause(text, 1);
        (why.error, why.plan_id) = (text.to_owned(), text.to_owned());
        why.resource_id = text.to_owned();
        let ledger = Ledger {
            causes: vec![why],
            ..Ledger::default()
        };
        let console = ledger.with(one, usages).console();
        let list = console.get("/console/spans?organization_id=x").await;
        let link = list.between("data-label=\"Instance\"><a href=\"..", "\"");
        let link = link.replace("&#38;", "&");
        let page = console.page(&link, &format!("hostile-{index}")).await;
        let suspended = console.get("/console/suspended").await;
        for shown in [list, page, suspended] {
            for raw in [
                "<script>alert",
                "<img src=x",
                "onfocus='",
                "href=\"javascript",
            ] {
                shown.counts(200, &[(raw, 0)]);
            }
            if index == 5 {
                shown.shows(&[
                    "<bdi class=\"id\">\u{202e}drawkcab\u{2066}</bdi>",
                    ">U+202E U+2066</span>",
                ]);
            }
        }
    }
}

#[tokio::test]
async fn a_query_is_text_as_well() {
    let console = Ledger::default().console();
    let path = "/console/spans?organization_id=%22%3E%3Cscript%3E&other=%22%3E%3Cimg%3E&%3Cb%3E=1";
    let shown = console.get(path).await;
    for raw in ["<script>", "<img>", "<b>"] {
        assert_eq!(shown.count(raw), 0, "{raw}");
    }
}
