//! Closed forms and measured rows as tables.
//!
//! Input → output: rows of [`super::forms`] and [`super::points`] → text in columns, which is Markdown as well. Does not:
//! print.

use std::fmt::Write;

use super::coefficients::TrainCoefficients;
use super::forms::PublishedFigure;
use super::points::{Outcome, PointRow, errors};

/// Every published figure beside what its form gives.
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

/// Every measured row beside what is predicted for it, those that are left out with their reason.
#[must_use]
pub fn points_table(rows: &[PointRow]) -> String {
    let cells = rows.iter().map(|row| {
        let digits = if row.measured < 100.0 { 1 } else { 0 };
        let (predicted, error, why) = match (&row.outcome, row.error()) {
            (Outcome::Predicted(value), Some(error)) => {
                (format!("{value:.digits$}"), format!("{:+.1} %", 100.0 * error), "")
            }
            (Outcome::LeftOut(reason), _) => (String::new(), String::new(), reason.as_str()),
            (Outcome::Predicted(value), None) => (format!("{value:.digits$}"), String::new(), ""),
        };
        [
            row.model.clone(),
            row.split.clone(),
            row.unit.clone(),
            format!("{:.digits$}", row.measured),
            predicted,
            error,
            why.to_owned(),
        ]
    });
    let heading = ["model", "split", "unit", "measured", "predicted", "error", "left out because"];
    let (median, tenth, count) = errors(rows);
    format!(
        "{}\n{count} of {} rows: median error {:.1} %, 90th percentile {:.1} %.\n",
        table(heading, "lllrrrl", cells),
        rows.len(),
        100.0 * median,
        100.0 * tenth
    )
}

/// The coefficients that were fitted of training.
#[must_use]
pub fn coefficients_table(coefficients: &TrainCoefficients) -> String {
    let TrainCoefficients { product_efficiency, attention_efficiency, overlap, step_us } = *coefficients;
    let rows = [
        (
            "product_efficiency",
            format!("{product_efficiency}"),
            "of the cube units' rate, a large product within a step",
        ),
        (
            "attention_efficiency",
            format!("{attention_efficiency}"),
            "of the cube units' rate, fused attention at heads of 128",
        ),
        (
            "overlap",
            format!("{overlap}"),
            "of an exchange behind a product, of a computation's time for an exchange beside it",
        ),
        ("step_us", format!("{step_us}"), "microseconds of the host a step"),
    ];
    let cells = rows.into_iter().map(|(name, value, meaning)| [name.to_owned(), value, meaning.to_owned()]);
    table(["coefficient", "value", "of what"], "lrl", cells)
}

/// A Markdown table whose columns are aligned in plain text too; `sides` has `l` or `r` for each.
fn table<const COLUMNS: usize>(
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

    #[test]
    fn a_row_that_is_left_out_says_why() {
        let row = PointRow {
            source: String::new(),
            model: "m".to_owned(),
            split: "s".to_owned(),
            unit: "u".to_owned(),
            measured: 200.0,
            gap: None,
            outcome: Outcome::Predicted(250.0),
        };
        let out = PointRow { outcome: Outcome::LeftOut("unknown".to_owned()), ..row.clone() };
        let text = points_table(&[row, out]);
        assert!(text.contains("| +25.0 % |") && text.contains("| unknown"), "{text}");
        assert!(text.contains("1 of 2 rows: median error 25.0 %"), "{text}");
    }
}
