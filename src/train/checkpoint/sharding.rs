//! Layout of the tensors of a run, and the ranks that write each part.
//!
//! The written parts have every element once, or once per partial sum. If several ranks hold a
//! part, the lowest rank writes it. Every process computes the same sharding.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::cover;
use super::writer::PartBytes;
use crate::base::{DType, Diagnostic, Diagnostics, Reduce, Shape};
use crate::placement::shard::runs::Runs;
use crate::placement::{Layout, Mesh};
use crate::program::{Form, Source};
use crate::schedule::Plan;
use crate::schedule::plan::Tensor;

pub(super) const NOT_THE_SOURCE: &str = "not the tensors of a weight in the model's files";

/// One of the partial sums of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summand {
    /// Number of the partial sum, from 0.
    pub index: usize,
    /// Number of partial sums of the tensor.
    pub count: usize,
}

impl Summand {
    /// The only summand of a tensor that is not a partial sum.
    pub const WHOLE: Self = Self { index: 0, count: 1 };
}

/// A whole tensor and its distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardedTensor {
    /// Name of the tensor, unique in a checkpoint.
    pub name: String,
    /// Shape of the whole tensor.
    pub shape: Shape,
    /// Element type in files and on cards.
    pub dtype: DType,
    /// Layout in the form of [`Layout::text`].
    pub layout: String,
    /// Position in the model's files, for weights.
    pub source: Option<Source>,
    /// Ranges that each rank holds.
    pub ranges: Vec<Vec<Range<usize>>>,
}

impl ShardedTensor {
    /// Returns a tensor with a given layout.
    #[must_use]
    pub fn placed(name: &str, shape: &Shape, dtype: DType, mesh: &Mesh, layout: &Layout) -> Self {
        Self {
            name: name.to_owned(),
            shape: shape.clone(),
            dtype,
            layout: layout.text(&mesh.axis_names()),
            source: None,
            ranges: (0..mesh.cards()).map(|rank| layout.ranges(mesh, shape, rank)).collect(),
        }
    }

    /// Returns weights and states of the plans of all ranks, with the names and layouts in
    /// `wanted`.
    ///
    /// # Errors
    /// Every tensor that a plan lacks.
    pub fn planned(plans: &[Plan], wanted: Vec<(String, String)>) -> Result<Vec<Self>, Diagnostics> {
        let mut by_name: HashMap<&str, Vec<&Tensor>> = HashMap::new();
        for tensor in plans.iter().flat_map(|plan| plan.params.iter().chain(&plan.states)) {
            by_name.entry(&tensor.name).or_default().push(tensor);
        }
        let (mut tensors, mut problems) = (Vec::with_capacity(wanted.len()), Diagnostics::new());
        for (name, layout) in wanted {
            let of_ranks = by_name.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            let (Some(first), true) = (of_ranks.first(), of_ranks.len() == plans.len()) else {
                let problem =
                    Diagnostic::new(name, "must be saved, but the plan of some rank does not have it");
                problems.push(
                    problem.expected(format!("{} plans that have it", plans.len())).found(of_ranks.len()),
                );
                continue;
            };
            let ranges = of_ranks.iter().map(|tensor| tensor.ranges.clone()).collect();
            let Tensor { shape, dtype, source, .. } = (*first).clone();
            tensors.push(Self { name, shape, dtype, layout, source, ranges });
        }
        problems.into_result(tensors)
    }

    /// Returns the size of a part in bytes.
    #[must_use]
    pub fn part_bytes(&self, ranges: &[Range<usize>]) -> usize {
        cover::volume(ranges) * self.dtype.size_bytes()
    }

