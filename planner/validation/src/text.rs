//! Formats a validation as text.

use std::collections::BTreeMap;

use super::{
    Class, Confidence, MissingFrom, Subclass, UnpredictedRows, Validation, ValidationRow, ValidationSummary,
};
use ascend_tp_planner::table::{Align, Table};

impl Validation {
    /// Returns text; tables keep within `width` characters a line.
    #[must_use]
    pub fn text(&self, width: Option<usize>) -> String {
        let mut text = String::new();
        for class in Class::ALL {
            if !self.rows.iter().any(|row| row.class == class) {
                continue;
            }
            let (by, table) =
                if class.is_single() { (", by page", pages(self, class)) } else { ("", each(self, class)) };
            text += &format!("{}{by}\n{}{}\n", class.name(), table.within(width), left_out(self, class));
        }
        if !self.coefficients.is_empty() {
            text += "coefficients, and their ranges when one page is left out\n";
            text += &format!("{}\n", coefficients(&self.coefficients).within(width));
        }
        Class::ALL.into_iter().for_each(|class| text += &total(class.name(), &self.summary(class)));
        Subclass::ALL.into_iter().for_each(|part| text += &total(part.name(), &self.part_summary(part)));
        text
    }
}

pub(super) fn total(name: &str, summary: &ValidationSummary) -> String {
    let ValidationSummary { rows, complete, predicted, .. } = summary;
    if *rows == 0 {
        return String::new();
    }
    let mut text = format!("{name}: {rows} rows, {complete} with complete settings, {predicted} predicted");
    if *complete > 0 {
        text += &format!(" ({:.0} %)", 100.0 * *predicted as f64 / *complete as f64);
    }
    if let (Some(median), Some(ninetieth), Some(worst)) = (summary.median, summary.p90, summary.worst) {
        let [median, ninetieth, worst] = [median, ninetieth, worst].map(|error| 100.0 * error);
        text +=
            &format!(", median error {median:.1} %, 90th percentile {ninetieth:.1} %, worst {worst:.1} %");
    }
    if let (Some(fitted), Some(operator)) = (summary.fitted_median, summary.operator_left_out) {
        let [fitted, median, worst] = [fitted, operator.median, operator.worst].map(|error| 100.0 * error);
        text += &format!(
            "; all rows fitted: median {fitted:.1} %; operator left out: median {median:.1} %, worst {worst:.1} %"
        );
    }
    text + "\n"
}

/// Training also lists rows without a prediction.
fn each(validation: &Validation, class: Class) -> Table {
    let mut table = Table::new([
        ("measured", Align::Right),
        ("predicted", Align::Right),
        ("error", Align::Right),
        ("unit, model, setting", Align::Left),
    ]);
    for row in validation.rows.iter().filter(|row| row.class == class) {
        let row_name = format!("{}, {}, {}", row.unit, row.model, row.setting);
        match (&row.predicted, row.error()) {
            (Ok(predicted), Some(error)) => {
                let measured = predicted / (1.0 + error);
                let error = format!("{:+.1}%", 100.0 * error);
                table.row([format!("{measured:.2}"), format!("{predicted:.2}"), error, row_name]);
            }
            (Ok(predicted), None) => {
                table.row([row.measured.clone(), format!("{predicted:.2}"), String::new(), row_name]);
            }
            (Err(why), _) if class == Class::Training => {
                let row_name = format!("{row_name}; left out: {why}");
                table.row([row.measured.clone(), "-".to_owned(), String::new(), row_name]);
            }
            (Err(_), _) => {}
        }
    }
    table
}

/// Lists rows that no parser or model reads by page; the other reasons are properties of the rows.
fn left_out(validation: &Validation, class: Class) -> String {
    let line = |UnpredictedRows { lacks, why, rows, pages }| {
        let mut text = format!("  {rows} left out, {}: {why}\n", lacks.name());
        if lacks == MissingFrom::Model {
            text.extend(pages.into_iter().map(|(page, rows)| format!("    {rows} of {page}\n")));
        }
        text
    };
    validation.summary(class).left_out.into_iter().map(line).collect()
}

fn pages(validation: &Validation, class: Class) -> Table {
    let mut table = Table::new([
        ("rows", Align::Right),
        ("median", Align::Right),
        ("p90", Align::Right),
        ("source", Align::Left),
    ]);
    let mut by_page: BTreeMap<&str, Vec<ValidationRow>> = BTreeMap::new();
    for row in validation.rows.iter().filter(|row| row.class == class && row.predicted.is_ok()) {
        by_page.entry(&row.source).or_default().push(row.clone());
    }
    for (page, rows) in by_page {
        let of_page = Validation { rows, ..Validation::default() };
        let Some(found) = of_page.statistics(class) else { continue };
        let [median, ninetieth] =
            [found.median, found.ninetieth].map(|error| format!("{:.1}%", 100.0 * error));
        table.row([found.rows.to_string(), median, ninetieth, page.to_owned()]);
    }
    table
}

fn coefficients(all: &[Confidence]) -> Table {
    let mut table = Table::new([
        ("name", Align::Left),
        ("value", Align::Right),
        ("unit", Align::Right),
        ("values", Align::Right),
        ("plausible", Align::Right),
        ("pages, kind", Align::Left),
    ]);
    for Confidence { meaning, value, range: (low, high), pages } in all {
        let (values, plausible) =
            (format!("{low} to {high}"), format!("{} to {}", meaning.low, meaning.high));
        let (name, unit, kind) = (meaning.name.to_string(), meaning.unit.to_string(), meaning.kind);
        table.row([name, value.to_string(), unit, values, plausible, format!("{pages} of {kind}")]);
    }
    table
}
