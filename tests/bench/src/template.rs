//! Requests and documents that are made once, with holes for what differs from one to the next.
//!
//! A load generator on the machine that it loads must cost little: an event is a copy of the
//! template with a few bytes written over.

use sampler_testkit::rng::mix;

use crate::event::key;

/// Text that stands for the number of the target, as many digits as there are signs.
pub(crate) const DIGIT: u8 = b'#';
/// Text that stands for the moment of the start; as long as a moment of our days.
pub(crate) const START_TEXT: &str = "<---start--->";
/// Text that stands for the moment of the stop.
pub(crate) const STOP_TEXT: &str = "<---stop---->";

/// 64-bit integers that stand for moments; each is one that the domain takes for a moment.
pub(crate) const START: i64 = 0x77A5_5AA5_7751;
/// Stands for when the span is due.
pub(crate) const DUE_AT: i64 = 0x77A5_5AA5_7752;
/// Stands for when the document was written.
pub(crate) const NOW: i64 = 0x77A5_5AA5_7753;
/// Stands for the moment of the stop.
pub(crate) const STOP: i64 = 0x77A5_5AA5_7754;
/// Stands for the `_id`.
pub(crate) const OBJECT_ID: [u8; 12] = [0xA5; 12];
/// What comes before the partition in a document: its type and name.
const PARTITION: &[u8] = b"\x10partition\0";
/// The same before the key; then its length, and the kind of its bytes.
const KEY: &[u8] = b"\x05key\0\x10\0\0\0\0";

/// The multiplier that permutes numbers: consecutive numbers get texts without order, as real ids
/// have, so that the indexes are filled in no order.
const MULTIPLIER: u128 = 618_033_988_749;
/// One more than the greatest number.
const NUMBERS: u128 = 1_000_000_000_000;

/// What fills the holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Values {
    /// The number of the target.
    pub(crate) number: u64,
    /// When the span starts.
    pub(crate) start: i64,
    /// When the span is due.
    pub(crate) due_at: i64,
    /// When the document is written.
    pub(crate) now: i64,
    /// When the span stops.
    pub(crate) stop: i64,
}

/// What a hole takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hole {
    Digits(usize),
    Text(Moment),
    Binary(Moment),
    ObjectId,
    Partition,
    Key,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Start,
    DueAt,
    Now,
    Stop,
}

/// Bytes with holes.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    holes: Vec<(usize, Hole)>,
}

impl Template {
    /// Finds the holes.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let mut holes = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            match hole_at(&bytes[at..]) {
                Some((skip, hole)) => {
                    holes.push((at + skip, hole));
                    at += skip + hole.width();
                }
                None => at += 1,
            }
        }
        Self { bytes, holes }
    }

    /// Appends a copy, filled.
    pub(crate) fn fill(&self, values: &Values, into: &mut Vec<u8>) {
        let begin = into.len();
        into.extend_from_slice(&self.bytes);
        let copy = &mut into[begin..];
        let permuted = permute(values.number);
        for (at, hole) in &self.holes {
            let room = &mut copy[*at..*at + hole.width()];
            match hole {
                Hole::Digits(_) => write_digits(room, permuted),
                Hole::Text(moment) => write_digits(room, moment.of(values).unsigned_abs()),
                Hole::Binary(moment) => room.copy_from_slice(&moment.of(values).to_le_bytes()),
                Hole::ObjectId => write_object_id(room, values),
                Hole::Partition => {
                    let partition = key(|text| with_digits(text, permuted)).partition();
                    let partition = i32::try_from(partition).expect("below 64");
                    room.copy_from_slice(&partition.to_le_bytes());
                }
                Hole::Key => {
                    let key = key(|text| with_digits(text, permuted));
                    room.copy_from_slice(key.bytes());
                }
            }
        }
    }

    /// A filled copy.
    pub(crate) fn filled(&self, values: &Values) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes.len());
        self.fill(values, &mut bytes);
        bytes
    }
}

impl Hole {
    fn width(self) -> usize {
        match self {
            Self::Digits(width) => width,
            Self::Text(_) => START_TEXT.len(),
            Self::Binary(_) => 8,
            Self::ObjectId => OBJECT_ID.len(),
            Self::Partition => 4,
            Self::Key => 16,
        }
    }
}

impl Moment {
    fn of(self, values: &Values) -> i64 {
        match self {
            Self::Start => values.start,
            Self::DueAt => values.due_at,
            Self::Now => values.now,
            Self::Stop => values.stop,
        }
    }
}

