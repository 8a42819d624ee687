//! The cursor of a list, as an opaque text.
//!
//! It names the last item of the page before, by fields of it that never change. So it stays right
//! while documents come, change and go. It holds no secret and grants nothing: with a cursor that
//! is made up, a list begins somewhere else, with the same filters and scopes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of the positions in a cursor. A cursor of another version is refused.
const VERSION: u8 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cursor<P> {
    version: u8,
    after: P,
}

/// The cursor behind a position in a list.
pub(super) fn write(position: &impl Serialize) -> String {
    let cursor = Cursor {
        version: VERSION,
        after: position,
    };
    let json = serde_json::to_vec(&cursor).expect("texts, numbers and lists of these");
    URL_SAFE_NO_PAD.encode(json)
}

/// The position that a cursor is behind. Positions of different lists have different fields, so a
/// cursor of another list is refused.
pub(super) fn read<P: DeserializeOwned>(text: &str) -> Option<P> {
    let json = URL_SAFE_NO_PAD.decode(text).ok()?;
    let cursor: Cursor<P> = serde_json::from_slice(&json).ok()?;
    (cursor.version == VERSION).then_some(cursor.after)
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use sampler_domain::{Id, SpanId, Timestamp};
    use sampler_store::{AuditPosition, SpanPosition, SumPosition};
    use uuid::Uuid;

    use super::*;

    #[track_caller]
    fn assert_is_kept<P: Serialize + DeserializeOwned + PartialEq + Debug>(position: &P) {
        assert_eq!(read::<P>(&write(position)).as_ref(), Some(position));
    }

    fn sum(group: Option<&[&str]>) -> SumPosition {
        SumPosition {
            window: Timestamp::clamped(1_533_254_400_000),
            group: group.map(|ids| ids.iter().map(|id| Id::from_store(*id)).collect()),
        }
    }

    fn span(id: SpanId) -> SpanPosition {
        let start = Timestamp::clamped(1_533_254_400_000);
        SpanPosition { start, id }
    }

    #[test]
    fn a_cursor_says_what_it_is_behind() {
        assert_is_kept(&span(SpanId::ObjectId([7; 12])));
        assert_is_kept(&span(SpanId::Text(String::new())));
        assert_is_kept(&span(SpanId::Text("ä".repeat(100))));
        assert_is_kept(&i64::MAX);
        for group in [None, Some(&[][..]), Some(&[""]), Some(&["a", "ä", "\0"])] {
            assert_is_kept(&sum(group));
        }
        assert_is_kept(&AuditPosition {
            at: Timestamp::MAX,
            id: Uuid::from_u128(7),
        });
    }

    #[test]
    fn a_cursor_of_another_list_or_version_is_refused() {
        let spans = write(&span(SpanId::ObjectId([7; 12])));
        for text in ["", "s", "AAAA", "ä", &spans[1..], &format!("{spans}A")] {
            assert_eq!(read::<SpanPosition>(text), None, "{text}");
        }
        assert_eq!(read::<i64>(&spans), None);
        assert_eq!(read::<SumPosition>(&spans), None);
        assert_eq!(read::<AuditPosition>(&spans), None);
        for others in [write(&1), write(&sum(None))] {
            assert_eq!(read::<SpanPosition>(&others), None);
        }
        let json = |text: &str| URL_SAFE_NO_PAD.encode(text);
        assert_eq!(read(&json(r#"{"version":1,"after":7}"#)), Some(7));
        for other in [
            r#"{"version":2,"after":7}"#,
            r#"{"after":7}"#,
            r#"{"version":1,"after":7,"x":1}"#,
        ] {
            assert_eq!(read::<i64>(&json(other)), None, "{other}");
        }
        let negative = r#"{"version":1,"after":{"start":-1,"id":{"Text":"a"}}}"#;
        assert_eq!(read::<SpanPosition>(&json(negative)), None);
    }
}
