//! The device mesh: cards in a grid with named axes.
//!
//! An axis may be split into sub-axes. With fewer key/value heads than cards, `tp` becomes `tp_kv`
//! × `tp_rep`: heads are sharded on `tp_kv` and replicated on `tp_rep`. Passes use sub-axes only;
//! user-facing texts name the full axis.
//!
//! Two orders are independent. The rank order has the last axis of a text fastest. The sharding
//! order decides which axis splits a dim first. They differ only for axes marked `within`, which
//! split the shards of all other axes: optimizer moments of a weight are split further over `dp`,
//! whose cards are far apart.

use std::fmt;

use crate::base::{AxisId, Id};

/// The axis over which weights are sharded, if there is only one.
pub const TENSOR: &str = "tp";
/// With two weight axes, the axis along heads, intermediate size or vocabulary.
pub const COLUMNS: &str = "tp_col";
/// With two weight axes, the axis along the hidden size.
pub const ROWS: &str = "tp_row";
/// The axis over which the experts of mixtures are sharded in training. It also distributes
/// sequences.
pub const EXPERTS: &str = "ep";
/// The axis that distributes the sequences of a batch over groups with equal weight shards.
pub const DEPTH: &str = "tp_depth";

/// Multi-axis tensor parallelism: the sizes of the additional axes. The remaining cards form the
/// columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Number of cards along [`ROWS`].
    pub rows: usize,
    /// Number of cards along [`DEPTH`].
    pub depth: usize,
}

#[doc(hidden)]
impl Grid {
    /// A single axis for all cards.
    pub const LINE: Self = Self { rows: 1, depth: 1 };

    /// Returns the number of cards for each column.
    #[must_use]
    pub const fn cards(self) -> usize {
        self.rows * self.depth
    }
}

/// A mesh axis, or a sub-axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Name, unique in the mesh.
    pub name: String,
    /// Number of cards along the axis.
    pub size: usize,
    /// Name of the full axis. Equals `name` if the axis is not split.
    pub of: String,
    /// Distance between the ranks of neighbours.
    pub stride: usize,
    /// True if the axis splits the shards of all axes without this flag.
    pub within: bool,
}

impl Axis {
    fn new(name: &str, size: usize, of: &str) -> Self {
        Self { name: name.to_owned(), size, of: of.to_owned(), stride: 1, within: false }
    }
}

/// A grid of cards. Axes are in sharding order, and rank 0 is the first card.
///
/// ```
/// use ascend_tp::Mesh;
///
/// let mesh = Mesh::new(&[("dp", 2), ("tp", 4)])?;
/// assert_eq!(mesh.cards(), 8);
/// // Eight cards for a model with four key heads: two cards share each of them.
/// let mesh = Mesh::tensor_parallel(8, 4, 8)?;
/// println!("{mesh}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mesh {
    axes: Vec<Axis>,
}

/// An error in the definition of a mesh.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// An axis without any card.
    #[error("mesh axis `{0}` has size 0; give each axis at least one card")]
    Empty(String),
    /// Two axes with the same name.
    #[error("mesh axis `{0}` is given twice")]
    Twice(String),
    /// A name that is no identifier.
    #[error("mesh axis `{0}`: a name is a letter followed by letters, digits and `_`")]
    Name(String),
    /// Sizes of sub-axes with another product than the size of the axis.
    #[error("mesh axis `{0}` has {1} cards, its parts {2}")]
    Parts(String, usize, usize),
    /// The number of cards overflows.
    #[error("mesh axis `{0}` makes more cards than can be counted")]
    Large(String),
    /// A text that is no mesh.
    #[error("`{0}` is not a mesh; write `mesh tp=8` or `mesh tp_kv=4 of tp, tp_rep=2 of tp`")]
    Text(String),
}

impl Mesh {
    /// Creates a mesh of axes, outermost first.
    ///
    /// # Errors
    /// Fails if a size is 0, a name is repeated, or a name is no identifier.
    pub fn new(axes: &[(&str, usize)]) -> Result<Self, MeshError> {
        Self::of_axes(axes.iter().map(|(name, size)| Axis::new(name, *size, name)).collect())
    }

