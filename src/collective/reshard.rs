//! Inserts a `reshard` wherever the layout of a value differs from the one that a user needs.

use rustc_hash::FxHashMap;
use smallvec::smallvec;

use crate::base::{Id, defect};
use crate::placement::{Layout, Mesh, Placed, Placement};
use crate::program::{Kind, Op, Program, Role, Value, ValueId};

/// Returns the program with explicit reshards. A value is resharded once per layout, before its
/// first user. Params stored for gathering at use are resharded for every user.
#[must_use]
pub fn insert_reshards(program: &Program, mesh: &Mesh, placement: &Placement) -> Placed {
    let mut out = Inserter {
        placed: Placed {
            program: program.without_ops(),
            mesh: mesh.clone(),
            layouts: placement.produced.iter().cloned().collect(),
        },
        stored: program.values.ids().collect(),
        copies: FxHashMap::default(),
        gathered_at_use: &placement.gathered_at_use,
    };
    for (id, op) in program.ops.iter() {
        let wanted = &placement.operands[id.index()];
        let operands =
            op.operands.iter().zip(wanted).map(|(operand, layout)| out.in_layout(*operand, layout)).collect();
        out.placed.program.ops.push(Op { operands, ..op.clone() });
        for result in &op.results {
            let stored = &placement.stored[result.index()];
            if *stored != placement.produced[result.index()] {
                out.stored[result.index()] = out.reshard(*result, stored);
            }
        }
    }
    // Outputs are replicated, even if they are unchanged inputs.
    let whole = |id: &ValueId| Layout::replicated(program.values[*id].shape.rank());
    out.placed.program.outputs =
        program.outputs.iter().map(|(name, id)| (name.clone(), out.in_layout(*id, &whole(id)))).collect();
    out.placed
}

struct Inserter<'a> {
    placed: Placed,
    /// By value: the value that its users see.
    stored: Vec<ValueId>,
    copies: FxHashMap<(ValueId, Layout), ValueId>,
    gathered_at_use: &'a [bool],
}

impl Inserter<'_> {
    fn in_layout(&mut self, value: ValueId, layout: &Layout) -> ValueId {
        let stored = self.stored[value.index()];
        if self.placed.layouts[stored] == *layout {
            return stored;
        }
        if let Some(copy) = self.copies.get(&(stored, layout.clone())) {
            return *copy;
        }
        defect!(ReshardMissing, return stored);
        #[cfg(test)]
        if let Some((_, copy)) = self.copies.iter().find(|((of, _), _)| *of == stored) {
            defect!(CopyInOtherLayout, return *copy);
        }
        let copy = self.reshard(stored, layout);
        if self.gathered_at_use[value.index()] {
            return copy;
        }
        self.copies.insert((stored, layout.clone()), copy);
        copy
    }

    fn reshard(&mut self, value: ValueId, layout: &Layout) -> ValueId {
        let result = Value {
            name: String::new(),
            role: Role::Result,
            source: None,
            ..self.placed.program.values[value].clone()
        };
        let result = self.placed.program.values.push(result);
        self.placed.layouts.push(layout.clone());
        self.placed.program.ops.push(Op {
            kind: Kind::Reshard,
            operands: vec![value],
            results: smallvec![result],
        });
        result
    }
}
