//! The table of closed forms.

use crate::forms::PublishedFigure;
use ascend_tp_planner::table::{Align, Table};

/// Lists published figures and forms.
#[must_use]
pub fn forms_table(rows: &[PublishedFigure]) -> Table {
    let mut table = Table::new([
        ("form", Align::Left),
        ("for", Align::Left),
        ("published", Align::Right),
        ("ours", Align::Right),
        ("difference", Align::Right),
        ("", Align::Left),
    ]);
    for row in rows {
        let digits = row.decimals();
        let difference = if row.holds() && format!("{:.digits$}", row.ours) == row.published {
            "=".to_owned()
        } else {
            format!("{:+.*}", digits + 1, row.difference())
        };
        table.row([
            row.form.to_owned(),
            row.subject.clone(),
            row.published.clone(),
            format!("{:.digits$}", row.ours),
            difference,
            if row.holds() { String::new() } else { "wrong".to_owned() },
        ]);
    }
    table
}

/// Says how many figures hold.
#[must_use]
pub fn forms_held(rows: &[PublishedFigure]) -> String {
    let held = rows.iter().filter(|row| row.holds()).count();
    format!("{held} of {} published figures hold.", rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forms::{Tolerance, published};

    #[test]
    fn a_wrong_figure_is_called_wrong() {
        let mut rows = published();
        assert_eq!(forms_held(&rows), format!("{0} of {0} published figures hold.", rows.len()));
        rows[0].published = "1".to_owned();
        rows[0].bound = Tolerance::Printed;
        assert!(forms_table(&rows).to_string().lines().nth(1).unwrap().contains("wrong"));
    }
}