    /// Creates a mesh of axes in rank order, the last one fastest.
    fn of_axes(mut axes: Vec<Axis>) -> Result<Self, MeshError> {
        for (index, axis) in axes.iter().enumerate() {
            let identifier = axis.name.starts_with(|c: char| c.is_ascii_alphabetic())
                && axis.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !identifier {
                return Err(MeshError::Name(axis.name.clone()));
            }
            if axis.size == 0 {
                return Err(MeshError::Empty(axis.name.clone()));
            }
            if axes[..index].iter().any(|other| other.name == axis.name) {
                return Err(MeshError::Twice(axis.name.clone()));
            }
        }
        let mut stride = 1_usize;
        for axis in axes.iter_mut().rev() {
            axis.stride = stride;
            stride = stride.checked_mul(axis.size).ok_or_else(|| MeshError::Large(axis.name.clone()))?;
        }
        axes.sort_by_key(|axis| axis.within);
        Ok(Self { axes })
    }

    /// Returns the axes in rank order, the last one fastest.
    fn by_stride(&self) -> Vec<Axis> {
        let mut axes = self.axes.clone();
        // Axes of size 1 share the stride of the axis before them.
        axes.sort_by_key(|axis| (std::cmp::Reverse(axis.stride), axis.size == 1, !axis.within));
        axes
    }

    /// Creates the mesh `tp` of `cards` for attention with `kv_heads` key heads, which serve
    /// `group` query heads each.
    ///
    /// `tp` is split in two if the fullest card then has fewer query heads. On a tie, a split that
    /// divides the key heads wins, then the one with the least replication.
    ///
    /// # Errors
    /// Fails if `cards` is 0.
    pub fn tensor_parallel(cards: usize, kv_heads: usize, group: usize) -> Result<Self, MeshError> {
        let heads = |kv: usize| kv_heads.div_ceil(kv) * group.div_ceil(cards / kv);
        let ways = (1..=cards).rev().filter(|kv| cards.is_multiple_of(*kv));
        let best = ways.min_by_key(|kv| (heads(*kv), !kv_heads.is_multiple_of(*kv)));
        match best {
            Some(kv) if kv > 1 && kv < cards => {
                Self::of_axes(vec![Axis::new("tp_kv", kv, TENSOR), Axis::new("tp_rep", cards / kv, TENSOR)])
            }
            _ => Self::new(&[(TENSOR, cards)]),
        }
    }

    /// Creates the mesh of the cards that serve one batch: the columns of
    /// [`Mesh::tensor_parallel`], with the rows of a column on adjacent ranks. The depth axis
    /// repeats this grid.
    ///
    /// # Errors
    /// Fails like [`Mesh::tensor_parallel`].
    #[doc(hidden)]
    pub fn of_grid(columns: usize, grid: Grid, kv_heads: usize, group: usize) -> Result<Self, MeshError> {
        let line = Self::tensor_parallel(columns, kv_heads, group)?;
        let mesh = match grid.rows {
            1 => line,
            rows => {
                let column = |axis: Axis| Axis {
                    name: if axis.name == TENSOR { COLUMNS.to_owned() } else { axis.name },
                    of: COLUMNS.to_owned(),
                    ..axis
                };
                let axes = line.axes.into_iter().map(column).chain([Axis::new(ROWS, rows, ROWS)]);
                Self::of_axes(axes.collect())?
            }
        };
        if grid.depth == 1 { Ok(mesh) } else { mesh.under(&[(DEPTH, grid.depth)]) }
    }

    /// Marks the named axes as `within`: they split the shards of all other axes.
    #[must_use]
    #[doc(hidden)]
    pub fn with_within(mut self, names: &[&str]) -> Self {
        self.axes = self.by_stride();
        for axis in &mut self.axes {
            axis.within |= names.contains(&axis.of.as_str());
        }
        self.axes.sort_by_key(|axis| axis.within);
        self
    }

    /// Repeats the mesh for each coordinate of the axes `outer`, which become the outermost.
    ///
    /// # Errors
    /// Fails like [`Mesh::new`], for all axes together.
    #[doc(hidden)]
    pub fn under(self, outer: &[(&str, usize)]) -> Result<Self, MeshError> {
        let mut axes = Self::new(outer)?.axes;
        axes.extend(self.by_stride());
        Self::of_axes(axes)
    }

