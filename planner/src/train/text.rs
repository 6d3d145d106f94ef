//! Formats tables as Markdown with aligned columns.

use std::fmt::Write;

use super::forms::PublishedFigure;

/// Formats published figures next to the results of their forms.
#[must_use]
pub fn forms_table(rows: &[PublishedFigure]) -> String {
    let cells = rows.iter().map(|row| {
        let digits = row.decimals();
        let difference = if row.holds() && format!("{:.digits$}", row.ours) == row.published {
            "=".to_owned()
        } else {
            format!("{:+.*}", digits + 1, row.difference())
        };
        let verdict = if row.holds() { "" } else { "wrong" };
        [
            row.form.to_owned(),
            row.subject.clone(),
            row.published.clone(),
            format!("{:.digits$}", row.ours),
            difference,
            verdict.to_owned(),
        ]
    });
    let heading = ["form", "for", "published", "ours", "difference", ""];
    let held = rows.iter().filter(|row| row.holds()).count();
    format!("{}\n{held} of {} published figures hold.\n", table(heading, "llrrrl", cells), rows.len())
}

/// Formats a table; `sides` has `l` or `r` for each column.
#[must_use]
pub fn table<const COLUMNS: usize>(
    heading: [&str; COLUMNS],
    sides: &str,
    rows: impl Iterator<Item = [String; COLUMNS]>,
) -> String {
    let mut lines = vec![heading.map(str::to_owned)];
    lines.extend(rows);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0).max(2);
    let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
    let is_right: Vec<bool> = sides.chars().map(|side| side == 'r').collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        text.push('|');
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            let _ =
                if is_right[column] { write!(text, " {cell:>width$} |") } else { write!(text, " {cell:<width$} |") };
        }
        text.push('\n');
        if index == 0 {
            text.push('|');
            for (column, width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width + 1);
                let _ = if is_right[column] { write!(text, "{dashes}:|") } else { write!(text, "-{dashes}|") };
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::forms::{Tolerance, published};
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let rows = [["a".to_owned(), "1".to_owned()], ["long".to_owned(), "12.5".to_owned()]];
        let text = table(["x", "y"], "lr", rows.into_iter());
        assert_eq!(text, "| x    |    y |\n|------|-----:|\n| a    |    1 |\n| long | 12.5 |\n");
    }

    #[test]
    fn a_wrong_figure_is_called_wrong() {
        let mut rows = published();
        assert!(forms_table(&rows).contains(&format!("{0} of {0} published figures hold.", rows.len())));
        rows[0].published = "1".to_owned();
        rows[0].bound = Tolerance::Printed;
        assert!(forms_table(&rows).lines().nth(2).unwrap().contains("wrong"));
    }
}
