//! Typical error of a predicted time.
//!
//! `errors.toml` has the errors of predictions against published measurements. A chip without rows
//! uses the coefficients of other chips. The difference between chips is assumed as large as
//! between pages, so that bar is √2 times as wide.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use ascend_tp_machine::Soc;
use serde::{Deserialize, Serialize};

/// Kind of a predicted time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PredictedTime {
    /// One forward step of a model.
    Steps,
    /// A serving stack in steady state.
    Serving,
    /// A step of a training job.
    Training,
}

impl PredictedTime {
    /// Kinds in declaration order.
    pub const ALL: [Self; 3] = [Self::Steps, Self::Serving, Self::Training];

    const fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Serving => "serving",
            Self::Training => "training",
        }
    }
}

/// Errors of predictions against measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredErrors {
    /// Chips with measured operators.
    pub chips: Vec<String>,
    /// Errors by kind of the time.
    pub times: BTreeMap<PredictedTime, ErrorsOfRows>,
}

/// Relative errors of measured rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorsOfRows {
    /// Number of measured rows.
    pub rows: usize,
    /// Error bound of half of the times.
    pub half: f64,
    /// Error bound of nine in ten times.
    pub nine_of_ten: f64,
}

impl MeasuredErrors {
    /// Returns the errors that the program ships with.
    ///
    /// # Panics
    /// Never: a test parses the shipped text.
    #[must_use]
    pub fn shipped() -> &'static Self {
        static SHIPPED: LazyLock<MeasuredErrors> = LazyLock::new(|| {
            toml::from_str(include_str!("../errors.toml"))
                .unwrap_or_else(|error| panic!("errors.toml: {error}"))
        });
        &SHIPPED
    }
}

/// Typical relative error of a predicted time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorBar {
    /// Kind of the measured times.
    pub measured: PredictedTime,
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
    /// Returns the bar of a time on a chip.
    ///
    /// # Panics
    /// Never: a test checks that each kind of time has errors.
    #[must_use]
    pub fn of(measured: PredictedTime, soc: Soc) -> Self {
        let MeasuredErrors { chips, times } = MeasuredErrors::shipped();
        let is_measured = chips.iter().any(|chip| chip == soc.name());
        let wider = if is_measured { 1.0 } else { std::f64::consts::SQRT_2 };
        let ErrorsOfRows { rows, half, nine_of_ten } = times[&measured];
        Self {
            measured,
            rows,
            half: half * wider,
            nine_of_ten: nine_of_ten * wider,
            unmeasured_chip: (!is_measured).then_some(soc.name()),
        }
    }
}

impl fmt::Display for ErrorBar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measured, rows, half, nine_of_ten, unmeasured_chip } = self;
        let (measured, half, nine) = (measured.name(), 100.0 * half, 100.0 * nine_of_ten);
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
    use super::*;

    #[test]
    fn each_kind_of_time_has_errors_and_each_chip_a_name_that_is_known() {
        let MeasuredErrors { chips, times } = MeasuredErrors::shipped();
        assert!(PredictedTime::ALL.iter().all(|time| times[time].half < times[time].nine_of_ten));
        assert!(!chips.is_empty() && chips.iter().all(|chip| Soc::find(chip).is_some()), "{chips:?}");
    }

    #[test]
    fn a_chip_without_rows_says_so_and_has_a_wider_bar() {
        let of = |soc| ErrorBar::of(PredictedTime::Steps, soc);
        let chips = &MeasuredErrors::shipped().chips;
        let (own, other): (Vec<Soc>, Vec<Soc>) =
            Soc::ALL.iter().partition(|soc| chips.iter().any(|chip| chip == soc.name()));
        for other in other {
            assert!(
                of(other).nine_of_ten > 1.4 * of(own[0]).nine_of_ten && of(own[0]).unmeasured_chip.is_none()
            );
            assert!(of(other).to_string().contains(&format!("none measures {other}")), "{other}");
        }
    }
}
