//! Lines that are kept in memory, compressed.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::Serialize;

/// Bytes that are added at a time, without copying the earlier ones.
const CHUNK: usize = 1 << 20;

/// Lines that are being written.
#[derive(Debug)]
pub(super) struct Spool {
    encoder: DeflateEncoder<Chunks>,
}

/// Lines that are there to be read.
#[derive(Debug)]
pub(super) struct Spooled {
    chunks: Chunks,
}

#[derive(Clone, Debug, Default)]
struct Chunks(VecDeque<Vec<u8>>);

impl Spool {
    pub(super) fn new() -> Self {
        Self {
            encoder: DeflateEncoder::new(Chunks::default(), Compression::fast()),
        }
    }

    /// Writes a value as a line of JSON.
    pub(super) fn write(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.encoder, value)?;
        self.encoder.write_all(b"\n")
    }

    /// Bytes of memory that it takes, with those that the next line may add.
    pub(super) fn memory(&self) -> usize {
        (self.encoder.get_ref().0.len() + 1) * CHUNK
    }

    pub(super) fn finish(self) -> io::Result<Spooled> {
        let chunks = self.encoder.finish()?;
        Ok(Spooled { chunks })
    }
}

impl Spooled {
    /// All lines, in the order in which they were written.
    pub(super) fn read(&self) -> impl Iterator<Item = io::Result<String>> {
        let chunks = SpoolReader {
            chunks: &self.chunks.0,
            chunk: 0,
            at: 0,
        };
        BufReader::new(DeflateDecoder::new(chunks)).lines()
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let last = self.0.back();
        if last.is_none_or(|last| last.len() + bytes.len() > last.capacity()) {
            self.0.push_back(Vec::with_capacity(CHUNK.max(bytes.len())));
        }
        if let Some(last) = self.0.back_mut() {
            last.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct SpoolReader<'a> {
    chunks: &'a VecDeque<Vec<u8>>,
    chunk: usize,
    at: usize,
}

impl Read for SpoolReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(chunk) = self.chunks.get(self.chunk) {
            let rest = chunk.get(self.at..).unwrap_or_default();
            if !rest.is_empty() {
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                self.at += count;
                return Ok(count);
            }
            (self.chunk, self.at) = (self.chunk + 1, 0);
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_were_written() {
        let mut spool = Spool::new();
        let lines: Vec<String> = (0..200_000_u64)
            .map(|number| format!("{:x} ä\n", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        for line in &lines {
            spool.write(line).unwrap();
        }
        let spooled = spool.finish().unwrap();
        assert!(spooled.chunks.0.len() > 1, "one chunk");
        for _ in 0..2 {
            let read = spooled
                .read()
                .map(|line| serde_json::from_str::<String>(&line.unwrap()).unwrap());
            assert!(read.eq(lines.iter().cloned()));
        }
        assert_eq!(Spool::new().finish().unwrap().read().count(), 0);
    }
}