    fn problems(&self, mesh: &Mesh, problems: &mut Diagnostics) {
        let problem = |what: &str| Diagnostic::new(self.name.clone(), what);
        match Layout::parse(&self.layout, self.shape.rank(), &mesh.axis_names()) {
            Err(what) => problems.push(problem("not a layout of the tensor on the mesh").found(what)),
            Ok(layout) if !is_saved(&layout, self.dtype) => {
                problems.push(
                    problem("a part of a reduction cannot be saved")
                        .expected("a layout without `@`, or parts of a sum of f32")
                        .found(&self.layout),
                );
            }
            Ok(_) => {}
        }
        let is_exported =
            |source: &Source| matches!(source.form, Form::Numbers | Form::Blocks { .. } | Form::Dims(_));
        if let Some(source) = self.source.as_ref().filter(|source| !is_exported(source)) {
            problems.push(problem("quantised weights cannot be saved").found(source));
        }
        if let Some(Err(reason)) = self.source.as_ref().map(|source| source.stack(&self.shape)) {
            problems.push(problem(NOT_THE_SOURCE).found(reason));
        }
        if self.ranges.len() != mesh.cards() {
            let of = |count: usize| format!("ranges of {count} ranks");
            problems.push(
                problem("not the ranks of the mesh").expected(of(mesh.cards())).found(of(self.ranges.len())),
            );
            return;
        }
        if let Some(rank) = (0..mesh.cards()).find(|rank| !cover::is_inside(&self.ranges[*rank], &self.shape))
        {
            let found = format!("{} on rank {rank}", cover::text(&self.ranges[rank]));
            problems.push(
                problem("ranges outside the tensor").expected(format!("inside {}", self.shape)).found(found),
            );
            return;
        }
        let Some(layout) = self.layout_on(mesh) else { return };
        let first = self.first_holders(mesh);
        for summand in 0..layout.summands(mesh) {
            let holders = first.iter().filter(|rank| layout.summand(mesh, **rank) == summand);
            let parts: Vec<&[Range<usize>]> = holders.map(|rank| &*self.ranges[*rank]).collect();
            if let Some((expected, found)) = cover::problem(&self.shape, &parts) {
                problems.push(
                    problem("the ranks do not hold the whole tensor exactly once")
                        .expected(expected)
                        .found(found),
                );
                return;
            }
        }
    }

    fn layout_on(&self, mesh: &Mesh) -> Option<Layout> {
        Layout::parse(&self.layout, self.shape.rank(), &mesh.axis_names()).ok()
    }

    /// Returns the lowest rank of each distinct part with elements, in rank order.
    fn first_holders(&self, mesh: &Mesh) -> Vec<usize> {
        let layout = self.layout_on(mesh);
        let summand = |rank| layout.as_ref().map_or(0, |layout| layout.summand(mesh, rank));
        let mut first: BTreeMap<(usize, Vec<(usize, usize)>), usize> = BTreeMap::new();
        for (rank, ranges) in self.ranges.iter().enumerate().filter(|(_, ranges)| cover::volume(ranges) > 0) {
            let ranges = ranges.iter().map(|range| (range.start, range.end)).collect();
            first.entry((summand(rank), ranges)).or_insert(rank);
        }
        let mut ranks: Vec<usize> = first.into_values().collect();
        ranks.sort_unstable();
        ranks
    }
}

/// Returns whether partial results can be added: f32 sums only.
pub(super) fn is_saved(layout: &Layout, dtype: DType) -> bool {
    layout.partial.iter().all(|(_, reduce)| *reduce == Reduce::Sum && dtype == DType::F32)
}

pub(super) fn add(sum: &mut [u8], summand: &[u8]) {
    for (sum, summand) in sum.as_chunks_mut::<4>().0.iter_mut().zip(summand.as_chunks::<4>().0) {
        *sum = (f32::from_le_bytes(*sum) + f32::from_le_bytes(*summand)).to_le_bytes();
    }
}

/// Tensors of a checkpoint on the ranks of a mesh.
#[derive(Clone, Debug)]
pub struct Sharding {
    mesh: Mesh,
    tensors: Vec<ShardedTensor>,
    /// Indices of tensors by writing rank.
    written: Vec<Vec<usize>>,
}

