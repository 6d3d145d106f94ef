//! Random checkpoints with different bytes in neighbouring elements.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ascend_tp::base::{DType, Shape};
use ascend_tp::generate::Model;
use ascend_tp::placement::{Layout, Mesh};
use ascend_tp::program::Role;
use ascend_tp::program::models::{Head, RunShape, decoder};
use ascend_tp::train::checkpoint::{Checkpoint, PartBytes, ShardedTensor, Sharding, Writer};
use ascend_tp::world::ProcessGroup;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

pub(crate) fn seeded(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// Tensors on a mesh with all bytes.
pub(crate) struct Run {
    sharding: Sharding,
    wholes: BTreeMap<String, Vec<u8>>,
}

/// Returns a mesh with one to three common axis names of one to four cards.
fn mesh(random: &mut StdRng) -> Mesh {
    let names = ["dp", "tp", "cp"];
    let axes: Vec<(&str, usize)> =
        names[..random.random_range(1..=3)].iter().map(|name| (*name, random.random_range(1..=3))).collect();
    Mesh::new(&axes).unwrap()
}

fn layout(random: &mut StdRng, mesh: &Mesh, rank: usize) -> Layout {
    let mut layout = Layout::replicated(rank);
    for axis in mesh.ids().into_iter().filter(|axis| mesh.size(*axis) > 1) {
        // Replication is as frequent as each dim.
        let dim = random.random_range(0..=rank);
        if dim < rank {
            layout = layout.sharded(dim, axis);
        }
    }
    layout
}

impl Run {
    pub(crate) fn random(random: &mut StdRng) -> Self {
        let mesh = mesh(random);
        let tensors = (0..random.random_range(1..6)).map(|number| {
            let rank = random.random_range(0..4);
            let sizes: Vec<usize> = (0..rank).map(|_| random.random_range(0..8)).collect();
            let dtype = DType::ALL[random.random_range(0..DType::ALL.len())];
            let layout = layout(random, &mesh, rank);
            ShardedTensor::placed(&format!("t{number}"), &Shape::new(sizes), dtype, &mesh, &layout)
        });
        let tensors = tensors.collect();
        Self::counted(Sharding::new(mesh, tensors).unwrap())
    }

    /// Fills tensors with arbitrary bytes.
    pub(crate) fn counted(sharding: Sharding) -> Self {
        Self::new(sharding, |tensor| {
            let bytes = tensor.shape.elems() * tensor.dtype.size_bytes();
            (0..bytes).map(|at| (at * 31 % 251) as u8).collect()
        })
    }

    /// Builds f32 tensors from names, sizes and layouts.
    pub(crate) fn placed(mesh: &Mesh, tensors: &[(&str, &[usize], &str)]) -> Self {
        let tensor = |(name, sizes, layout): &(&str, &[usize], &str)| {
            let layout = Layout::parse(layout, sizes.len(), &mesh.axis_names()).unwrap();
            ShardedTensor::placed(name, &Shape::from(*sizes), DType::F32, mesh, &layout)
        };
        let tensors = tensors.iter().map(tensor).collect();
        Self::new(Sharding::new(mesh.clone(), tensors).unwrap(), |tensor| {
            (0..tensor.shape.elems()).flat_map(|at| (at as f32).to_le_bytes()).collect()
        })
    }

    /// Returns the f32 weights of a model, with first dims sharded on the last axis.
    pub(crate) fn of_model(dir: &Path, mesh: &Mesh) -> Self {
        let model = Model::open(dir).unwrap();
        let run = RunShape::new(1, 1, 1);
        let program = decoder(&model.config, run, DType::F32, Head::AllLogits).unwrap();
        let tensor = |id| {
            let value = &program.values[id];
            let layout = Layout::replicated(value.shape.rank()).sharded(0, *mesh.ids().last().unwrap());
            let tensor = ShardedTensor::placed(&value.name, &value.shape, DType::F32, mesh, &layout);
            ShardedTensor { source: value.source.clone(), ..tensor }
        };
        let tensors = program.with_role(Role::Param).map(tensor).collect();
        Self::new(Sharding::new(mesh.clone(), tensors).unwrap(), |tensor| {
            let source = tensor.source.as_ref().unwrap();
            let all: Vec<Range<usize>> = tensor.shape.iter().map(|size| 0..*size).collect();
            let mut bytes = vec![0; tensor.shape.elems() * 4];
            model.checkpoint.read_param(source, &tensor.shape, &all, DType::F32, &mut bytes).unwrap();
            bytes
        })
    }

    fn new(sharding: Sharding, whole: impl Fn(&ShardedTensor) -> Vec<u8>) -> Self {
        let wholes = sharding.tensors().iter().map(|tensor| (tensor.name.clone(), whole(tensor))).collect();
        Self { sharding, wholes }
    }

    /// Returns other layouts of the same tensors on another mesh.
    pub(crate) fn sharded_otherwise(&self, random: &mut StdRng) -> Sharding {
        let mesh = mesh(random);
        let tensors = self.sharding.tensors().iter().map(|tensor| {
            let layout = layout(random, &mesh, tensor.shape.rank());
            ShardedTensor::placed(&tensor.name, &tensor.shape, tensor.dtype, &mesh, &layout)
        });
        let tensors = tensors.collect();
        Sharding::new(mesh, tensors).unwrap()
    }

    pub(crate) fn sharding(&self) -> &Sharding {
        &self.sharding
    }

    pub(crate) fn whole(&self, name: &str) -> &[u8] {
        &self.wholes[name]
    }

    /// Returns the bytes of a shard by element.
    pub(crate) fn part(&self, tensor: &ShardedTensor, ranges: &[Range<usize>]) -> Vec<u8> {
        let (strides, size) = (tensor.shape.strides(), tensor.dtype.size_bytes());
        let inside = |element: &usize| {
            (0..ranges.len()).all(|dim| ranges[dim].contains(&(element / strides[dim] % tensor.shape[dim])))
        };
        let elements = (0..tensor.shape.elems()).filter(inside);
        elements.flat_map(|element| &self.wholes[&tensor.name][element * size..][..size]).copied().collect()
    }

    pub(crate) fn save(&self, folder: &Path, step: u64, state: &Value) -> Checkpoint {
        let group = Arc::new(ProcessGroup::alone());
        let mut writer = Writer::new(folder, None, self.sharding.clone(), group).unwrap();
        let part = |(rank, tensor, ranges): (usize, &ShardedTensor, &[Range<usize>])| PartBytes {
            rank,
            tensor: tensor.name.clone(),
            bytes: self.part(tensor, ranges),
        };
        let parts = writer.parts().map(part).collect();
        writer.begin(step, state.clone(), parts).unwrap();
        let saved = writer.finish().unwrap().unwrap();
        Checkpoint::open(&saved.path).unwrap()
    }
}
