//! Ids are what clients chose.

use serde_json::json;

use crate::stub::{HOUR, Ledger, MIDNIGHT, sampled, settle, span};

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
            for field in ["id", "error", "location"] {
                usage[field] = json!(text);
            }
        }
        let mut one = settle(span(&id, start, Some(end)), &usages);
        for field in one["target"].as_object_mut().unwrap().values_mut() {
            *field = json!(text);
        }
        one["measured_usage"] = json!([{ "measure": text, "quantity": { text: [text] } }]);
        one["start_event_id"] = json!(text);
        one["end_event_id"] = json!(text);
        one["planned"] = json!({ "start": end, "end": end, "usage_id": text });
        let error = json!({ "at": end, "status": 400, "error": text });
        one["delivery"] = json!({ "attempts": 1, "unanswered": false, "last_error": error });
        let console = Ledger::default().with(one, usages).console();
        let (list, name) = (
            "/console/spans?organization_id=x",
            format!("hostile-list-{index}"),
        );
        let list = console.page(list, &name).await;
        let link = list.between("<td class=\"main\"><a href=\"", "\"");
        let link = link.replace("&#38;", "&");
        let page = console.page(&link, &format!("hostile-{index}")).await;
        for shown in [list, page] {
            for raw in ["<script>alert", "<img", "onfocus='", "href=\"javascript"] {
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
