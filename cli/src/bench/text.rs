//! The text report of `bench`.

use std::fmt::Write;

use crate::measure::report::{Cell, CellForm, Column};
use crate::measure::{BenchReport, MeasuredTable, MeasuringMachine};
use ascend_tp::base::Bytes;
use ascend_tp_planner::table::{self, Align};

use crate::numbers::{counted, grouped};
use crate::terminal;

pub(super) fn render(report: &BenchReport) -> String {
    let mut text = format!("{}\n", machine(&report.machine));
    for table in &report.tables {
        let _ = writeln!(text, "\n{}", table.title);
        let _ = write!(text, "{}", shown_table(table).within(terminal::width()));
    }
    text
}

pub(super) fn machine(machine: &MeasuringMachine) -> String {
    let MeasuringMachine { date, processor, cores, isa, cards, optimised } = machine;
    let build = if *optimised { "" } else { ", built without optimisations" };
    format!("{date}, {processor}, {}, {isa}; {cards}{build}", counted(*cores, "core"))
}

fn heading(column: &Column) -> (&'static str, Align) {
    (column.heading, if column.form == CellForm::Text { Align::Left } else { Align::Right })
}

/// Columns that a narrow table omits, in this order.
const OPTIONAL: [&str; 13] = [
    "spread",
    "least ms",
    "least",
    "most",
    "program",
    "shapes",
    "launching",
    "dtype",
    "mean µs",
    "rounds",
    "algbw GB/s",
    "check",
    "model",
];

pub(super) fn shown_table(table: &MeasuredTable) -> table::Table {
    let mut text = table::Table::new(table.columns.iter().map(heading)).optional(OPTIONAL);
    for row in &table.rows {
        text.row(row.iter().zip(table.columns).map(|(cell, column)| shown(cell, column.form)));
    }
    text
}

fn shown(cell: &Cell, form: CellForm) -> String {
    match (cell, form) {
        (Cell::Nothing, _) => "-".to_owned(),
        (Cell::Text(text), _) => text.clone(),
        (Cell::Number(number), CellForm::Whole) => grouped(*number as u64),
        (Cell::Number(number), CellForm::Bytes) => Bytes(*number as u64).to_string(),
        (Cell::Number(number), CellForm::Percent) => format!("{:.1} %", 100.0 * number),
        (Cell::Number(number), CellForm::Text | CellForm::Decimal) => significant(*number),
    }
}

/// Formats a number with three significant digits, at most four digits after the point, and all
/// digits before it.
fn significant(number: f64) -> String {
    match number.abs() {
        size if size >= 999.5 && number < 0.0 => format!("-{}", grouped(size.round() as u64)),
        size if size >= 999.5 => grouped(size.round() as u64),
        size if size >= 99.95 => format!("{number:.0}"),
        size if size >= 9.995 => format!("{number:.1}"),
        size if size >= 0.0995 || size == 0.0 => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let shown = [0.0, 0.01234, 0.5, 1.234, 12.34, 123.4, 12_345.6, -12_345.6].map(significant);
        assert_eq!(shown, ["0.00", "0.0123", "0.50", "1.23", "12.3", "123", "12,346", "-12,346"]);
    }

    #[test]
    fn cells_are_shown_as_their_column_says() {
        assert_eq!(shown(&Cell::Number(0.125), CellForm::Percent), "12.5 %");
        assert_eq!(shown(&Cell::Number(16_384.0), CellForm::Bytes), "16.0 KiB");
        assert_eq!(shown(&Cell::Nothing, CellForm::Decimal), "-");
    }
}
