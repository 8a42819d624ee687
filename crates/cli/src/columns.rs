//! The columns of a CSV, as the commands that read one take them.

use clap::Args;
use sampler_verify::events::Columns;

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
