//! Tables for a terminal: rows under a heading, in columns as wide as their widest cell.

use std::fmt;

/// Which side of a column the text stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Rows under a heading; the last column is not filled up.
#[derive(Debug)]
pub(super) struct Table<const COLUMNS: usize> {
    heading: [(&'static str, Align); COLUMNS],
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(super) const fn new(heading: [(&'static str, Align); COLUMNS]) -> Self {
        Self { heading, rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells);
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_aligned(f, &self.heading, &self.rows)
    }
}

/// Rows of as many cells as there are headings, each column as wide as its widest cell.
pub(super) fn write_aligned<R: AsRef<[String]>>(
    out: &mut impl fmt::Write,
    heading: &[(&'static str, Align)],
    rows: &[R],
) -> fmt::Result {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row.as_ref()[column].chars().count());
        cells.chain([heading[column].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let names: Vec<String> = heading.iter().map(|(name, _)| (*name).to_owned()).collect();
    for row in std::iter::once(names.as_slice()).chain(rows.iter().map(AsRef::as_ref)) {
        let mut line = String::from(" ");
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            line.push(' ');
            line.push_str(&match heading[column].1 {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
            line.push(' ');
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new([("n", Align::Right), ("name", Align::Left), ("why", Align::Left)]);
        table.row(["80".into(), "x".into(), "because".into()]);
        table.row(["1".into(), "longer".into(), String::new()]);
        assert_eq!(table.to_string(), "   n  name    why\n  80  x       because\n   1  longer\n");
    }
}
