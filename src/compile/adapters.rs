//! Layouts of low-rank adapters.
//!
//! Input: a program with adapters, and the pins of everything else. Output: pins of the factors.
//!
//! Invariant: a factor is sharded like its base weight along shared dims.

use crate::base::{Diagnostics, Id as _};
use crate::placement::{Layout, Mesh, Pins, Placement, place};
use crate::program::{Program, Role, Value};

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
    let weight = |wanted: &dyn Fn(&Value) -> bool| {
        program.with_role(Role::Param).find(|id| wanted(&program.values[*id]))
    };
    let mut layouts = Vec::new();
    for value in program.with_role(Role::Param).map(|id| &program.values[id]) {
        let inner = value.name.strip_suffix(".lora_A.weight").and_then(|layer| {
            let tensor = format!("{layer}.weight");
            weight(&|value| value.source.as_ref().is_some_and(|source| source.tensor == tensor))
        });
        let outer = value.name.strip_suffix(".lora_B.weight").and_then(|layer| {
            let name = format!("{layer}.weight");
            weight(&|value| value.name == name)
        });
        let Some(of) = inner.or(outer) else { continue };
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
