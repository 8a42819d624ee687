//! What an answer to a lookup means. Only a clear one means anything.

use sampler_domain::Timestamp;

use super::found::FoundEvents;
use crate::answer::{Answer, AnswerParts, CLOUD_EVENTS, interpret};
use crate::port::LookupAnswer;

/// The meaning of an answer to a lookup for the event of this id and source; none where it is not clear.
pub(super) fn meaning(status: u16, body: &[u8], sought: (&str, &str)) -> Option<LookupAnswer> {
    let body = FoundEvents::in_body(body, sought)?;
    match status {
        200 => {
            let elements = body.elements()?;
            if elements.has_it {
                return Some(LookupAnswer::Counts);
            }
            elements.are_events.then_some(LookupAnswer::NotFound)
        }
        // A gateway's 404 for a wrong path is a page or plain text, which may be a number.
        404 if body.is_object || body.list.is_some() => Some(LookupAnswer::NotFound),
        _ => None,
    }
}

/// An answer that is not clear: nothing follows from it.
pub(super) fn otherwise(status: u16, retry_after: Option<&str>, now: Timestamp) -> LookupAnswer {
    let parts = AnswerParts {
        status,
        retry_after,
        ..AnswerParts::default()
    };
    match interpret(&CLOUD_EVENTS, parts, now) {
        Answer::Wait { after } => LookupAnswer::Wait { after },
        Answer::TryAgain { after, .. } => LookupAnswer::Failed {
            after,
            error: CLOUD_EVENTS.describe(status, None),
        },
        Answer::Accepted | Answer::Refused { .. } => LookupAnswer::Mismatch {
            error: format!(
                "{}, which is not a clear answer: SAMPLER_UPSTREAM_FIND_URL may be wrong",
                CLOUD_EVENTS.describe(status, None)
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Option<LookupAnswer> {
        meaning(status, body.as_bytes(), ("u-1", "sampler"))
    }

    #[test]
    fn a_usage_is_there_if_an_element_has_its_id_and_its_source() {
        let event = r#"{"id":"u-1","source":"sampler","data":{"x":1}}"#;
        for body in [
            event.to_owned(),
            format!(r#"{{"event":{event}}}"#),
            format!("[{event}]"),
            format!(r#"[{{"id":"other"}},{{"event":{event},"ingestedAt":"x"}}]"#),
            format!(r#"{{"items":[{{"event":{event}}}]}}"#),
            format!(r#"{{"data":[{event}],"meta":{{}}}}"#),
        ] {
            assert_eq!(of(200, &body), Some(LookupAnswer::Counts), "{body}");
        }
    }

    #[test]
    fn a_usage_is_not_there_where_the_answer_is_clear() {
        for body in [
            "[]",
            r#"{"items":[]}"#,
            r#"{"data":[]}"#,
            r#"[{"id":"u-10","source":"sampler"}]"#,
            r#"{"items":[{"event":{"id":"u-1","source":"other"}}]}"#,
            r#"{"id":"u-1","source":"Sampler"}"#,
            // Within something else it is not what was asked for.
            r#"[{"id":"x","data":{"id":"u-1","source":"sampler"}}]"#,
            r#"[{"event":{"event":{"id":"u-1","source":"sampler"}}}]"#,
            r#"[{"id":1,"source":{}},{"id":null}]"#,
            r#"{"event":{"id":"u-1"}}"#,
        ] {
            assert_eq!(of(200, body), Some(LookupAnswer::NotFound), "{body}");
        }
        for body in ["{}", r#"{"title":"not found"}"#, "[]"] {
            assert_eq!(of(404, body), Some(LookupAnswer::NotFound), "{body}");
        }
    }

    #[test]
    fn all_else_is_no_answer() {
        for body in [
            "",
            "<html>Log in</html>",
            "{}",
            r#"{"error":"x"}"#,
            r#"{"items":{}}"#,
            "null",
            "1",
            r#""u-1""#,
            "[1]",
            r#"[{"error":"x"}]"#,
            r#"{"items":[{"id":"u-"#,
        ] {
            assert_eq!(of(200, body), None, "{body}");
        }
        for body in ["", "404 page not found", "<html></html>", "404"] {
            assert_eq!(of(404, body), None, "{body}");
        }
        for status in [201, 204, 302, 400, 401, 403, 410, 429, 500, 503] {
            assert_eq!(of(status, "[]"), None, "{status}");
        }
    }
}
