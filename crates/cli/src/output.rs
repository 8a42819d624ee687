//! Printing.

use std::io::{self, Write};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_cannot_command_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jé\n"), "a\u{fffd}[2Jé\u{fffd}");
    }
}
