//! A placed program, and its text form: the program text with the mesh and a layout for every
//! value.

use std::collections::BTreeMap;

use crate::base::{Diagnostic, Diagnostics, Id, IdVec};
use crate::program::text::{Notes, parse_with, print_with};
use crate::program::{Program, ValueId};

use super::layout::Layout;
use super::mesh::Mesh;

/// A program with exactly one layout per value. The output of reshard insertion.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The program; values have global shapes.
    pub program: Program,
    /// The mesh of the layouts.
    pub mesh: Mesh,
    /// The layout of each value.
    pub layouts: IdVec<ValueId, Layout>,
}

impl Placed {
    #[must_use]
    pub(crate) fn without_ops(&self) -> Self {
        Self { program: self.program.without_ops(), mesh: self.mesh.clone(), layouts: self.layouts.clone() }
    }
}

/// Prints a placed program. `parse(print(p)) == p`.
#[must_use]
pub fn print(placed: &Placed) -> String {
    let axis_names = placed.mesh.axis_names();
    let layouts: BTreeMap<usize, String> =
        placed.layouts.iter().map(|(id, layout)| (id.index(), layout.text(&axis_names))).collect();
    print_with(&placed.program, &Notes { axis_names, header: vec![placed.mesh.to_string()], layouts })
}

/// Parses a placed program.
///
/// # Errors
/// Returns all unreadable lines, a missing mesh, and all values without a layout.
pub fn parse(text: &str) -> Result<Placed, Diagnostics> {
    let mesh_of = |header: &[String]| match header {
        [line] => Mesh::parse(line).map_err(|error| error.to_string()),
        _ => Err(format!("a placed program has one line for its mesh, found {}", header.len())),
    };
    let (program, notes) = parse_with(text, &|header| mesh_of(header).map(|mesh| mesh.axis_names()))?;
    let mesh = mesh_of(&notes.header).map_err(|message| Diagnostic::new("line 2", message))?;
    let mut problems = Diagnostics::new();
    let mut layouts = IdVec::new();
    for (id, value) in program.values.iter() {
        let rank = value.shape.rank();
        let layout = match notes.layouts.get(&id.index()) {
            Some(text) => Layout::parse(text, rank, &notes.axis_names),
            None => Err("has no layout".to_owned()),
        };
        layouts.push(layout.unwrap_or_else(|message| {
            problems.push(Diagnostic::new(id.to_string(), message));
            Layout::replicated(rank)
        }));
    }
    problems.into_result(Placed { program, mesh, layouts })
}
