//! The format of a file of events and the columns of a CSV, as the commands that read one take them.

use clap::{Args, ValueEnum};
use sampler_verify::events::{self, Columns};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    /// An event on each line
    Ndjson,
    /// A span in each row
    Csv,
    /// A list of events, or one
    Json,
}

impl Format {
    /// The format that was given, or else the one that the name of the file shows.
    pub(crate) fn of(given: Option<Self>, name: &str) -> Result<events::Format, String> {
        let format = match given {
            Some(Self::Ndjson) => Some(events::Format::Ndjson),
            Some(Self::Csv) => Some(events::Format::Csv),
            Some(Self::Json) => Some(events::Format::Json),
            None => events::Format::of_name(name),
        };
        format.ok_or_else(|| {
            format!("{name}: the name does not show the format; use --format ndjson, csv or json")
        })
    }
}

/// Columns whose meaning is not in their names.
#[derive(Debug, Default, Args)]
pub(crate) struct ColumnArguments {
    /// Columns of a CSV that are measures, beside those that are called `measure:NAME`
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    measures: Vec<String>,
    /// Columns of a CSV that are neither measures nor part of a span
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    ignore: Vec<String>,
}

impl ColumnArguments {
    pub(crate) fn named(&self) -> Columns {
        Columns {
            measures: self.measures.clone(),
            ignored: self.ignore.clone(),
        }
    }
}