/// The hole that begins here, and how many bytes before it stay.
fn hole_at(bytes: &[u8]) -> Option<(usize, Hole)> {
    let digits = bytes.iter().take_while(|byte| **byte == DIGIT).count();
    if digits > 1 {
        return Some((0, Hole::Digits(digits)));
    }
    if bytes.starts_with(PARTITION) {
        return Some((PARTITION.len(), Hole::Partition));
    }
    if bytes.starts_with(KEY) {
        return Some((KEY.len(), Hole::Key));
    }
    let found = [
        (START_TEXT.as_bytes(), Hole::Text(Moment::Start)),
        (STOP_TEXT.as_bytes(), Hole::Text(Moment::Stop)),
        (&START.to_le_bytes(), Hole::Binary(Moment::Start)),
        (&DUE_AT.to_le_bytes(), Hole::Binary(Moment::DueAt)),
        (&NOW.to_le_bytes(), Hole::Binary(Moment::Now)),
        (&STOP.to_le_bytes(), Hole::Binary(Moment::Stop)),
        (&OBJECT_ID, Hole::ObjectId),
    ];
    let mut found = found.into_iter();
    let (_, hole) = found.find(|(sign, _)| bytes.starts_with(sign))?;
    Some((0, hole))
}

/// A text with digits in place of their signs.
fn with_digits(text: &str, number: u64) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let at = bytes.iter().position(|byte| *byte == DIGIT);
    if let Some(at) = at {
        let count = bytes[at..]
            .iter()
            .take_while(|byte| **byte == DIGIT)
            .count();
        write_digits(&mut bytes[at..at + count], number);
    }
    String::from_utf8(bytes).expect("digits are ASCII")
}

/// Another number for each number.
fn permute(number: u64) -> u64 {
    let permuted = u128::from(number) * MULTIPLIER % NUMBERS;
    u64::try_from(permuted).expect("twelve digits fit")
}

/// Writes the last digits of a number, with zeros before it where there is room for more.
fn write_digits(room: &mut [u8], mut number: u64) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
}

/// As a receiver makes them: the moment in seconds, then bytes without order.
fn write_object_id(room: &mut [u8], values: &Values) {
    let seconds = u32::try_from(values.now / 1000).unwrap_or(u32::MAX);
    room[..4].copy_from_slice(&seconds.to_be_bytes());
    room[4..].copy_from_slice(&mix(values.number).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use bson::oid::ObjectId;
    use bson::spec::BinarySubtype;
    use bson::{Binary, Document, RawDocumentBuf, doc};

    use super::*;

    const VALUES: Values = Values {
        number: 7,
        start: 1_700_000_000_001,
        due_at: 1_700_000_000_002,
        now: 1_700_000_000_003,
        stop: 1_700_000_000_004,
    };

    #[test]
    fn fills_texts() {
        let text = format!("a-#### {START_TEXT}|{STOP_TEXT} # ##");
        let template = Template::new(text.into_bytes());
        let filled = String::from_utf8(template.filled(&VALUES)).unwrap();
        assert_eq!(filled, "a-1243 1700000000001|1700000000004 # 43");
    }

    fn bytes(bytes: Vec<u8>) -> Binary {
        let subtype = BinarySubtype::Generic;
        Binary { subtype, bytes }
    }

    #[test]
    fn fills_documents() {
        let document = doc! {
            "_id": ObjectId::from_bytes(OBJECT_ID), "id": "x-############", "start": START,
            "end": STOP, "processing": { "due_at": DUE_AT, "at": NOW, "partition": 5, "other": 5, "key": bytes(vec![0; 16]) },
        };
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        let filled = Template::new(raw.into_bytes()).filled(&VALUES);
        let filled = Document::try_from(RawDocumentBuf::from_bytes(filled).unwrap()).unwrap();
        let id = filled.get_object_id("_id").unwrap();
        assert_eq!(id.timestamp().timestamp_millis(), 1_700_000_000_000);
        let expected = key(|text| with_digits(text, permute(VALUES.number)));
        let partition = i32::try_from(expected.partition()).unwrap();
        let expected = doc! {
            "_id": id, "id": "x-326237921243", "start": VALUES.start, "end": VALUES.stop,
            "processing": {
                "due_at": VALUES.due_at, "at": VALUES.now, "partition": partition, "other": 5,
                "key": bytes(expected.bytes().to_vec()),
            },
        };
        assert_eq!(filled, expected);
    }

    #[test]
    fn no_two_numbers_are_filled_in_alike() {
        let ids: HashSet<u64> = (0..10_000).map(mix).collect();
        let digits: HashSet<u64> = (0..10_000).map(permute).collect();
        assert_eq!((ids.len(), digits.len()), (10_000, 10_000));
        // Also where only the last digits are shown.
        let last: HashSet<u64> = (0..100).map(|number| permute(number) % 100).collect();
        assert_eq!(last.len(), 100);
    }
}
