//! Heads of requests as they come over the wire, for what the server library does not tell.
//!
//! A router in front of us, and we, must see the same requests, or a client could hide one in
//! another. The library settles two things quietly that another reader may settle otherwise: a
//! line feed without a carriage return ends a line, and of a length beside chunks nothing is left.
//! A router waits for an answer before it sends the next request on a connection. So a head begins
//! with the first byte after one is waited for; what a client sends ahead on a connection of its
//! own hides from nobody.

/// The names that count, in lower case.
const LENGTH: &[u8] = b"content-length";
const CODING: &[u8] = b"transfer-encoding";

/// Looks at one head, byte by byte.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// It has come to its end.
    over: bool,
    /// A line that is not empty has come.
    begun: bool,
    previous: u8,
    /// How much of the line has come, without its end.
    length: usize,
    /// The name of the line, as far as it has come and could be one that counts.
    name: Vec<u8>,
    named: bool,
    has_length: bool,
    has_coding: bool,
    has_bare_line_feed: bool,
}

impl Head {
    /// Whether another reader may understand this head otherwise.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.has_bare_line_feed || (self.has_length && self.has_coding)
    }

    /// Looks at what has come.
    pub(super) fn look(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.over {
                return;
            }
            match byte {
                b'\n' => self.end_line(),
                b'\r' => {}
                byte => self.go_on(*byte),
            }
            self.previous = *byte;
        }
    }

    fn go_on(&mut self, byte: u8) {
        self.length += 1;
        if byte == b':' && !self.named {
            self.named = true;
            self.has_length |= self.name == LENGTH;
            self.has_coding |= self.name == CODING;
        } else if !self.named && self.name.len() <= CODING.len() {
            self.name.push(byte.to_ascii_lowercase());
        }
    }

    fn end_line(&mut self) {
        self.has_bare_line_feed |= self.previous != b'\r';
        // Empty lines before the first are passed over, as the library does.
        self.over = self.begun && self.length == 0;
        self.begun |= self.length > 0;
        self.length = 0;
        self.name.clear();
        self.named = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same whether it comes at once or byte by byte.
    fn is_ambiguous(text: &str) -> bool {
        let (mut whole, mut pieces) = (Head::default(), Head::default());
        whole.look(text.as_bytes());
        text.as_bytes().chunks(1).for_each(|byte| pieces.look(byte));
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
