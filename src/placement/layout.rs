//! Layouts: for each mesh axis, how a value lies on it: sharded along a dim, whole, or partial.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use crate::base::{AxisId, Dims, Id, Reduce, Remainder, Shape};

use super::mesh::Mesh;

/// How a value lies on the cards. Axes that are not named hold it whole.
///
/// The axes of a dim cut it one within the other, the first outermost, together into parts of [`Remainder::Balanced`]; they stand in the
/// mesh's order. An axis occurs once in a layout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// For each dim, the axes that shard it, outermost first.
    pub dims: SmallVec<[SmallVec<[AxisId; 2]>; 5]>,
    /// The axes on which each card holds a part of a reduction, in the mesh's order.
    pub partial: SmallVec<[(AxisId, Reduce); 2]>,
}

impl Layout {
    /// Whole everywhere, for a tensor of `rank` dims.
    #[must_use]
    pub fn replicated(rank: usize) -> Self {
        Self { dims: (0..rank).map(|_| SmallVec::new()).collect(), partial: SmallVec::new() }
    }

    /// The same with `axis` sharding `dim`.
    #[must_use]
    pub fn sharded(mut self, dim: usize, axis: AxisId) -> Self {
        self.dims[dim].push(axis);
        self.dims[dim].sort_unstable();
        self
    }

    /// The same with `axis` sharding `dim`, whatever it did before.
    #[must_use]
    pub fn only_along(mut self, dim: usize, axis: AxisId) -> Self {
        self.dims.iter_mut().for_each(|axes| axes.retain(|other| *other != axis));
        self.partial.retain(|(other, _)| *other != axis);
        self.sharded(dim, axis)
    }

    /// The same with `axis` partial.
    #[must_use]
    pub fn with_partial(mut self, axis: AxisId, reduce: Reduce) -> Self {
        self.partial.push((axis, reduce));
        self.partial.sort_unstable();
        self
    }

    /// The dim that an axis shards.
    #[must_use]
    pub fn dim_of(&self, axis: AxisId) -> Option<usize> {
        self.dims.iter().position(|axes| axes.contains(&axis))
    }

    /// The reduction that an axis holds parts of.
    #[must_use]
    pub fn partial_on(&self, axis: AxisId) -> Option<Reduce> {
        self.partial.iter().find(|(found, _)| *found == axis).map(|(_, reduce)| *reduce)
    }

    /// Over how many parts of a reduction the value is dealt: 1 where it is whole.
    #[must_use]
    pub fn summands(&self, mesh: &Mesh) -> usize {
        self.partial.iter().map(|(axis, _)| mesh.size(*axis)).product()
    }

    /// Which of them `rank` holds.
    #[must_use]
    pub fn summand(&self, mesh: &Mesh, rank: usize) -> usize {
        self.partial.iter().fold(0, |at, (axis, _)| at * mesh.size(*axis) + mesh.coordinate(rank, *axis))
    }

