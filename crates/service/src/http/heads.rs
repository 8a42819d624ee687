//! Heads of requests as they come over the wire, for what the server library does not report.
//!
//! A router in front of us, and we, must see the same requests, or a client could hide one in
//! another. The library settles two things quietly that another reader may settle otherwise: a
//! line feed without a carriage return ends a line, and of a length beside chunks nothing is left.

use memchr::{memchr, memchr3};

/// The names that count, in lower case.
const LENGTH: &[u8] = b"content-length";
const CODING: &[u8] = b"transfer-encoding";

/// Scans one head.
#[derive(Debug, Default)]
pub(super) struct Head {
    position: Position,
    previous: u8,
    /// The name before the colon, in lower case, as far as it could be a name that counts, and its
    /// length: a name that is longer than the array does not count.
    name: [u8; CODING.len()],
    name_length: usize,
    has_length: bool,
    has_coding: bool,
    has_bare_line_feed: bool,
}

/// The position of the next byte in the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// Before the first line. Empty lines are passed over, as the library does.
    #[default]
    Before,
    /// At the beginning of a line, which is the end if it is empty.
    LineStart,
    /// In a name, or in the first line.
    Name,
    /// Behind the colon.
    Value,
    /// Behind the head.
    Behind,
}

impl Head {
    /// Whether another reader may understand this head otherwise.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.has_bare_line_feed || (self.has_length && self.has_coding)
    }

    /// Scans the bytes that have arrived. Says how many of them belong to the head.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> usize {
        let mut scanned = 0;
        while let Some((byte, behind)) = bytes[scanned..].split_first() {
            let length = match (self.position, byte) {
                (Position::Behind, _) => return scanned,
                (_, b'\n') => {
                    self.end_line();
                    1
                }
                (_, b'\r') => 1,
                (Position::Name, b':') => {
                    self.end_name();
                    1
                }
                // Tokens are long, and nothing in a value counts but its end.
                (Position::Value, _) => 1 + memchr(b'\n', behind).unwrap_or(behind.len()),
                (Position::Before | Position::LineStart | Position::Name, _) => {
                    let end = memchr3(b':', b'\r', b'\n', behind);
                    let length = 1 + end.unwrap_or(behind.len());
                    self.name_goes_on(&bytes[scanned..][..length]);
                    length
                }
            };
            scanned += length;
            self.previous = bytes[scanned - 1];
        }
        scanned
    }

    /// Whether the head is there to its end.
    pub(super) fn is_complete(&self) -> bool {
        self.position == Position::Behind
    }

    fn name_goes_on(&mut self, bytes: &[u8]) {
        self.position = Position::Name;
        let slots = self.name.iter_mut().skip(self.name_length);
        for (slot, byte) in slots.zip(bytes) {
            *slot = byte.to_ascii_lowercase();
        }
        self.name_length += bytes.len();
    }

    fn end_name(&mut self) {
        self.position = Position::Value;
        let name = self.name.get(..self.name_length);
        self.has_length |= name == Some(LENGTH);
        self.has_coding |= name == Some(CODING);
    }

    fn end_line(&mut self) {
        self.has_bare_line_feed |= self.previous != b'\r';
        self.name_length = 0;
        self.position = match self.position {
            Position::Before => Position::Before,
            Position::LineStart | Position::Behind => Position::Behind,
            Position::Name | Position::Value => Position::LineStart,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same whether it comes at once or byte by byte.
    fn is_ambiguous(text: &str) -> bool {
        let (mut whole, mut pieces) = (Head::default(), Head::default());
        whole.scan(text.as_bytes());
        for byte in text.as_bytes().chunks(1) {
            pieces.scan(byte);
        }
        assert_eq!(whole.is_ambiguous(), pieces.is_ambiguous(), "{text:?}");
        whole.is_ambiguous()
    }

    #[test]
    fn a_head_that_all_understand_alike() {
        for text in [
            "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\ncontent-length: 1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n\n\ntransfer-encoding: chunked\r\n",
            "POST / HTTP/1.1\r\nx: transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n",
            "POST / HTTP/1.1\r\nx-content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
        ] {
            assert!(!is_ambiguous(text), "{text:?}");
        }
    }

    #[test]
    fn a_head_ends_behind_its_empty_line() {
        let (first, behind) = ("\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n", "GET /b HTTP/1.1\n");
        let mut head = Head::default();
        assert_eq!(head.scan(&first.as_bytes()[..10]), 10);
        assert!(!head.is_complete());
        let rest = format!("{}{behind}", &first[10..]);
        assert_eq!(head.scan(rest.as_bytes()), first.len() - 10);
        assert!(head.is_complete() && !head.is_ambiguous());
        assert_eq!(head.scan(behind.as_bytes()), 0);
    }

    #[test]
    fn a_head_that_some_may_understand_otherwise() {
        for text in [
            "GET / HTTP/1.1\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\n\nGET /b HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n\n",
            "POST / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\nx: y\r\ncontent-length:2\r\n\r\n",
        ] {
            assert!(is_ambiguous(text), "{text:?}");
        }
    }
}
