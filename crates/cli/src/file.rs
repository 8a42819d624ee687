//! A file of events, as the commands that read one take it.

use std::fmt::Display;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use sampler_verify::events::{self, Columns, Event, Format};
use sampler_verify::moment::Millis;

use crate::failure::Failure;
use crate::moment::{self, time};

#[derive(Debug, Args)]
pub(crate) struct FileArguments {
    /// NDJSON or CSV as in examples/README.md, or `CloudEvents`, one a line. `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The format, if the file name does not show it
    #[arg(long, value_parser = ["ndjson", "csv"])]
    format: Option<String>,
    /// Columns of a CSV that are measures, beside those that are called `measure:NAME`
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    measures: Vec<String>,
    /// Columns of a CSV that are neither measures nor part of a span
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    ignore: Vec<String>,
    /// The present time, for the commands that ask for it
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    now: Option<Millis>,
}

/// The content of a file.
#[derive(Debug)]
pub(crate) struct EventFile {
    path: PathBuf,
    pub(crate) format: Format,
    columns: Columns,
    now: Millis,
    pub(crate) bytes: Vec<u8>,
}

impl FileArguments {
    pub(crate) fn now(&self) -> Millis {
        self.now.unwrap_or_else(moment::now)
    }

    /// Reads the file, and fails where it is no text, or columns are named and there are none.
    pub(crate) fn open(self) -> Result<EventFile, Failure> {
        let now = self.now();
        let path = self.file;
        let name = self.format.map(|format| format!(".{format}"));
        let format = Format::of_name(&name.unwrap_or_else(|| path.display().to_string()));
        let format = format.ok_or_else(|| {
            let what = "the name does not show the format; use --format ndjson or csv";
            Failure::of_file(&path, &what)
        })?;
        let bytes = if path == Path::new("-") {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
        } else {
            std::fs::read(&path)
        };
        let file = EventFile {
            bytes: bytes.map_err(|error| Failure::of_file(&path, &error))?,
            path,
            format,
            columns: Columns {
                measures: self.measures,
                ignored: self.ignore,
            },
            now,
        };
        let text = events::check_text(&mut &file.bytes[..]);
        text.map_err(|error| file.wrong(&error))?;
        let columns = file.columns.check(format);
        columns.map_err(|error| file.wrong(&error))?;
        Ok(file)
    }
}

impl EventFile {
    pub(crate) fn wrong(&self, what: &dyn Display) -> Failure {
        Failure::of_file(&self.path, what)
    }

    /// All events, as the verifier understands them.
    pub(crate) fn read(&self) -> Result<Vec<Event>, Failure> {
        let read = events::read(&self.bytes[..], self.format, &self.columns, self.now);
        read.map_err(|error| self.wrong(&error))
    }
}
