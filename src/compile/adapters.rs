//! Layouts of low-rank adapters.
//!
//! Input: a program with adapters, and the pins of everything else. Output: pins of the factors.
//!
//! Invariant: a factor is sharded like its base weight along shared dims.

use rustc_hash::FxHashMap;

use crate::base::{Diagnostics, Id as _};
use crate::placement::{EXPERTS, Layout, Mesh, Pins, Placement, place};
use crate::program::models::layer_of_weight;
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
    let base = adapters.iter().fold(base, |pins, (name, dims)| {
        let over_experts = dims.iter().any(|(_, axis)| *axis == EXPERTS);
        let pins = pins.value(name, dims);
        if over_experts { pins.used_sharded(name, EXPERTS) } else { pins }
    });
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
        let layer = value.source.as_ref().map(|source| layer_of_weight(&source.tensor));
        layer.into_iter().for_each(|layer| _ = by_tensor.entry(layer).or_insert(id));
    }
    let by_name: FxHashMap<&str, ValueId> =
        params().map(|(id, value)| (layer_of_weight(&value.name), id)).collect();
    let mut layouts = Vec::new();
    for (_, value) in params() {
        let (inner, outer) =
            (value.name.strip_suffix(".lora_A.weight"), value.name.strip_suffix(".lora_B.weight"));
        let Some(layer) = inner.or(outer) else { continue };
        let of = inner.and_then(|layer| by_tensor.get(layer)).or_else(|| by_name.get(layer));
        let Some(of) = of.copied() else { continue };
        // `A` has the dims that count experts, the rank, then the last dims of the weight. `B` has
        // the first dims of the weight, then the rank.
        let stacked = value.source.as_ref().and_then(|source| source.stack(&value.shape).ok());
        let stacked = stacked.map_or(0, |stack| stack.dims);
        let (rank, of_weight) = (value.shape.rank(), program.values[of].shape.rank());
        let own = |dim: usize| match inner {
            None => Some(dim).filter(|dim| dim + 1 < rank),
            Some(_) if dim < stacked => Some(dim),
            Some(_) => (dim + rank).checked_sub(of_weight).filter(|dim| *dim > stacked),
        };
        let cuts = stored[of.index()].named_dims(names).into_iter();
        let shared = cuts.filter_map(|(dim, axis)| Some((own(dim)?, axis)));
        layouts.push((value.name.as_str(), shared.collect()));
    }
    layouts
}
