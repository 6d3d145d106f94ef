//! Formats a validation as text.

use std::collections::BTreeMap;
use std::fmt;

use super::{Class, Confidence, Statistics, UnpredictedRows, Validation, ValidationRow, ValidationSummary};

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for class in Class::ALL {
            if !self.rows.iter().any(|row| row.class == class) {
                continue;
            }
            if class.is_single() {
                pages(f, self, class)?;
            } else {
                each(f, self, class)?;
            }
            writeln!(f)?;
        }
        if !self.coefficients.is_empty() {
            coefficients(f, &self.coefficients)?;
        }
        for class in Class::ALL {
            total(f, self, class)?;
        }
        Ok(())
    }
}

/// Writes how many rows are complete and predicted, and their errors.
fn total(f: &mut fmt::Formatter<'_>, validation: &Validation, class: Class) -> fmt::Result {
    let ValidationSummary { rows, complete, predicted, .. } = validation.summary(class);
    if rows == 0 {
        return Ok(());
    }
    write!(f, "{}: {rows} rows, {complete} with complete settings, {predicted} of them predicted", class.name())?;
    if complete > 0 {
        write!(f, " ({:.0} %)", 100.0 * predicted as f64 / complete as f64)?;
    }
    if let Some(Statistics { median, ninetieth, worst, .. }) = validation.statistics(class) {
        let [median, ninetieth, worst] = [median, ninetieth, worst].map(|error| 100.0 * error);
        write!(f, ", median error {median:.1} %, 90th percentile {ninetieth:.1} %, worst {worst:.1} %")?;
    }
    writeln!(f)
}

/// Writes predicted rows; for training also rows without a prediction.
fn each(f: &mut fmt::Formatter<'_>, validation: &Validation, class: Class) -> fmt::Result {
    writeln!(f, "{}", class.name())?;
    writeln!(f, "  {:>10}  {:>10}  {:>7}  unit, model, setting", "measured", "predicted", "error")?;
    for row in validation.rows.iter().filter(|row| row.class == class) {
        let what = format!("{}, {}, {}", row.unit, row.model, row.setting);
        match (&row.predicted, row.error()) {
            (Ok(predicted), Some(error)) => {
                let measured = predicted / (1.0 + error);
                writeln!(f, "  {measured:>10.2}  {predicted:>10.2}  {:>+6.1}%  {what}", 100.0 * error)?;
            }
            (Ok(predicted), None) => {
                writeln!(f, "  {:>10}  {predicted:>10.2}  {:>7}  {what}", row.measured, "")?;
            }
            (Err(why), _) if class == Class::Training => {
                writeln!(f, "  {:>10}  {:>10}  {:>7}  {what}; left out: {why}", row.measured, "-", "")?;
            }
            (Err(_), _) => {}
        }
    }
    left_out(f, validation, class)
}

/// Writes the number of unpredicted rows by reason.
fn left_out(f: &mut fmt::Formatter<'_>, validation: &Validation, class: Class) -> fmt::Result {
    for UnpredictedRows { lacks, why, rows } in validation.summary(class).left_out {
        writeln!(f, "  {rows:>10}  left out, {}: {why}", lacks.name())?;
    }
    Ok(())
}

fn pages(f: &mut fmt::Formatter<'_>, validation: &Validation, class: Class) -> fmt::Result {
    writeln!(f, "{}, by page", class.name())?;
    writeln!(f, "  {:>5}  {:>7}  {:>7}  source", "rows", "median", "p90")?;
    let mut by_page: BTreeMap<&str, Vec<ValidationRow>> = BTreeMap::new();
    for row in validation.rows.iter().filter(|row| row.class == class && row.predicted.is_ok()) {
        by_page.entry(&row.source).or_default().push(row.clone());
    }
    for (page, rows) in by_page {
        let of_page = Validation { rows, coefficients: Vec::new() };
        let Some(found) = of_page.statistics(class) else { continue };
        let (median, ninetieth) = (100.0 * found.median, 100.0 * found.ninetieth);
        writeln!(f, "  {:>5}  {median:>6.1}%  {ninetieth:>6.1}%  {page}", found.rows)?;
    }
    left_out(f, validation, class)
}

fn coefficients(f: &mut fmt::Formatter<'_>, all: &[Confidence]) -> fmt::Result {
    writeln!(f, "coefficients, and their values when any one page is left out")?;
    writeln!(f, "  {:<30} {:>10} {:>5}  {:>21}  {:>17}  pages, kind", "name", "value", "unit", "values", "plausible")?;
    for Confidence { meaning, value, range: (low, high), pages } in all {
        let (values, plausible) = (format!("{low} to {high}"), format!("{} to {}", meaning.low, meaning.high));
        let (name, unit, kind) = (meaning.name, meaning.unit, meaning.kind);
        writeln!(f, "  {name:<30} {value:>10} {unit:>5}  {values:>21}  {plausible:>17}  {pages} of {kind}")?;
    }
    writeln!(f)
}