    /// Splits an axis into sub-axes, outermost first.
    ///
    /// # Errors
    /// Fails like [`Mesh::new`], or if the product of the sizes differs.
    #[doc(hidden)]
    pub fn cut_axis(self, name: &str, parts: &[(&str, usize)]) -> Result<Self, MeshError> {
        let product: usize = parts.iter().map(|(_, size)| size).product();
        let mut axes = Vec::new();
        for axis in self.by_stride() {
            let part =
                |(part, size): &(&str, usize)| Axis { within: axis.within, ..Axis::new(part, *size, name) };
            match axis.name == name {
                true if axis.size != product => return Err(MeshError::Parts(axis.name, axis.size, product)),
                true => axes.extend(parts.iter().map(part)),
                false => axes.push(axis),
            }
        }
        Self::of_axes(axes)
    }

    /// Returns the axes in sharding order.
    #[must_use]
    #[doc(hidden)]
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Returns all axis ids in sharding order.
    #[must_use]
    #[doc(hidden)]
    pub fn ids(&self) -> Vec<AxisId> {
        (0..self.axes.len()).map(AxisId::from_index).collect()
    }

    /// Returns the names in the order of the ids.
    #[must_use]
    #[doc(hidden)]
    pub fn axis_names(&self) -> Vec<String> {
        self.axes.iter().map(|axis| axis.name.clone()).collect()
    }

    /// Returns the axes that a name refers to: one axis, or all its sub-axes. Empty if the name is
    /// unknown.
    #[must_use]
    #[doc(hidden)]
    pub fn named(&self, name: &str) -> Vec<AxisId> {
        self.ids()
            .into_iter()
            .filter(|id| self.axes[id.index()].name == name || self.axes[id.index()].of == name)
            .collect()
    }

    /// Returns the number of cards along an axis.
    #[must_use]
    #[doc(hidden)]
    pub fn size(&self, axis: AxisId) -> usize {
        self.axes[axis.index()].size
    }

    /// Returns the number of cards in the joint group of some axes.
    #[must_use]
    #[doc(hidden)]
    pub fn joint_size(&self, axes: &[AxisId]) -> usize {
        axes.iter().map(|axis| self.size(*axis)).product()
    }

    /// Returns the number of cards in the mesh.
    #[must_use]
    pub fn cards(&self) -> usize {
        self.axes.iter().map(|axis| axis.size).product()
    }

    fn stride(&self, axis: AxisId) -> usize {
        self.axes[axis.index()].stride
    }

    /// Returns the coordinate of a rank on an axis.
    #[must_use]
    #[doc(hidden)]
    pub fn coordinate(&self, rank: usize, axis: AxisId) -> usize {
        rank / self.stride(axis) % self.size(axis)
    }

    /// Returns the ranks that differ from `rank` only on `axes`, including `rank`. The last of
    /// `axes` is fastest.
    #[must_use]
    #[doc(hidden)]
    pub fn group(&self, rank: usize, axes: &[AxisId]) -> Vec<usize> {
        let base =
            axes.iter().fold(rank, |rank, axis| rank - self.coordinate(rank, *axis) * self.stride(*axis));
        axes.iter().fold(vec![base], |ranks, axis| {
            let stride = self.stride(*axis);
            ranks.iter().flat_map(|rank| (0..self.size(*axis)).map(move |at| rank + at * stride)).collect()
        })
    }

