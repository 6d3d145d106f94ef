//! Layouts: on each mesh axis a value is sharded along a dim, replicated, or partial.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use crate::base::{AxisId, Dims, Id, Reduce, Remainder, Shape};

use super::mesh::Mesh;

/// The layout of a value. Axes without an entry replicate.
///
/// The axes of a dim split it in turn, outermost first, into balanced shards
/// ([`Remainder::Balanced`]). They are in mesh order, and each axis occurs at most once.
///
/// ```
/// use ascend_tp::compiler::{Builder, Layout};
/// use ascend_tp::{DType, Mesh, Pins, parallelize};
///
/// # let mut build = Builder::new("linear");
/// # let x = build.input("x", [2, 4], DType::F32);
/// # let w = build.param("w", [6, 4], DType::F32);
/// # let y = build.matmul("bi,oi->bo", x, w);
/// # build.output("y", y);
/// # let program = build.finish()?;
/// // `w` is a param `[6, 4]` of `program`.
/// let mesh = Mesh::new(&[("tp", 2)])?;
/// let split = parallelize(&program, &mesh, &Pins::default().split_axis("w", 0))?.lowered;
/// let mut values = split.program.values.iter();
/// let (id, w) = values.find(|(_, value)| value.name == "w").expect("a param");
/// let layout: &Layout = &split.layouts[id];
/// assert_eq!(layout.local_shape(&mesh, &w.shape, 1).sizes(), [3, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Axes that shard each dim, outermost first.
    pub dims: SmallVec<[SmallVec<[AxisId; 2]>; 5]>,
    /// Axes on which each rank holds a partial result, in mesh order.
    pub partial: SmallVec<[(AxisId, Reduce); 2]>,
}

impl Layout {
    /// Creates a fully replicated layout of `rank` dims.
    #[must_use]
    pub fn replicated(rank: usize) -> Self {
        Self { dims: (0..rank).map(|_| SmallVec::new()).collect(), partial: SmallVec::new() }
    }

    /// Returns each sharded dim with the name of each of its axes.
    pub(crate) fn named_dims<'a>(&self, names: &'a [String]) -> Vec<(usize, &'a str)> {
        let dims = self.dims.iter().enumerate();
        dims.flat_map(|(dim, axes)| axes.iter().map(move |axis| (dim, names[axis.index()].as_str())))
            .collect()
    }

    /// Adds `axis` to the axes that shard `dim`.
    #[must_use]
    pub fn sharded(mut self, dim: usize, axis: AxisId) -> Self {
        self.dims[dim].push(axis);
        self.dims[dim].sort_unstable();
        self
    }

    /// Shards `dim` on `axis`, and drops any other role of the axis.
    #[must_use]
    #[doc(hidden)]
    pub fn only_along(mut self, dim: usize, axis: AxisId) -> Self {
        self.dims.iter_mut().for_each(|axes| axes.retain(|other| *other != axis));
        self.partial.retain(|(other, _)| *other != axis);
        self.sharded(dim, axis)
    }

    /// Makes the value partial on `axis`.
    #[must_use]
    #[doc(hidden)]
    pub fn with_partial(mut self, axis: AxisId, reduce: Reduce) -> Self {
        self.partial.push((axis, reduce));
        self.partial.sort_unstable();
        self
    }

    /// Returns the dim that an axis shards.
    #[must_use]
    #[doc(hidden)]
    pub fn dim_of(&self, axis: AxisId) -> Option<usize> {
        self.dims.iter().position(|axes| axes.contains(&axis))
    }

    /// Returns the reduction that is pending on an axis.
    #[must_use]
    #[doc(hidden)]
    pub fn partial_on(&self, axis: AxisId) -> Option<Reduce> {
        self.partial.iter().find(|(found, _)| *found == axis).map(|(_, reduce)| *reduce)
    }

    /// Returns the number of partial results, 1 if there is no reduction.
    #[must_use]
    #[doc(hidden)]
    pub fn summands(&self, mesh: &Mesh) -> usize {
        self.partial.iter().map(|(axis, _)| mesh.size(*axis)).product()
    }

    /// Returns the index of the partial result that `rank` holds.
    #[must_use]
    #[doc(hidden)]
    pub fn summand(&self, mesh: &Mesh, rank: usize) -> usize {
        self.partial.iter().fold(0, |at, (axis, _)| at * mesh.size(*axis) + mesh.coordinate(rank, *axis))
    }

    /// Returns whether the value is replicated on all axes.
    #[must_use]
    #[doc(hidden)]
    pub fn is_replicated(&self) -> bool {
        self.partial.is_empty() && self.dims.iter().all(SmallVec::is_empty)
    }

    /// Returns the ranges of the shard of `rank`, by dim.
    #[must_use]
    #[doc(hidden)]
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

    /// Returns the first index of the shard of `rank`, by dim.
    #[must_use]
    #[doc(hidden)]
    pub fn starts(&self, mesh: &Mesh, shape: &Shape, rank: usize) -> Dims {
        self.each_range(mesh, shape, rank).map(|range| range.start).collect()
    }

    /// Returns the shape of the shard of `rank`.
    #[must_use]
    pub fn local_shape(&self, mesh: &Mesh, shape: &Shape, rank: usize) -> Shape {
        self.each_range(mesh, shape, rank).map(|range| range.len()).collect()
    }

    /// Returns the elements of the largest shard. Rank 0 always has the largest shard.
    #[must_use]
    #[doc(hidden)]
    pub fn largest_local_elems(&self, mesh: &Mesh, shape: &Shape) -> usize {
        self.local_shape(mesh, shape, 0).elems()
    }

    /// Returns the text between the braces, such as `_,tp,_; sum@dp`.
    #[must_use]
    #[doc(hidden)]
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

    /// Parses the output of [`Layout::text`].
    ///
    /// # Errors
    /// Returns a message that names the invalid part.
    #[doc(hidden)]
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
            let (reduce, name) =
                partial.split_once('@').ok_or_else(|| format!("`{partial}` is no partial"))?;
            let reduce = Reduce::named(reduce).ok_or_else(|| format!("`{reduce}` is no reduction"))?;
            layout = layout.with_partial(axis(name)?, reduce);
        }
        Ok(layout)
    }

    /// Returns why the layout is invalid for a mesh and a tensor of `rank` dims, if so.
    #[must_use]
    #[doc(hidden)]
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
            .then(|| "the axes of a dim are in mesh order".to_owned())
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = (0..16).map(|index| format!("axis{index}")).collect();
        write!(f, "{{{}}}", self.text(&names))
    }
}
