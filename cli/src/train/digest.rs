//! A digest of all weights and optimizer states of a run.

use anyhow::anyhow;
use ascend_tp::train::Trainer;
use ascend_tp::train::checkpoint::PartBytes;
use ascend_tp::world::ProcessGroup;
use sha2::{Digest, Sha256};

use crate::failure::Failure;

/// Number of bytes that a process sends at once. An exchange holds the bytes of all processes.
const PIECE: usize = 64 << 20;

/// Returns the SHA-256 of all trained weights and optimizer states, as whole row-major tensors
/// sorted by name.
pub(super) fn of(trainer: &mut Trainer, group: &ProcessGroup) -> Result<String, Failure> {
    let mut parts = trainer.parts()?;
    let mut hash = Sha256::new();
    for tensor in trainer.sharding().tensors() {
        let name = &tensor.name;
        let writers = trainer.sharding().writers(name);
        let mut own: Vec<PartBytes> = parts.extract_if(.., |part| part.tensor == *name).collect();
        if group.size() > 1 {
            let mine = own.pop().map(|part| part.bytes).unwrap_or_default();
            let mut all = vec![Vec::new(); group.size()];
            let longest = writers.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
            for start in (0..longest).step_by(PIECE) {
                let end = mine.len().min(start + PIECE);
                let piece = mine.get(start..end).unwrap_or_default().to_vec();
                let pieces = group.exchange("a tensor", piece).map_err(|error| Failure::Run(error.into()))?;
                all.iter_mut().zip(pieces).for_each(|(bytes, piece)| bytes.extend(piece));
            }
            let part = |(rank, bytes)| PartBytes { rank, tensor: name.clone(), bytes };
            own = all.into_iter().enumerate().map(part).collect();
        }
        for (rank, bytes) in writers {
            let found = own.iter().find(|part| part.rank == rank).map_or(0, |part| part.bytes.len());
            if found != bytes {
                let problem = format!("digest: {name}: rank {rank}: expected {bytes} bytes, found {found}");
                return Err(Failure::Run(anyhow!(problem)));
            }
        }
        hash.update(trainer.sharding().whole(&own).remove(name).unwrap_or_default());
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
