//! A file of events, as the commands that read one take it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sampler_verify::events::{self, Columns, Event, FileTimes};
use sampler_verify::moment::{Millis, parse_length};

use crate::clock;
use crate::failure::Failure;
use crate::moment::time;

#[derive(Debug, Args)]
pub(crate) struct FileArguments {
    /// NDJSON or CSV as in examples/README.md, or `CloudEvents`, one a line. `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The format, if the file name does not show it
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Columns of a CSV that are measures, beside those that are called `measure:NAME`
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    measures: Vec<String>,
    /// Columns of a CSV that are neither measures nor part of a span
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    ignore: Vec<String>,
    /// The present time, for `day` and `at` in the file
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    now: Option<Millis>,
    /// Added to all timestamps of the file, but not to those of `CloudEvents`
    #[arg(long, value_name = "LENGTH", default_value = "0s", value_parser = parse_length)]
    #[arg(allow_hyphen_values = true)]
    offset: Millis,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// An event on each line
    Ndjson,
    /// A span in each row
    Csv,
}

/// A file that may be read several times.
#[derive(Debug)]
pub(crate) struct EventFile {
    path: PathBuf,
    pub(crate) format: events::Format,
    pub(crate) times: FileTimes,
    columns: Columns,
    /// Standard input, which is read once.
    held: Option<Vec<u8>>,
}

impl FileArguments {
    pub(crate) fn now(&self) -> Millis {
        self.now.unwrap_or_else(clock::now)
    }

    pub(crate) fn open(self) -> Result<EventFile, Failure> {
        let times = FileTimes {
            now: self.now(),
            offset: self.offset,
        };
        let given = self.format.map(|format| match format {
            Format::Ndjson => events::Format::Ndjson,
            Format::Csv => events::Format::Csv,
        });
        let named = events::Format::of_name(&self.file.to_string_lossy());
        let format = given.or(named).ok_or_else(|| {
            let what = "the name does not show the format; use --format ndjson or csv";
            Failure::of_file(&self.file, &what)
        })?;
        let mut held = None;
        if self.file == Path::new("-") {
            let mut bytes = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut bytes);
            read.map_err(|error| Failure::of_file(&self.file, &error))?;
            held = Some(bytes);
        }
        Ok(EventFile {
            path: self.file,
            format,
            times,
            columns: Columns {
                measures: self.measures,
                ignored: self.ignore,
            },
            held,
        })
    }
}

impl EventFile {
    pub(crate) fn wrong(&self, what: &dyn std::fmt::Display) -> Failure {
        Failure::of_file(&self.path, what)
    }

    pub(crate) fn reader(&self) -> Result<Box<dyn BufRead + '_>, Failure> {
        if let Some(held) = &self.held {
            return Ok(Box::new(held.as_slice()));
        }
        let file = File::open(&self.path).map_err(|error| self.wrong(&error))?;
        Ok(Box::new(BufReader::new(file)))
    }

    /// All events, as the verifier understands them.
    pub(crate) fn read(&self) -> Result<Vec<Event>, Failure> {
        let read = events::read(self.reader()?, self.format, &self.columns, self.times);
        read.map_err(|error| self.wrong(&error))
    }

    /// Fails where columns are named, and there are none.
    pub(crate) fn check_columns(&self) -> Result<(), Failure> {
        let checked = self.columns.check(self.format);
        checked.map_err(|error| self.wrong(&error))
    }
}
