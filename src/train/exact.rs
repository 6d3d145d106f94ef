//! Layout checks of exact runs, which add every sum in one fixed order.

use crate::base::{Diagnostic, Diagnostics};
use crate::compile::check_axes;

use super::compile::Layout;

pub(super) fn check_layout(layout: &Layout) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    let axes = [("dp", layout.data), ("cp", layout.context), ("tp", layout.tensor)];
    check_axes(&axes, layout.grid, &mut problems);
    if layout.ring {
        let problem =
            Diagnostic::new("--ring", "adds the results for each card's keys without a fixed order");
        problems.push(problem.help("remove --ring to gather keys and values"));
    }
    if !layout.micro_batch.is_power_of_two() {
        let problem =
            Diagnostic::new("--exact", "the sequences of a micro-batch are not a subtree of the step");
        let problem =
            problem.expected("a power of two").found(format!("--micro-batch {}", layout.micro_batch));
        problems.push(problem.help("use another --micro-batch, or remove --exact"));
    }
    problems.into_result(())
}
