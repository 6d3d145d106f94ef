//! One call of a plan, ready to run.

use crate::base::Argument;
use crate::device::{Prepared, Result, Tensor, operator};
use crate::schedule::plan::{Call, View};

/// Checks a call with the card's library and makes it ready to run. `tensor` gives the card's memory of a view. `keys`, of attention
/// that can be told, are how many keys of each sequence it reads; all without them.
///
/// # Errors
/// The library's refusal, or what `tensor` refuses.
pub fn prepare(call: &Call, tensor: &dyn Fn(&View) -> Result<Tensor>, keys: Option<&[i64]>) -> Result<Prepared> {
    let arguments = call.arguments().into_iter();
    let arguments = arguments.map(|argument| argument.try_map(|operand| tensor(operand.view)));
    let mut arguments = arguments.collect::<Result<Vec<_>>>()?;
    if let Some(((at, _), keys)) = call.key_lengths().zip(keys) {
        arguments[at] = Argument::Ints(keys.to_vec());
    }
    operator::prepare(call.name(), arguments)
}
