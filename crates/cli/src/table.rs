//! Tables for people.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// Cells in columns; those of the given numbers to the left, the others to the right.
pub fn table<const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    left: &[usize],
) -> String {
    table_of_width(header, rows, left, None)
}

/// The same in lines of `width` columns: longer texts go over several lines.
pub(crate) fn table_of_width<const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    left: &[usize],
    width: Option<usize>,
) -> String {
    let mut table = Table::new();
    if let Some(width) = width.and_then(|width| u16::try_from(width).ok()) {
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width);
    }
    table.load_style(NOTHING).set_header(header).add_rows(rows);
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if !left.contains(&number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
