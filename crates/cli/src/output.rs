//! What is printed.

use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use crate::failure::Failure;

/// Prints a text. A reader that has seen enough, like `head`, is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Input(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A text of others, without what a terminal would take for a command.
pub(crate) fn printable(text: &str) -> String {
    let shown = |character: char| {
        if character.is_control() {
            '\u{fffd}'
        } else {
            character
        }
    };
    text.chars().map(shown).collect()
}

/// Cells in columns; those of the given numbers to the left, the others to the right.
pub(crate) fn table<const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    left: &[usize],
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header).add_rows(rows);
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if !left.contains(&number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_cannot_command_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jé\n"), "a\u{fffd}[2Jé\u{fffd}");
    }
}
