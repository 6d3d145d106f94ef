//! One number for all that a run has learned.

use ascend_tp::train::Trainer;
use ascend_tp::train::checkpoint::PartBytes;
use ascend_tp::world::ProcessGroup;
use sha2::{Digest, Sha256};

use crate::failure::Failure;

/// SHA-256 of all weights that are trained and of the optimizer's states, as whole tensors row-major in the order of their names.
///
/// # Errors
/// A card refuses, or another process fails.
pub(super) fn of(trainer: &mut Trainer, group: &ProcessGroup) -> Result<String, Failure> {
    let mut parts = trainer.parts()?;
    let mut hash = Sha256::new();
    for tensor in trainer.sharding().tensors() {
        let mut own: Vec<PartBytes> = parts.extract_if(.., |part| part.tensor == tensor.name).collect();
        if group.size() > 1 {
            // One tensor after the other: what all send at once has to fit a message.
            let mine = own.pop().map(|part| part.bytes).unwrap_or_default();
            let all = group.exchange("a tensor", mine).map_err(|error| Failure::Run(error.into()))?;
            let part = |(rank, bytes)| PartBytes { rank, tensor: tensor.name.clone(), bytes };
            own = all.into_iter().enumerate().map(part).collect();
        }
        hash.update(trainer.sharding().whole(&own).remove(&tensor.name).unwrap_or_default());
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
