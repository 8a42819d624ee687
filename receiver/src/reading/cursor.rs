//! Where a list goes on, as an opaque text.
//!
//! It names the last item of the page before, by fields of it that never change. So it stays right
//! while documents come, change and go. It holds no secret and grants nothing: with a cursor that
//! is made up, a list begins somewhere else, with the same filters and scopes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sampler_domain::{CauseId, Id, SpanId, Timestamp};
use sampler_store::{
    AuditPosition, BlockProgress, CauseKey, CausePosition, SpanPosition, SumPosition,
};
use uuid::Uuid;

/// The first byte of a cursor, for each kind of list.
const SPANS: u8 = b's';
const USAGES: u8 = b'u';
const SUMS: u8 = b'g';
const ACTS: u8 = b'a';
const CAUSES: u8 = b'c';

/// Marks in a cursor of sums: `WINDOW` stands before a window of which no row was shown yet,
/// `GROUP` before the group of the last row that was shown.
const WINDOW: u8 = 0;
const GROUP: u8 = 1;

/// The byte before the marks of causes that were shown, or of those that are left.
const SHOWN: u8 = 0;
const LEFT: u8 = 1;

/// The byte before a span's id, for each kind of id.
const OBJECT_ID: u8 = 0;
const TEXT: u8 = 1;

