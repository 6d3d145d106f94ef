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
            Diagnostic::new("--ring", "adds what each card's keys give as they come, which has no one order");
        problems.push(problem.help("leave --ring out: keys and values are gathered then"));
    }
    if !layout.micro_batch.is_power_of_two() {
        let problem =
            Diagnostic::new("--exact", "the sequences of a micro-batch are no subtree of those of a step");
        let problem =
            problem.expected("a power of two").found(format!("--micro-batch {}", layout.micro_batch));
        problems.push(problem.help("another --micro-batch, or leave --exact out"));
    }
    problems.into_result(())
}
