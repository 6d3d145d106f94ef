//! Typical error of a prediction.
//!
//! A chip without rows uses the coefficients of other chips. The difference between chips is
//! assumed as large as between pages, so that bar is √2 times as wide.

use std::fmt;

use ascend_tp_machine::Soc;
use serde::Serialize;

use super::Class;

/// Rows, median and 90th percentile of errors, as in `plan --validate`; checked by a test.
const ERRORS: [(Class, usize, f64, f64); 3] = [
    (Class::Steps, 11, 0.056, 0.220),
    (Class::Serving, 49, 0.051, 0.287),
    (Class::Training, 77, 0.058, 0.172),
];

const MEASURED: [Soc; 5] =
    [Soc::Ascend910B2, Soc::Ascend910B3, Soc::Ascend910B4, Soc::Ascend910_9391, Soc::Ascend910_9362];

/// Typical relative error of a predicted time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorBar {
    /// Name of the measured [`Class`].
    pub measured: &'static str,
    /// Number of measured rows.
    pub rows: usize,
    /// Error bound of half of the times.
    pub half: f64,
    /// Error bound of nine in ten times.
    pub nine_of_ten: f64,
    /// Name of a chip without rows.
    pub unmeasured_chip: Option<&'static str>,
}

impl ErrorBar {
    /// Uses the bar of steps for single operators.
    #[must_use]
    pub fn of(class: Class, soc: Soc) -> Self {
        let errors = ERRORS.iter().find(|(of, ..)| *of == class).unwrap_or(&ERRORS[0]);
        let is_measured = MEASURED.contains(&soc);
        let wider = if is_measured { 1.0 } else { std::f64::consts::SQRT_2 };
        Self {
            measured: errors.0.name(),
            rows: errors.1,
            half: errors.2 * wider,
            nine_of_ten: errors.3 * wider,
            unmeasured_chip: (!is_measured).then_some(soc.name()),
        }
    }
}

impl fmt::Display for ErrorBar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measured, rows, half, nine_of_ten, unmeasured_chip } = self;
        let (half, nine) = (100.0 * half, 100.0 * nine_of_ten);
        write!(
            f,
            "half of such times are within {half:.0} %, nine of ten within {nine:.0} % ({rows} measured rows of {measured}"
        )?;
        if let Some(chip) = unmeasured_chip {
            write!(f, "; none measures {chip}: coefficients of other chips, a bar √2 times as wide")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{MeasuredOperator, OPERATORS};
    use super::*;
    use crate::points::Point;

    #[test]
    fn bars_are_the_errors_of_the_validation() {
        for (class, rows, half, nine) in ERRORS {
            let found = super::super::tests::SHIPPED.statistics(class).unwrap();
            assert_eq!(found.rows, rows, "{found:?}");
            assert!(
                (found.median - half).abs() < 0.005 && (found.ninetieth - nine).abs() < 0.005,
                "{class:?}: {found:?}"
            );
        }
    }

    #[test]
    fn a_chip_without_rows_says_so_and_has_a_wider_bar() {
        let points = Point::all(OPERATORS);
        let named: BTreeSet<usize> =
            points.iter().filter_map(|point| Some(MeasuredOperator::of(point).ok()?.soc as usize)).collect();
        assert_eq!(named, MEASURED.iter().map(|soc| *soc as usize).collect());
        let (own, other) =
            (ErrorBar::of(Class::Steps, Soc::Ascend910B3), ErrorBar::of(Class::Steps, Soc::Ascend910B1));
        assert!(other.nine_of_ten > 1.4 * own.nine_of_ten && own.unmeasured_chip.is_none());
        assert!(other.to_string().contains("none measures Ascend910B1"), "{other}");
    }
}