    /// Whether no axis is named.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.partial.is_empty() && self.dims.iter().all(SmallVec::is_empty)
    }

    /// The elements of the whole that `rank` holds, dim by dim.
    #[must_use]
    pub fn ranges(&self, mesh: &Mesh, shape: &Shape, rank: usize) -> Vec<Range<usize>> {
        self.each_range(mesh, shape, rank).collect()
    }

    fn each_range(&self, mesh: &Mesh, shape: &Shape, rank: usize) -> impl Iterator<Item = Range<usize>> {
        self.dims.iter().zip(shape.iter()).map(move |(axes, size)| {
            let within = |(parts, at), axis: &AxisId| {
                (parts * mesh.size(*axis), at * mesh.size(*axis) + mesh.coordinate(rank, *axis))
            };
            let (parts, at) = axes.iter().fold((1, 0), within);
            Remainder::Balanced.range(*size, parts, at)
        })
    }

    /// For each dim, the first element of the whole that `rank` holds.
    #[must_use]
    pub fn starts(&self, mesh: &Mesh, shape: &Shape, rank: usize) -> Dims {
        self.each_range(mesh, shape, rank).map(|range| range.start).collect()
    }

    /// Sizes of what `rank` holds.
    #[must_use]
    pub fn local_shape(&self, mesh: &Mesh, shape: &Shape, rank: usize) -> Shape {
        self.each_range(mesh, shape, rank).map(|range| range.len()).collect()
    }

    /// Elements of the fullest card, which is rank 0: no balanced part is larger than the first.
    #[must_use]
    pub fn largest_local_elems(&self, mesh: &Mesh, shape: &Shape) -> usize {
        self.local_shape(mesh, shape, 0).elems()
    }

    /// The text between the braces: `_,tp,_; sum@dp`.
    #[must_use]
    pub fn text(&self, axis_names: &[String]) -> String {
        let name = |axis: &AxisId| axis_names.get(axis.index()).cloned().unwrap_or_else(|| axis.to_string());
        let dims: Vec<String> = self
            .dims
            .iter()
            .map(|axes| match axes.len() {
                0 => "_".to_owned(),
                _ => axes.iter().map(name).collect::<Vec<_>>().join("*"),
            })
            .collect();
        let mut text = dims.join(",");
        for (axis, reduce) in &self.partial {
            text.push_str(&format!("; {reduce}@{}", name(axis)));
        }
        text
    }

    /// The inverse of [`Layout::text`], for a tensor of `rank` dims.
    ///
    /// # Errors
    /// A sentence naming the part that is no layout.
    pub fn parse(text: &str, rank: usize, axis_names: &[String]) -> Result<Self, String> {
        let axis = |name: &str| {
            let index = axis_names.iter().position(|known| known == name);
            index.map(AxisId::from_index).ok_or_else(|| format!("the mesh has no axis `{name}`"))
        };
        let mut parts = text.split("; ");
        let dims = parts.next().unwrap_or_default();
        let dims = dims.split(',').filter(|dim| !dim.is_empty()).map(|dim| match dim {
            "_" => Ok(SmallVec::new()),
            names => names.split('*').map(axis).collect(),
        });
        let mut layout = Self { dims: dims.collect::<Result<_, String>>()?, partial: SmallVec::new() };
        if layout.dims.len() != rank {
            return Err(format!("layout `{text}` has {} dims, expected {rank}", layout.dims.len()));
        }
        for partial in parts {
            let (reduce, name) = partial.split_once('@').ok_or_else(|| format!("`{partial}` is no partial"))?;
            let reduce = Reduce::named(reduce).ok_or_else(|| format!("`{reduce}` is no reduction"))?;
            layout = layout.with_partial(axis(name)?, reduce);
        }
        Ok(layout)
    }

    /// What makes this no layout on a mesh for a tensor of `rank` dims, if anything.
    #[must_use]
    pub fn problem(&self, mesh: &Mesh, rank: usize) -> Option<String> {
        if self.dims.len() != rank {
            return Some(format!("the layout has {} dims, the tensor {rank}", self.dims.len()));
        }
        let mut seen: Vec<AxisId> = Vec::new();
        for axis in self.dims.iter().flatten().copied().chain(self.partial.iter().map(|(axis, _)| *axis)) {
            if axis.index() >= mesh.axes().len() {
                return Some(format!("the mesh has no {axis}"));
            }
            if seen.contains(&axis) {
                return Some(format!("axis `{}` occurs twice", mesh.axes()[axis.index()].name));
            }
            seen.push(axis);
        }
        let ascending = |axes: &[AxisId]| axes.is_sorted();
        (!self.dims.iter().all(|axes| ascending(axes)) || !self.partial.is_sorted())
            .then(|| "the axes of a dim stand in the mesh's order".to_owned())
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = (0..16).map(|index| format!("axis{index}")).collect();
        write!(f, "{{{}}}", self.text(&names))
    }
}
