//! A validation as text.

use std::collections::BTreeMap;
use std::fmt;

use super::{Class, Confidence, Statistics, Validation, ValidationRow};

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for class in Class::ALL {
            let rows: Vec<&ValidationRow> = self.rows.iter().filter(|row| row.class == class).collect();
            match rows.as_slice() {
                [] => continue,
                rows if class.is_single() => pages(f, class, rows)?,
                rows => each(f, class, rows)?,
            }
            writeln!(f)?;
        }
        if !self.coefficients.is_empty() {
            coefficients(f, &self.coefficients)?;
        }
        for class in Class::ALL {
            if let Some(Statistics { rows, median, ninetieth, worst }) = self.statistics(class) {
                writeln!(
                    f,
                    "{}: {rows} rows, median error {:.1} %, 90th percentile {:.1} %, worst {:.1} %",
                    class.name(),
                    100.0 * median,
                    100.0 * ninetieth,
                    100.0 * worst
                )?;
            }
        }
        Ok(())
    }
}

/// Every row with a prediction, and how many are left out for which reason; of training, which rows.
fn each(f: &mut fmt::Formatter<'_>, class: Class, rows: &[&ValidationRow]) -> fmt::Result {
    writeln!(f, "{}", class.name())?;
    writeln!(f, "  {:>10}  {:>10}  {:>7}  unit, model, setting", "measured", "predicted", "error")?;
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
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
            (Err(why), _) => *reasons.entry(why).or_default() += 1,
        }
    }
    for (why, rows) in reasons {
        writeln!(f, "  {rows:>10}  {:>10}  {:>7}  left out: {why}", "-", "-")?;
    }
    Ok(())
}

/// The errors of each page, and how many rows are left out for which reason.
fn pages(f: &mut fmt::Formatter<'_>, class: Class, rows: &[&ValidationRow]) -> fmt::Result {
    writeln!(f, "{}, by page", class.name())?;
    writeln!(f, "  {:>5}  {:>7}  {:>7}  source", "rows", "median", "p90")?;
    let mut by_page: BTreeMap<&str, Vec<ValidationRow>> = BTreeMap::new();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        match &row.predicted {
            Ok(_) => by_page.entry(&row.source).or_default().push((*row).clone()),
            Err(why) => *reasons.entry(why).or_default() += 1,
        }
    }
    for (page, rows) in by_page {
        let of_page = Validation { rows, coefficients: Vec::new() };
        let Some(found) = of_page.statistics(class) else { continue };
        let (median, ninetieth) = (100.0 * found.median, 100.0 * found.ninetieth);
        writeln!(f, "  {:>5}  {median:>6.1}%  {ninetieth:>6.1}%  {page}", found.rows)?;
    }
    for (why, rows) in reasons {
        writeln!(f, "  {rows:>5}  {:>7}  {:>7}  left out: {why}", "-", "-")?;
    }
    Ok(())
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
