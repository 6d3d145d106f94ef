//! Resharding of a checkpoint for other ranks. One part is in memory at a time, and the old
//! checkpoint stays unchanged.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::read::Checkpoint;
use super::save::{SaveFolder, Saved, save};
use super::sharding::{ShardedTensor, Sharding};
use super::storage::Disk;
use super::{Error, folder};
use crate::base::{AxisId, Diagnostic, Diagnostics, Id};
use crate::placement::{Layout, Mesh};
use crate::world::ProcessGroup;

/// Returns the stored layouts on another mesh, by axis name. A sub-axis that `mesh` lacks counts as
/// the axis it was split from. Uneven sizes are balanced.
///
/// # Errors
/// An unknown layout or element type, or the errors of [`Sharding::new`].
pub fn stored_layouts_on(checkpoint: &Checkpoint, mesh: &Mesh) -> Result<Sharding, Diagnostics> {
    let old = checkpoint.mesh();
    let axes_of = |axis: AxisId| {
        let axis = &old.axes()[axis.index()];
        let same = mesh.named(&axis.name);
        if same.is_empty() { mesh.named(&axis.of) } else { same }
    };
    let mut problems = Diagnostics::new();
    let mut tensors = Vec::new();
    for (name, record) in &checkpoint.index().tensors {
        let shape = record.shape();
        let read = Layout::parse(&record.layout, shape.rank(), &old.axis_names()).ok().zip(record.dtype());
        let Some((stored, dtype)) = read else {
            problems.push(Diagnostic::new(name, "not a layout of this version").found(&record.layout));
            continue;
        };
        let mut layout = Layout::replicated(shape.rank());
        for (dim, axes) in stored.dims.iter().enumerate() {
            for axis in axes.iter().flat_map(|axis| axes_of(*axis)).filter(|axis| mesh.size(*axis) > 1) {
                // Two sub-axes can map to one axis.
                if layout.dim_of(axis).is_none() {
                    layout = layout.sharded(dim, axis);
                }
            }
        }
        for (axis, reduce) in &stored.partial {
            for axis in axes_of(*axis).into_iter().filter(|axis| mesh.size(*axis) > 1) {
                if layout.dim_of(axis).is_none() && layout.partial_on(axis).is_none() {
                    layout = layout.with_partial(axis, *reduce);
                }
            }
        }
        let tensor = ShardedTensor::placed(name, &shape, dtype, mesh, &layout);
        tensors.push(ShardedTensor { source: record.source(), ..tensor });
    }
    problems.into_result(())?;
    Sharding::new(mesh.clone(), tensors)
}

/// Writes a checkpoint with another sharding into a folder of checkpoints.
///
/// # Errors
/// The tensors differ, the folder has a checkpoint of this step or cannot be written, or a file is
/// damaged.
pub fn reshard(checkpoint: &Checkpoint, sharding: &Sharding, into: &Path) -> Result<Saved, Error> {
    let index = checkpoint.index();
    let mut problems = Diagnostics::new();
    let wanted: BTreeMap<&str, &ShardedTensor> =
        sharding.tensors().iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    for (name, tensor) in &wanted {
        let said = |dtype: &dyn std::fmt::Display, shape: &dyn std::fmt::Display| format!("{dtype} {shape}");
        let expected = said(&tensor.dtype, &tensor.shape);
        match index.tensors.get(*name) {
            Some(found) if (found.dtype(), found.shape()) == (Some(tensor.dtype), tensor.shape.clone()) => {}
            Some(found) => problems.push(
                Diagnostic::new(*name, "another tensor in the checkpoint")
                    .expected(expected)
                    .found(said(&found.dtype, &found.shape())),
            ),
            None => problems
                .push(Diagnostic::new(*name, "the checkpoint does not have this tensor").expected(expected)),
        }
    }
    for name in index.tensors.keys().filter(|name| !wanted.contains_key(name.as_str())) {
        problems.push(Diagnostic::new(name, "a tensor of the checkpoint that would be lost"));
    }
    let named = into.join(folder::name(index.step));
    if named.exists() {
        let problem =
            Diagnostic::new(named.display().to_string(), "there is a checkpoint of this step already");
        problems.push(problem.help("name another folder"));
    }
    problems.into_result(())?;
    let bytes_of = |rank: usize, tensor: &ShardedTensor, ranges: &[Range<usize>]| {
        let ShardedTensor { name, shape, dtype, .. } = tensor;
        Ok(Cow::Owned(checkpoint.read_summand(name, shape, *dtype, ranges, sharding.summand(name, rank))?))
    };
    let group = ProcessGroup::alone();
    let place = SaveFolder { folder: into, keep: None, storage: &Disk, group: &group };
    save(place, sharding, index.step, &index.state, &bytes_of)
}
