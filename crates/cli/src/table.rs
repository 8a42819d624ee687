//! Tables for people.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Row, Table};

/// Cells in columns; those of the given numbers to the left, the others to the right.
pub(crate) fn table<R: Into<Row>>(
    header: impl Into<Row>,
    rows: impl Iterator<Item = R>,
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
