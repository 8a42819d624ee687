//! A file of events, read one after the other.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use sampler_verify::events::{self, EventKind, FileTimes};
use sampler_verify::moment::Millis;
use uuid::Uuid;

use super::FileArguments;
use super::file_event::{FileEvent, Importer};
use super::journal::Extent;
use crate::columns::Format;
use crate::failure::Failure;

/// The longest line, in bytes; the receiver takes no larger event either.
const LINE_LEN_MAX: u64 = 1 << 20;

/// One event of the file, or the reason why it cannot be read.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) line: u64,
    pub(crate) event: Result<FileEvent, String>,
}

impl Item {
    /// The part of the file up to and including this item; `before` is the part before it.
    pub(super) fn extend(&self, before: Extent) -> Extent {
        let said = match &self.event {
            Ok(event) => &event.body,
            Err(reason) => reason,
        };
        let said = format!("{} {said}", self.line);
        Extent {
            events: before.events + 1,
            digest: Uuid::new_v5(&before.digest, said.as_bytes()),
        }
    }
}

/// The events of a file, in its order.
pub(super) struct Input {
    source: Source,
    importer: Importer,
    name: String,
    measures: Option<Vec<String>>,
    /// How long all is, in bytes or in events, and how much of it was read.
    length: Option<u64>,
    position: u64,
}

enum Source {
    Lines(Box<dyn BufRead>, u64),
    Rows(std::vec::IntoIter<events::Event>),
    List(std::vec::IntoIter<(u64, String)>),
}

impl FileArguments {
    pub(super) fn is_stdin(&self) -> bool {
        self.file == Path::new("-")
    }
}

impl Input {
    /// Opens a file. Tables and lists are read as a whole.
    pub(super) fn open(file: &FileArguments, now: Millis) -> Result<Self, Failure> {
        let path = &file.file;
        let name = path.display().to_string();
        let format = Format::of(file.format, &name).map_err(Failure::Input)?;
        let columns = file.columns.named();
        let checked = columns.check(format);
        checked.map_err(|error| Failure::of_file(path, &error))?;
        let mut length = None;
        let mut reader: Box<dyn BufRead> = if file.is_stdin() {
            Box::new(BufReader::new(io::stdin()))
        } else {
            let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
            let (metadata, opened) = opened.map_err(|error| Failure::of_file(path, &error))?;
            length = metadata.is_file().then_some(metadata.len());
            Box::new(BufReader::new(opened))
        };
        let mut measures = None;
        let source = match format {
            events::Format::Ndjson => {
                events::check_text(&mut reader).map_err(|error| Failure::of_file(path, &error))?;
                Source::Lines(reader, 0)
            }
            events::Format::Csv => {
                let reading = FileTimes { now, offset: 0 };
                let rows = events::read(reader, events::Format::Csv, &columns, reading)
                    .map_err(|error| Failure::of_file(path, &error))?;
                measures = Some(measures_of(&rows));
                length = Some(rows.len() as u64);
                Source::Rows(rows.into_iter())
            }
            events::Format::Json => {
                let items =
                    events::read_items(reader).map_err(|error| Failure::of_file(path, &error))?;
                length = Some(items.len() as u64);
                Source::List(items.into_iter())
            }
        };
        let importer = Importer::new(now, file.offset);
        Ok(Self {
            source,
            importer,
            name,
            measures,
            length,
            position: 0,
        })
    }

    /// How long it is, if that is known, in the unit of [`Input::position`].
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// How much of it was read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The columns of a table that are measures.
    pub(super) fn measures(&self) -> Option<&[String]> {
        self.measures.as_deref()
    }

    /// Counts relative times from this one. Nothing may be read before.
    pub(super) fn count_from(&mut self, now: Millis) {
        self.importer.count_from(now);
    }

    /// Whether a time that was read counts from now.
    pub(super) fn has_relative(&self) -> bool {
        self.importer.has_relative()
    }

    pub(super) fn next(&mut self) -> Result<Option<Item>, Failure> {
        let importer = &mut self.importer;
        let (line, event) = match &mut self.source {
            Source::Lines(reader, number) => {
                let next = next_line(reader, number, &mut self.position).map_err(|error| {
                    let (name, line) = (&self.name, *number);
                    Failure::Input(format!("{name}: line {line}: {error}"))
                })?;
                let Some(text) = next else { return Ok(None) };
                (*number, importer.of_json(*number, &text))
            }
            Source::Rows(rows) => {
                let Some(event) = rows.next() else {
                    return Ok(None);
                };
                self.position += 1;
                (event.line, importer.of_row(&event))
            }
            Source::List(items) => {
                let Some((line, text)) = items.next() else {
                    return Ok(None);
                };
                self.position += 1;
                (line, importer.of_json(line, &text))
            }
        };
        Ok(Some(Item { line, event }))
    }
}

/// The measures of a table: each of its rows has the same.
fn measures_of(rows: &[events::Event]) -> Vec<String> {
    let measures = rows
        .iter()
        .find_map(|row| match &row.kind {
            EventKind::Start(measures) => Some(measures),
            EventKind::Stop => None,
        })
        .into_iter()
        .flatten();
    measures.map(|measure| measure.measure.clone()).collect()
}

/// The next line that is neither empty nor a comment.
fn next_line(
    reader: &mut dyn BufRead,
    number: &mut u64,
    position: &mut u64,
) -> io::Result<Option<String>> {
    loop {
        let mut line = Vec::new();
        *number += 1;
        let length = Read::take(&mut *reader, LINE_LEN_MAX + 1).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(None);
        }
        *position += length as u64;
        if length as u64 > LINE_LEN_MAX {
            return Err(io::Error::other("the line is too long"));
        }
        let line = String::from_utf8(line).map_err(|_| io::Error::other("it is not UTF-8"))?;
        let text = line.trim_start_matches('\u{feff}').trim();
        if !text.is_empty() && !text.starts_with('#') {
            return Ok(Some(text.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_passed_over_and_lines_have_a_limit() {
        let (mut number, mut position) = (0, 0);
        let mut text = &b"# x\n\n {} \n{}"[..];
        assert_eq!(
            next_line(&mut text, &mut number, &mut position)
                .unwrap()
                .as_deref(),
            Some("{}")
        );
        assert_eq!(number, 3);
        assert!(
            next_line(&mut text, &mut number, &mut position)
                .unwrap()
                .is_some()
        );
        assert_eq!(
            next_line(&mut text, &mut number, &mut position).unwrap(),
            None
        );
        let mut endless = BufReader::new(io::repeat(b'x'));
        assert!(next_line(&mut endless, &mut number, &mut position).is_err());
        assert!(next_line(&mut &b"\xff\n"[..], &mut number, &mut position).is_err());
    }
}
