//! Error bars of the planner: `planner/errors.toml` from a validation.

use ascend_tp_machine::Soc;
use ascend_tp_planner::error_bar::{ErrorsOfRows, MeasuredErrors, PredictedTime};

use crate::{Class, Validation};

/// Comment above the generated text.
const HEADING: &str = "# Errors of predictions against published measurements. `cargo xtask validate --write` writes this file.\n";

const fn class(time: PredictedTime) -> Class {
    match time {
        PredictedTime::Steps => Class::Steps,
        PredictedTime::Serving => Class::Serving,
        PredictedTime::Training => Class::Training,
    }
}

impl Validation {
    /// Returns the errors that error bars show. A kind of time without a predicted row is left out.
    #[must_use]
    pub fn measured_errors(&self) -> MeasuredErrors {
        let errors = |time| {
            let found = self.statistics(class(time))?;
            let [half, nine_of_ten] =
                [found.median, found.ninetieth].map(|error| (1000.0 * error).round() / 1000.0);
            Some((time, ErrorsOfRows { rows: found.rows, half, nine_of_ten }))
        };
        let is_measured = |soc: &Soc| self.chips.contains(soc);
        MeasuredErrors {
            chips: Soc::ALL.into_iter().filter(is_measured).map(|soc| soc.name().to_owned()).collect(),
            times: PredictedTime::ALL.into_iter().filter_map(errors).collect(),
        }
    }
}

/// Returns the text of `planner/errors.toml`.
///
/// # Panics
/// Never: the errors are plain numbers and names.
#[must_use]
pub fn text(errors: &MeasuredErrors) -> String {
    let text = toml::to_string(errors).unwrap_or_else(|error| panic!("errors are plain numbers: {error}"));
    format!("{HEADING}{text}")
}