    /// Returns user-facing names of some axes: `tp` for all sub-axes of `tp`, otherwise the names
    /// joined by `*`.
    #[must_use]
    #[doc(hidden)]
    pub fn describe(&self, axes: &[AxisId]) -> String {
        let mut names: Vec<&str> = Vec::new();
        for axis in axes {
            let of = &self.axes[axis.index()].of;
            let parts = self.named(of);
            let name =
                if parts.iter().all(|part| axes.contains(part)) { of } else { &self.axes[axis.index()].name };
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names.join("*")
    }

    /// Parses a text such as `mesh tp=8`.
    ///
    /// # Errors
    /// Returns an error for a text or a mesh that is invalid.
    #[doc(hidden)]
    pub fn parse(text: &str) -> Result<Self, MeshError> {
        let bad = || MeshError::Text(text.to_owned());
        let list = text.strip_prefix("mesh ").ok_or_else(bad)?;
        let axes = list.split(", ").map(|axis| {
            let (name, rest) = axis.split_once('=').ok_or_else(bad)?;
            let (rest, within) = rest.strip_suffix(" within").map_or((rest, false), |rest| (rest, true));
            let (size, of) = rest.split_once(" of ").unwrap_or((rest, name));
            Ok(Axis { within, ..Axis::new(name, size.parse().map_err(|_| bad())?, of) })
        });
        Self::of_axes(axes.collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for Mesh {
    /// Formats as `mesh tp_kv=4 of tp, tp_rep=2 of tp`. The last axis is fastest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mesh ")?;
        for (index, axis) in self.by_stride().iter().enumerate() {
            write!(f, "{}{}={}", if index > 0 { ", " } else { "" }, axis.name, axis.size)?;
            if axis.of != axis.name {
                write!(f, " of {}", axis.of)?;
            }
            if axis.within {
                f.write_str(" within")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_heads_fewer_than_cards_are_replicated_on_a_sub_axis() {
        assert_eq!(Mesh::tensor_parallel(8, 4, 2).unwrap().to_string(), "mesh tp_kv=4 of tp, tp_rep=2 of tp");
        assert_eq!(Mesh::tensor_parallel(8, 8, 8).unwrap().to_string(), "mesh tp=8");
        assert_eq!(Mesh::tensor_parallel(5, 4, 2).unwrap().to_string(), "mesh tp=5");
        assert_eq!(Mesh::tensor_parallel(4, 2, 4).unwrap().to_string(), "mesh tp_kv=2 of tp, tp_rep=2 of tp");
        assert_eq!(Mesh::tensor_parallel(6, 2, 4).unwrap().to_string(), "mesh tp_kv=2 of tp, tp_rep=3 of tp");
        assert_eq!(Mesh::tensor_parallel(0, 2, 4), Err(MeshError::Empty("tp".into())));
    }

    #[test]
    fn groups_partition_the_ranks() {
        let mesh = Mesh::new(&[("dp", 2), ("tp", 3), ("cp", 2)]).unwrap();
        let tp = mesh.named("tp");
        assert_eq!(mesh.group(1, &tp), [1, 3, 5]);
        assert_eq!(mesh.group(11, &mesh.named("dp")), [5, 11]);
        assert_eq!(mesh.group(0, &mesh.ids()), (0..12).collect::<Vec<_>>());
        assert_eq!(Mesh::parse(&mesh.to_string()).unwrap(), mesh);
    }

    #[test]
    fn axes_within_others_come_last_and_keep_their_cards() {
        let mesh = Mesh::of_grid(4, Grid { rows: 3, depth: 2 }, 2, 2).unwrap();
        let text = "mesh tp_depth=2, tp_kv=2 of tp_col, tp_rep=2 of tp_col, tp_row=3";
        assert_eq!(mesh.to_string(), text);
        let mesh = mesh.under(&[("dp", 4)]).unwrap().with_within(&["dp", DEPTH]);
        assert_eq!(mesh.to_string(), text.replace("mesh tp_depth=2", "mesh dp=4 within, tp_depth=2 within"));
        assert_eq!(Mesh::parse(&mesh.to_string()).unwrap(), mesh);
        assert_eq!(mesh.axis_names(), ["tp_kv", "tp_rep", "tp_row", "dp", "tp_depth"]);
        assert_eq!(mesh.group(25, &mesh.named(ROWS)), [24, 25, 26]);
        assert_eq!(mesh.group(25, &mesh.named("dp")), [1, 25, 49, 73]);
        let both = [mesh.named(ROWS), mesh.named(DEPTH)].concat();
        assert_eq!(mesh.group(0, &both), [0, 12, 1, 13, 2, 14]);
        let cut =
            mesh.cut_axis("dp", &[("dp_rep", 2), ("dp_shard", 2)]).unwrap().under(&[("pp", 2)]).unwrap();
        assert_eq!(cut.group(1, &cut.named("dp_rep")), [1, 49]);
        assert_eq!(cut.group(1, &cut.named("pp")), [1, 97]);
        for sizes in [[1, 2, 1], [1, 1, 2], [2, 1, 1], [1, 1, 1]] {
            let grid = Grid { rows: 2, depth: sizes[1] };
            let mesh = Mesh::of_grid(sizes[0], grid, 2, 2).unwrap().under(&[("dp", sizes[2])]).unwrap();
            let mesh = mesh.with_within(&["dp", DEPTH]);
            assert_eq!(Mesh::parse(&mesh.to_string()).unwrap(), mesh, "{mesh}");
        }
    }

    #[test]
    fn all_parts_of_an_axis_are_described_as_the_axis() {
        let mesh = Mesh::tensor_parallel(8, 4, 2).unwrap();
        assert_eq!(mesh.describe(&mesh.ids()), "tp");
        assert_eq!(mesh.describe(&mesh.ids()[..1]), "tp_kv");
    }
}
