//! Requests that are made once, with holes for what differs from one to the next.
//!
//! A load generator on the machine that it loads must cost little: an event is a copy of the
//! template with a few bytes written over.

/// Text that stands for the number of the target, as many digits as there are signs.
pub(crate) const DIGIT: u8 = b'#';
/// Text that stands for the moment of the start; as long as a moment of our days.
pub(crate) const START_TEXT: &str = "<---start--->";
/// Text that stands for the moment of the stop.
pub(crate) const STOP_TEXT: &str = "<---stop---->";

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
    Start,
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
                Some(hole) => {
                    holes.push((at, hole));
                    at += hole.width();
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
            let number = match hole {
                Hole::Digits(_) => permuted,
                Hole::Start => values.start.unsigned_abs(),
                Hole::Stop => values.stop.unsigned_abs(),
            };
            write_digits(room, number);
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
            Self::Start | Self::Stop => START_TEXT.len(),
        }
    }
}

/// The hole that begins here.
fn hole_at(bytes: &[u8]) -> Option<Hole> {
    let digits = bytes.iter().take_while(|byte| **byte == DIGIT).count();
    if digits > 1 {
        return Some(Hole::Digits(digits));
    }
    let starts_with = |text: &str| bytes.starts_with(text.as_bytes());
    if starts_with(START_TEXT) {
        Some(Hole::Start)
    } else if starts_with(STOP_TEXT) {
        Some(Hole::Stop)
    } else {
        None
    }
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

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

    #[test]
    fn no_two_numbers_are_filled_in_alike() {
        let digits: HashSet<u64> = (0..10_000).map(permute).collect();
        assert_eq!(digits.len(), 10_000);
        // Also where only the last digits are shown.
        let last: HashSet<u64> = (0..100).map(|number| permute(number) % 100).collect();
        assert_eq!(last.len(), 100);
    }
}
