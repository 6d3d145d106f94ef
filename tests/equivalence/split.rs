//! Random meshes and pins.

use std::fmt::Write as _;

use ascend_tp::{Mesh, Pins};
use proptest::prelude::*;

pub(crate) const CARDS: usize = 8;

/// Genes of a mesh and its pins, taken modulo the available axes and dims.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    sizes: Vec<usize>,
    names: u8,
    /// Index of the value, and for each axis the dim it shards, counted from 1.
    values: Vec<(u16, [u8; 3])>,
    /// Index of the weight, its split axis (2 for none), and whether its product is gathered.
    weights: Vec<(u16, u8, bool)>,
    on_axis: Option<u8>,
}

pub(crate) fn splits() -> impl Strategy<Value = Split> {
    let value = (any::<u16>(), [0..5_u8, 0..5, 0..5]);
    let weight = (any::<u16>(), 0..3_u8, any::<bool>());
    (
        proptest::collection::vec(1..=4_usize, 1..=3),
        0..3_u8,
        proptest::collection::vec(value, 0..=6),
        proptest::collection::vec(weight, 0..=3),
        proptest::option::of(0..3_u8),
    )
        .prop_map(|(sizes, names, values, weights, on_axis)| Split {
            sizes,
            names,
            values,
            weights,
            on_axis,
        })
}

impl Split {
    pub(crate) fn mesh(&self) -> Mesh {
        let mut sizes = self.sizes.clone();
        while sizes.iter().product::<usize>() > CARDS {
            if let Some(largest) = sizes.iter_mut().max() {
                *largest -= 1;
            }
        }
        let names =
            [["tp", "dp", "cp"], ["x", "y", "z"], ["a of tp", "b of tp", "c"]][usize::from(self.names)];
        let mut text = "mesh ".to_owned();
        for (index, (name, size)) in names.iter().zip(&sizes).enumerate() {
            let (name, of) =
                name.split_once(' ').map_or((*name, String::new()), |(name, of)| (name, format!(" {of}")));
            let _ = write!(text, "{}{name}={size}{of}", if index == 0 { "" } else { ", " });
        }
        Mesh::parse(&text).unwrap()
    }

    pub(crate) fn pins(
        &self,
        mesh: &Mesh,
        values: &[(String, Vec<usize>)],
        weights: &[String],
    ) -> (Pins, String) {
        let mut pins = Pins::default();
        let mut text = String::new();
        for (which, dims) in &self.values {
            let Some((name, free)) = values.get(usize::from(*which) % values.len().max(1)) else { continue };
            let dim = |pick: u8| usize::from(pick).checked_sub(1).and_then(|dim| free.get(dim)).copied();
            let on = mesh
                .axes()
                .iter()
                .zip(dims)
                .filter_map(|(axis, pick)| Some((dim(*pick)?, axis.name.as_str())));
            let dims: Vec<(usize, &str)> = on.collect();
            let _ = writeln!(text, "pin {name} {dims:?}");
            pins = pins.value(name, &dims);
        }
        for (which, axis, gathered) in &self.weights {
            let Some(name) = weights.get(usize::from(*which) % weights.len().max(1)) else { continue };
            let axis = Some(usize::from(*axis)).filter(|axis| *axis < 2);
            let _ = writeln!(text, "pin weight {name} {axis:?} gathered={gathered}");
            pins = match axis {
                Some(axis) => pins.split_axis(name, axis),
                None => pins.replicate(name),
            };
            pins = if *gathered { pins.gather_output(name) } else { pins };
        }
        if let Some(axis) = self.on_axis {
            let axis = &mesh.axes()[usize::from(axis) % mesh.axes().len()].name;
            let _ = writeln!(text, "weights on {axis}");
            pins = pins.on_axis(axis);
        }
        (pins, text)
    }
}
