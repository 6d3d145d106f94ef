//! A placed program and its text form: the program's, with the mesh and every value's layout.

use std::collections::BTreeMap;

use crate::base::{Diagnostic, Diagnostics, Id, IdVec};
use crate::program::text::{Notes, parse_with, print_with};
use crate::program::{Program, ValueId};

use super::layout::Layout;
use super::mesh::Mesh;

/// A program in which every value has one layout. Used from the insertion of reshards on.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Values have the shapes of the whole.
    pub program: Program,
    /// The mesh it is placed on.
    pub mesh: Mesh,
    /// How each value lies over the mesh.
    pub layouts: IdVec<ValueId, Layout>,
}

impl Placed {
    /// The same values in the same layouts, which no op makes yet.
    #[must_use]
    pub(crate) fn without_ops(&self) -> Self {
        Self { program: self.program.without_ops(), mesh: self.mesh.clone(), layouts: self.layouts.clone() }
    }
}

/// The text of a placed program; `parse(print(p)) == p`.
#[must_use]
pub fn print(placed: &Placed) -> String {
    let axis_names = placed.mesh.axis_names();
    let layouts: BTreeMap<usize, String> =
        placed.layouts.iter().map(|(id, layout)| (id.index(), layout.text(&axis_names))).collect();
    print_with(&placed.program, &Notes { axis_names, header: vec![placed.mesh.to_string()], layouts })
}

/// Reads the text of a placed program.
///
/// # Errors
/// Every line that cannot be read, a missing mesh, and every value without a layout.
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
