//! One call of a plan, ready to run.

use crate::device::{Prepared, Result, Tensor, operator};
use crate::schedule::plan::{Call, View};

/// Checks a call with the card's library and makes it ready to run. `tensor` gives the card's memory of a view.
///
/// # Errors
/// The library's refusal, or what `tensor` refuses.
pub fn prepare(call: &Call, tensor: &dyn Fn(&View) -> Result<Tensor>) -> Result<Prepared> {
    let arguments = call.arguments().into_iter();
    let arguments = arguments.map(|argument| argument.try_map(|operand| tensor(operand.view)));
    operator::prepare(call.name(), arguments.collect::<Result<Vec<_>>>()?)
}
