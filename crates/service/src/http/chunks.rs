//! Where a body in chunks ends (RFC 9112, section 7.1), as strictly as can be.
//!
//! The server library reads the chunks; this code finds their end first, so that nothing behind the
//! end is read as a part of the body. Where the two disagree, the connection ends.

use std::io::{self, ErrorKind};

/// The largest chunk. No accepted body is larger.
const SIZE_MAX: u64 = u32::MAX as u64;

/// Bytes of an extension, or of all trailers, at the most.
const EXTRA_MAX: usize = 4 << 10;

/// Follows the chunks of one body.
#[derive(Debug)]
pub(super) struct Chunks {
    position: Position,
    size: u64,
    extra: usize,
}

/// The part of a chunk that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// The first digit of a size.
    Size,
    /// Another digit, or what ends them.
    Digits,
    /// An extension behind a size.
    Extension,
    /// The line feed behind a size.
    SizeEnd,
    /// So many bytes of a chunk.
    Data(u64),
    /// The line end behind a chunk.
    DataReturn,
    DataEnd,
    /// The first byte of a trailer, or the line end instead of one.
    TrailerStart,
    Trailer,
    TrailerEnd,
    LastEnd,
    /// Behind the body.
    Behind,
}

impl Default for Chunks {
    fn default() -> Self {
        Self {
            position: Position::Size,
            size: 0,
            extra: 0,
        }
    }
}

impl Chunks {
    /// Scans the bytes that have arrived. Says how many of them belong to the body.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut scanned = 0;
        while let Some(&byte) = bytes.get(scanned) {
            match self.position {
                Position::Behind => break,
                Position::Data(left) => {
                    let there = (bytes.len() - scanned) as u64;
                    let taken = left.min(there);
                    self.position = match left - taken {
                        0 => Position::DataReturn,
                        left => Position::Data(left),
                    };
                    scanned += usize::try_from(taken).expect("no more than there are");
                }
                position => {
                    self.position = self.next(position, byte)?;
                    scanned += 1;
                }
            }
        }
        Ok(scanned)
    }

    /// Whether the body is there to its end.
    pub(super) fn is_complete(&self) -> bool {
        self.position == Position::Behind
    }

    fn next(&mut self, position: Position, byte: u8) -> io::Result<Position> {
        Ok(match (position, byte) {
            (Position::Size, _) => {
                self.size = 0;
                self.digit(byte)?;
                Position::Digits
            }
            (Position::Digits | Position::Extension, b'\r') => Position::SizeEnd,
            (Position::Digits, b';' | b' ' | b'\t') => Position::Extension,
            (Position::Digits, _) => {
                self.digit(byte)?;
                Position::Digits
            }
            (Position::SizeEnd, b'\n') if self.size == 0 => Position::TrailerStart,
            (Position::SizeEnd, b'\n') => Position::Data(self.size),
            (Position::DataReturn, b'\r') => Position::DataEnd,
            (Position::DataEnd, b'\n') => Position::Size,
            (Position::TrailerStart, b'\r') => Position::LastEnd,
            (Position::Trailer, b'\r') => Position::TrailerEnd,
            (Position::TrailerEnd, b'\n') => Position::TrailerStart,
            (Position::LastEnd, b'\n') => Position::Behind,
            (Position::Extension, _) => self.extra(Position::Extension, byte)?,
            (Position::TrailerStart | Position::Trailer, _) => {
                self.extra(Position::Trailer, byte)?
            }
            _ => return Err(no_chunks()),
        })
    }

    fn digit(&mut self, byte: u8) -> io::Result<()> {
        let digit = char::from(byte).to_digit(16).ok_or_else(no_chunks)?;
        self.size = self.size * 16 + u64::from(digit);
        if self.size > SIZE_MAX {
            return Err(no_chunks());
        }
        Ok(())
    }

    /// A byte that says nothing that counts.
    fn extra(&mut self, position: Position, byte: u8) -> io::Result<Position> {
        self.extra += 1;
        if self.extra > EXTRA_MAX || (byte.is_ascii_control() && byte != b'\t') {
            return Err(no_chunks());
        }
        Ok(position)
    }
}

fn no_chunks() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the body is not in chunks")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long the body is; the same whether it comes at once or byte by byte.
    fn length(text: &str) -> Option<usize> {
        let mut whole = Chunks::default();
        let at_once = whole.scan(text.as_bytes()).ok();
        let mut pieces = Chunks::default();
        let mut length = Some(0);
        for byte in text.as_bytes().chunks(1) {
            length = length.and_then(|length| Some(length + pieces.scan(byte).ok()?));
        }
        assert_eq!(at_once, length, "{text:?}");
        at_once.filter(|_| whole.is_complete())
    }

    #[test]
    fn the_end_is_found() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "A;name=value\r\n0\r\n\r\n12345\r\n000\r\n\r\n",
            "5 \r\n0\r\n\r\n\r\n00000000000000000000\r\ntrailer: x\r\nother:\ty\r\n\r\n",
        ] {
            let text = format!("{body}POST / HTTP/1.1\r\n");
            assert_eq!(length(&text), Some(body.len()), "{body:?}");
            assert_eq!(length(&body[..body.len() - 1]), None, "{body:?}");
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for body in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            ";\r\n",
            "0x5\r\n",
            "5\n",
            "5\r\r\n",
            "5;a\nb\r\n",
            "5;a\0\r\n",
            "5\r\nhello\n",
            "5\r\nhellox\r\n",
            "0\r\n\n",
            "0\r\na\n\r\n",
            "100000000\r\n",
            "ffffffffffffffff\r\n",
            "10000000000000000\r\n",
        ] {
            assert!(Chunks::default().scan(body.as_bytes()).is_err(), "{body:?}");
        }
        let long = format!("5;{}", "x".repeat(EXTRA_MAX + 1));
        assert!(Chunks::default().scan(long.as_bytes()).is_err());
    }
}
