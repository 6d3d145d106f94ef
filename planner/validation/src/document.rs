//! Files that follow from the measured rows: coefficients, error bars, a document and its plot.

use crate::forms::published;
use crate::{Validation, errors, forms_text};

/// Place of the coefficients that all chips share.
pub const COEFFICIENTS: &str = "machine/profiles/coefficients.toml";

const HEADING: &str = "# Predictions against measurements

`cargo xtask validate --write` writes this page. [COSTS.md](COSTS.md) explains the figures.
";

/// Returns the files as paths below the root of the workspace and texts. `coefficients` is the
/// present text of [`COEFFICIENTS`].
#[must_use]
pub fn files(validation: &Validation, coefficients: &str) -> [(&'static str, String); 4] {
    [
        (COEFFICIENTS, fitted(coefficients, validation)),
        ("planner/errors.toml", errors::text(&validation.measured_errors())),
        ("docs/VALIDATION.md", document(validation)),
        ("docs/costs.svg", validation.svg()),
    ]
}

/// Replaces each coefficient that the rows change. A smaller change is within the precision of a
/// fit.
fn fitted(text: &str, validation: &Validation) -> String {
    const PRECISION: f64 = 0.01;
    let mut table = String::new();
    let mut line = |line: &str| -> Option<String> {
        if let Some(name) = line.strip_prefix('[') {
            table = name.replace(']', ".");
        }
        let (name, old) = line.split_once(" = ")?;
        let path = format!("{table}{name}");
        let found = validation.coefficients.iter().find(|found| found.meaning.name == path)?;
        let is_same = old.parse::<f64>().is_ok_and(|old| (old / found.value - 1.0).abs() < PRECISION);
        (!is_same).then(|| format!("{name} = {:?}", found.value))
    };
    text.lines().map(|old| line(old).unwrap_or_else(|| old.to_owned()) + "\n").collect()
}

fn document(validation: &Validation) -> String {
    let published = published();
    let (forms, held) = (forms_text::forms_table(&published).markdown(), forms_text::forms_held(&published));
    let text = validation.text(None);
    format!(
        "{HEADING}\n## Measured rows\n\n```text\n{text}```\n\n## Published closed forms of training\n\n{forms}\n{held}\n"
    )
}

#[cfg(test)]
mod tests {
    use ascend_tp_machine::profile::MEANINGS;

    use super::*;
    use crate::Confidence;

    #[test]
    fn a_coefficient_is_replaced_in_its_own_table() {
        let meaning = *MEANINGS.iter().find(|meaning| meaning.name == "exchange.copy_us").unwrap();
        let found = Confidence { meaning, value: 9.0, range: (8.0, 10.0), pages: 2 };
        let validation = Validation { coefficients: vec![found], ..Validation::default() };
        let text = "copy_us = 1.0\n[exchange]\ncopy_us = 2.0\n[host]\ncopy_us = 3.0\n";
        assert_eq!(fitted(text, &validation), text.replace("2.0", "9.0"));
        let near = text.replace("2.0", "9.01");
        assert_eq!(fitted(&near, &validation), near);
    }
}
