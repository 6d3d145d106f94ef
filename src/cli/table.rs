//! Aligned columns.

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
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.heading[column].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
        let heading = self.heading.map(|(name, _)| name.to_owned());
        for row in std::iter::once(&heading).chain(&self.rows) {
            let mut line = String::from(" ");
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                line.push(' ');
                line.push_str(&match self.heading[column].1 {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                });
                line.push(' ');
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
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