/// The cursor behind a span.
pub(crate) fn write_position(position: &SpanPosition) -> String {
    let mut bytes = vec![SPANS];
    bytes.extend(position.start.as_millis().to_be_bytes());
    match &position.id {
        SpanId::ObjectId(id) => {
            bytes.push(OBJECT_ID);
            bytes.extend(id);
        }
        SpanId::Text(id) => {
            bytes.push(TEXT);
            bytes.extend(id.as_bytes());
        }
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The span that a cursor is behind.
pub(crate) fn read_position(cursor: &str) -> Option<SpanPosition> {
    let (start, id) = read_number(cursor, SPANS)?;
    let (kind, id) = id.split_first()?;
    let id = match *kind {
        OBJECT_ID => SpanId::ObjectId(id.try_into().ok()?),
        TEXT => SpanId::Text(String::from_utf8(id.to_vec()).ok()?),
        _ => return None,
    };
    let start = Timestamp::new(start).ok()?;
    Some(SpanPosition { start, id })
}

/// The cursor behind the usage that was planned at a version of its span.
pub(crate) fn write_version(version: i64) -> String {
    let mut bytes = vec![USAGES];
    bytes.extend(version.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The version of a cursor: the list goes on with usages that were planned at later ones.
pub(crate) fn read_version(cursor: &str) -> Option<i64> {
    let (version, rest) = read_number(cursor, USAGES)?;
    rest.is_empty().then_some(version)
}

/// The cursor behind a row of sums.
pub(crate) fn write_sum(position: &SumPosition) -> String {
    let mut bytes = vec![SUMS];
    bytes.extend(position.window.as_millis().to_be_bytes());
    bytes.push(if position.group.is_some() {
        GROUP
    } else {
        WINDOW
    });
    for id in position.group.iter().flatten() {
        let id = id.as_str().as_bytes();
        bytes.extend((id.len() as u64).to_be_bytes());
        bytes.extend(id);
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The row of sums that a cursor is behind.
pub(crate) fn read_sum(cursor: &str) -> Option<SumPosition> {
    let (window, rest) = read_number(cursor, SUMS)?;
    let (kind, rest) = rest.split_first()?;
    let group = match *kind {
        WINDOW if rest.is_empty() => None,
        GROUP => Some(read_group(rest)?),
        _ => return None,
    };
    let window = Timestamp::new(window).ok()?;
    Some(SumPosition { window, group })
}

/// Ids, each behind its length.
fn read_group(mut bytes: &[u8]) -> Option<Vec<Id>> {
    let mut group = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
        let (id, rest) = rest.split_at_checked(length)?;
        group.push(Id::from_store(str::from_utf8(id).ok()?));
        bytes = rest;
    }
    Some(group)
}

/// The cursor behind an act.
pub(crate) fn write_act(position: &AuditPosition) -> String {
    let mut bytes = vec![ACTS];
    bytes.extend(position.at.as_millis().to_be_bytes());
    bytes.extend(position.id.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The act that a cursor is behind.
pub(crate) fn read_act(cursor: &str) -> Option<AuditPosition> {
    let (at, id) = read_number(cursor, ACTS)?;
    Some(AuditPosition {
        at: Timestamp::new(at).ok()?,
        id: Uuid::from_slice(&id).ok()?,
    })
}

/// The cursor behind some causes of a block.
pub(crate) fn write_causes(position: &CausePosition) -> String {
    let mut bytes = vec![CAUSES];
    for key in [position.begin, position.end] {
        bytes.push(u8::from(key.is_some()));
        if let Some(key) = key {
            bytes.extend(key.since.as_millis().to_be_bytes());
            bytes.extend(key.id.to_bytes());
        }
    }
    let (kind, marks) = match &position.progress {
        BlockProgress::Shown(marks) => (SHOWN, marks),
        BlockProgress::Left(marks) => (LEFT, marks),
    };
    bytes.push(kind);
    bytes.extend(marks.iter().flatten());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The causes that a cursor is behind.
pub(crate) fn read_causes(cursor: &str) -> Option<CausePosition> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (begin, rest) = read_key(bytes.strip_prefix(&[CAUSES])?)?;
    let (end, rest) = read_key(rest)?;
    let (kind, rest) = rest.split_first()?;
    let (marks, rest) = rest.as_chunks();
    let progress = match *kind {
        SHOWN => BlockProgress::Shown(marks.to_vec()),
        LEFT => BlockProgress::Left(marks.to_vec()),
        _ => return None,
    };
    rest.is_empty().then_some(CausePosition {
        begin,
        end,
        progress,
    })
}

/// Where a cause stands, or none, and what follows it.
fn read_key(bytes: &[u8]) -> Option<(Option<CauseKey>, &[u8])> {
    match bytes.split_first()? {
        (0, rest) => Some((None, rest)),
        (1, rest) => {
            let (since, rest) = rest.split_first_chunk()?;
            let (id, rest) = rest.split_first_chunk()?;
            let since = Timestamp::new(i64::from_be_bytes(*since)).ok()?;
            let id = CauseId::from_bytes(*id);
            Some((Some(CauseKey { since, id }), rest))
        }
        _ => None,
    }
}

/// The number in the cursor of this kind of list, and what follows it.
fn read_number(cursor: &str, kind: u8) -> Option<(i64, Vec<u8>)> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let rest = bytes.strip_prefix(&[kind])?;
    let (number, rest) = rest.split_first_chunk::<8>()?;
    Some((i64::from_be_bytes(*number), rest.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_says_what_it_is_behind() {
        for id in [
            SpanId::ObjectId([7; 12]),
            SpanId::Text(String::new()),
            SpanId::Text("ä".repeat(100)),
        ] {
            let start = Timestamp::clamped(1_533_254_400_000);
            let position = SpanPosition { start, id };
            assert_eq!(read_position(&write_position(&position)), Some(position));
        }
        assert_eq!(read_version(&write_version(i64::MAX)), Some(i64::MAX));
        let groups: [&[&str]; 4] = [&[], &[""], &["a", "ä"], &["", "", "x"]];
        let groups = groups.map(|ids| Some(ids.iter().map(|id| Id::from_store(*id)).collect()));
        for group in groups.into_iter().chain([None]) {
            let window = Timestamp::clamped(1_533_254_400_000);
            let position = SumPosition { window, group };
            assert_eq!(read_sum(&write_sum(&position)), Some(position));
        }
        let act = AuditPosition {
            at: Timestamp::MAX,
            id: Uuid::from_u128(7),
        };
        assert_eq!(read_act(&write_act(&act)), Some(act));
        let key = CauseKey {
            since: Timestamp::MAX,
            id: CauseId::from_bytes([7; 16]),
        };
        for (begin, end) in [(None, None), (None, Some(key)), (Some(key), Some(key))] {
            let marks = vec![[1; 6], [255; 6]];
            for progress in [BlockProgress::Shown(Vec::new()), BlockProgress::Left(marks)] {
                let causes = CausePosition {
                    begin,
                    end,
                    progress,
                };
                assert_eq!(read_causes(&write_causes(&causes)), Some(causes));
            }
        }
    }

    #[test]
    fn what_is_no_cursor_of_the_list_is_refused() {
        let position = SpanPosition {
            start: Timestamp::MIN,
            id: SpanId::ObjectId([7; 12]),
        };
        let spans = write_position(&position);
        for text in ["", "s", "AAAA", "ä", &spans[1..], &format!("{spans}A")] {
            assert_eq!(read_position(text), None, "{text}");
        }
        assert_eq!(read_version(&spans), None);
        assert_eq!(read_sum(&spans), None);
        let sum = |rest: &[u8]| {
            let bytes = [&[SUMS][..], &[0; 8], rest].concat();
            read_sum(&URL_SAFE_NO_PAD.encode(bytes))
        };
        assert!(sum(&[WINDOW]).is_some() && sum(&[GROUP]).is_some());
        for rest in [
            &[][..],
            &[2],
            &[WINDOW, 0],
            &[GROUP, 0],
            &[GROUP, 255, 255, 255, 255, 255, 255, 255, 255],
        ] {
            assert_eq!(sum(rest), None, "{rest:?}");
        }
        let causes = |rest: &[u8]| read_causes(&URL_SAFE_NO_PAD.encode([&b"c"[..], rest].concat()));
        assert!(causes(&[0, 0, 0]).is_some());
        for rest in [
            &[][..],
            &[0],
            &[0, 0],
            &[2, 0, 0],
            &[0, 1],
            &[0, 0, 2],
            &[0, 0, 1, 7],
            &[0, 1, 255],
        ] {
            assert_eq!(causes(rest), None, "{rest:?}");
        }
        let negative = [&[0, 1][..], &[255; 24]].concat();
        assert_eq!(causes(&negative), None);
        assert_eq!(read_causes(&spans), None);
        assert_eq!(read_position(&write_version(1)), None);
        let negative = URL_SAFE_NO_PAD.encode([&b"s"[..], &[0xff; 8], &[1]].concat());
        assert_eq!(read_position(&negative), None);
    }
}