impl Sharding {
    /// Creates the sharding of tensors in any order.
    ///
    /// # Errors
    /// Every tensor with a duplicate name, ranges for other ranks, or parts that do not form it
    /// once.
    pub fn new(mesh: Mesh, mut tensors: Vec<ShardedTensor>) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        for pair in tensors.windows(2).filter(|pair| pair[0].name == pair[1].name) {
            problems.push(Diagnostic::new(pair[0].name.clone(), "two tensors have this name"));
        }
        tensors.iter().for_each(|tensor| tensor.problems(&mesh, &mut problems));
        problems.into_result(())?;
        let mut written = vec![Vec::new(); mesh.cards()];
        for (at, tensor) in tensors.iter().enumerate() {
            tensor.first_holders(&mesh).into_iter().for_each(|rank| written[rank].push(at));
        }
        Ok(Self { mesh, tensors, written })
    }

    /// Returns the mesh of the ranks.
    #[must_use]
    pub const fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn world(&self) -> usize {
        self.mesh.cards()
    }

    /// Returns all tensors, sorted by name.
    #[must_use]
    pub fn tensors(&self) -> &[ShardedTensor] {
        &self.tensors
    }

    /// Returns whether a tensor has this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.tensors.binary_search_by(|tensor| tensor.name.as_str().cmp(name)).is_ok()
    }

    /// Returns the partial sum that a rank holds, [`Summand::WHOLE`] for ordinary and unknown
    /// tensors.
    #[must_use]
    pub fn summand(&self, name: &str, rank: usize) -> Summand {
        let at = self.tensors.binary_search_by(|tensor| tensor.name.as_str().cmp(name));
        let layout = at.ok().and_then(|at| self.tensors[at].layout_on(&self.mesh));
        layout.map_or(Summand::WHOLE, |layout| Summand {
            index: layout.summand(&self.mesh, rank),
            count: layout.summands(&self.mesh),
        })
    }

    /// Returns the tensors that a rank writes, with their parts. Only these leave the card.
    pub fn written_by(&self, rank: usize) -> impl Iterator<Item = (&ShardedTensor, &[Range<usize>])> {
        let tensors = self.written.get(rank).into_iter().flatten();
        tensors.map(move |at| (&self.tensors[*at], &*self.tensors[*at].ranges[rank]))
    }

    /// Returns the ranks that write a tensor, each with the bytes of the part.
    #[must_use]
    pub fn writers(&self, tensor: &str) -> Vec<(usize, usize)> {
        let Ok(at) = self.tensors.binary_search_by(|known| known.name.as_str().cmp(tensor)) else {
            return Vec::new();
        };
        let of = &self.tensors[at];
        of.first_holders(&self.mesh).into_iter().map(|rank| (rank, of.part_bytes(&of.ranges[rank]))).collect()
    }

    /// Assembles tensors from written parts. Partial sums are added, and missing parts are zero.
    #[must_use]
    pub fn whole(&self, parts: &[PartBytes]) -> BTreeMap<String, Vec<u8>> {
        let mut whole: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for part in parts {
            let mut written = self.written_by(part.rank);
            let Some((tensor, ranges)) = written.find(|(tensor, _)| tensor.name == part.tensor) else {
                continue;
            };
            let all: Vec<Range<usize>> = tensor.shape.iter().map(|size| 0..*size).collect();
            let size = tensor.dtype.size_bytes();
            let bytes = whole.entry(part.tensor.clone()).or_insert_with(|| vec![0; tensor.part_bytes(&all)]);
            let runs = Runs::of_part(&tensor.shape, ranges);
            let length = runs.length() * size;
            let is_sum = self.summand(&part.tensor, part.rank).count > 1;
            for (from, to) in (0..).step_by(runs.length().max(1)).zip(runs) {
                let (into, from) = (&mut bytes[to * size..][..length], &part.bytes[from * size..][..length]);
                if is_sum { add(into, from) } else { into.copy_from_slice(from) }
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{AxisId, Id};

    fn mesh() -> Mesh {
        Mesh::new(&[("dp", 2), ("tp", 3)]).unwrap()
    }

    fn axis(index: usize) -> AxisId {
        AxisId::from_index(index)
    }

    fn one(range: Range<usize>) -> Vec<Range<usize>> {
        std::iter::once(range).collect()
    }

    fn written(sharding: &Sharding) -> Vec<String> {
        let ranks = 0..sharding.world();
        let of = |rank| {
            sharding.written_by(rank).map(|(tensor, part)| format!("{}[{}]", tensor.name, cover::text(part)))
        };
        ranks.map(|rank| of(rank).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn the_first_of_those_that_hold_alike_writes() {
        let mesh = mesh();
        let tensor = |name: &str, shape: &[usize], layout: Layout| {
            ShardedTensor::placed(name, &Shape::from(shape), DType::F32, &mesh, &layout)
        };
        let tensors = vec![
            tensor("cut", &[4, 2], Layout::replicated(2).sharded(0, axis(1))),
            tensor("both", &[4, 2], Layout::replicated(2).sharded(0, axis(0)).sharded(1, axis(1))),
            tensor("whole", &[3], Layout::replicated(1)),
            tensor("step", &[], Layout::replicated(0)),
            tensor("nothing", &[0, 5], Layout::replicated(2).sharded(1, axis(1))),
        ];
        let sharding = Sharding::new(mesh, tensors).unwrap();
        let expected = [
            "both[0..2,0..1] cut[0..2,0..2] step[all] whole[0..3]",
            "both[0..2,1..2] cut[2..3,0..2]",
            "cut[3..4,0..2]",
            "both[2..4,0..1]",
            "both[2..4,1..2]",
            "",
        ];
        assert_eq!(written(&sharding), expected);
        assert_eq!(sharding.writers("cut"), [(0, 16), (1, 8), (2, 8)]);
        assert_eq!(sharding.writers("nothing"), []);
    }

    #[test]
    fn each_part_of_a_sum_is_written_and_the_whole_is_their_sum() {
        let (mesh, shape) = (mesh(), Shape::from([3]));
        let layout = Layout::replicated(1).sharded(0, axis(1)).with_partial(axis(0), Reduce::Sum);
        let sum = ShardedTensor::placed("sum", &shape, DType::F32, &mesh, &layout);
        let sharding = Sharding::new(mesh, vec![sum]).unwrap();
        let expected = ["sum[0..1]", "sum[1..2]", "sum[2..3]", "sum[0..1]", "sum[1..2]", "sum[2..3]"];
        assert_eq!(written(&sharding), expected);
        let summands = [1, 5].map(|rank| sharding.summand("sum", rank));
        assert_eq!(summands, [0, 1].map(|index| Summand { index, count: 2 }));
        let part = |rank: usize| {
            let bytes = (rank as f32 + 0.5).to_le_bytes().to_vec();
            PartBytes { rank, tensor: "sum".to_owned(), bytes }
        };
        let whole = sharding.whole(&(0..6).map(part).collect::<Vec<_>>());
        let expected: Vec<u8> = [4.0_f32, 6.0, 8.0].into_iter().flat_map(f32::to_le_bytes).collect();
        assert_eq!(whole["sum"], expected);
    }

    #[test]
    fn every_tensor_that_cannot_be_saved_is_named_at_once() {
        let good = |name: &str| {
            ShardedTensor::placed(
                name,
                &Shape::from([4]),
                DType::F32,
                &mesh(),
                &Layout::replicated(1).sharded(0, axis(1)),
            )
        };
        let hole = |mut tensor: ShardedTensor| {
            tensor.ranges[2] = one(4..4);
            tensor.ranges[5] = one(4..4);
            tensor
        };
        let quantised =
            Source { tensor: "w".into(), element_offset: 0, form: Form::RowScales { row_elems: 4 } };
        let tensors = vec![
            good("a"),
            good("a"),
            hole(good("hole")),
            ShardedTensor { layout: "pp".into(), ..good("layout") },
            ShardedTensor { source: Some(quantised), ..good("scales") },
            ShardedTensor { layout: "_; max@dp".into(), ..good("largest") },
            ShardedTensor { layout: "tp; sum@dp".into(), dtype: DType::BF16, ..good("sum") },
            ShardedTensor { ranges: vec![one(0..4); 5], ..good("five") },
            ShardedTensor { ranges: vec![one(0..5); 6], ..good("beyond") },
        ];
        let expected = [
            "a: two tensors have this name",
            "beyond: ranges outside the tensor: expected inside [4], found 0..5 on rank 0",
            "five: not the ranks of the mesh: expected ranges of 6 ranks, found ranges of 5 ranks",
            "hole: the ranks do not hold the whole tensor exactly once: expected parts that have all 4 elements, found 3 \
             elements",
            "largest: a part of a reduction cannot be saved: expected a layout without `@`, or parts of a sum of f32, found _; max@dp",
            "layout: not a layout of the tensor on the mesh: found the mesh has no axis `pp`",
            "scales: quantised weights cannot be saved: found from \"w\"+0 scales/4",
            "sum: a part of a reduction cannot be saved: expected a layout without `@`, or parts of a sum of f32, found tp; sum@dp",
        ];
        let problems = Sharding::new(mesh(), tensors).unwrap_err();
        assert_eq!(problems.items().iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }
}
