//! Layouts of low-rank adapters.
//!
//! Input: a program with adapters, and the pins of everything else. Output: pins of the factors.
//!
//! Invariant: a factor is sharded like its base weight along shared dims.

use rustc_hash::FxHashMap;

use crate::base::{Diagnostics, Id as _};
use crate::placement::{Layout, Mesh, Pins, Placement, place};
use crate::program::{Program, Role, ValueId};

/// Adds the pins of adapters, and returns the placement under all pins.
///
/// # Errors
/// The program cannot be placed on the mesh.
pub(crate) fn with_adapters(
    base: Pins,
    program: &Program,
    mesh: &Mesh,
) -> Result<(Pins, Placement), Diagnostics> {
    let (placed, names) = (place(program, mesh, &base)?, mesh.axis_names());
    let adapters = adapters(program, &placed.stored, &names);
    if adapters.is_empty() {
        return Ok((base, placed));
    }
    let base = adapters.iter().fold(base, |pins, (name, dims)| pins.value(name, dims));
    let placed = place(program, mesh, &base)?;
    Ok((base, placed))
}

/// Returns the layout of each adapter. A factor is sharded like its base weight along shared dims.
/// The rank dim is too small to be worth an exchange.
fn adapters<'a>(
    program: &'a Program,
    stored: &[Layout],
    names: &'a [String],
) -> Vec<(&'a str, Vec<(usize, &'a str)>)> {
    let params = || program.with_role(Role::Param).map(|id| (id, &program.values[id]));
    let mut by_tensor: FxHashMap<&str, ValueId> = FxHashMap::default();
    for (id, value) in params() {
        // The first param of a tensor is a matrix. Later ones may be scales of its rows.
        let tensor = value.source.as_ref().map(|source| source.tensor.as_str());
        tensor.into_iter().for_each(|tensor| _ = by_tensor.entry(tensor).or_insert(id));
    }
    let by_name: FxHashMap<&str, ValueId> = params().map(|(id, value)| (value.name.as_str(), id)).collect();
    let weight_of = |name: &str, ending: &str| Some(format!("{}.weight", name.strip_suffix(ending)?));
    let mut layouts = Vec::new();
    for (_, value) in params() {
        let inner = weight_of(&value.name, ".lora_A.weight");
        let inner = inner.and_then(|tensor| by_tensor.get(tensor.as_str()));
        let outer = weight_of(&value.name, ".lora_B.weight");
        let Some(of) = inner.or_else(|| by_name.get(outer?.as_str())).copied() else { continue };
        // `A` has the rank, then the last dims of the weight. `B` has the first dims, then the
        // rank.
        let own = 0..value.shape.rank() - 1;
        let (first, shift) =
            if inner.is_some() { (program.values[of].shape.rank() - own.len(), 1) } else { (0, 0) };
        let cuts = stored[of.index()].named_dims(names).into_iter();
        let shared = cuts.filter(|(dim, _)| (first..first + own.len()).contains(dim));
        layouts.push((value.name.as_str(), shared.map(|(dim, axis)| (dim - first + shift, axis)).collect()));
    }
    layouts
}
