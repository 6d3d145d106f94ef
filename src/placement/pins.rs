//! User decisions, by name: how a weight is sharded, and the layout of a value.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{AxisId, DType, Diagnostic, Id, Reduce};

use crate::program::{Program, Role, ValueId};

use super::layout::Layout;
use super::mesh::{COLUMNS, DEPTH, EXPERTS, Mesh, ROWS, TENSOR};
use super::text::Placed;

/// Layout of the residual stream between layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Residual {
    /// Replicated: one `all_reduce` after each row-parallel weight.
    #[default]
    Replicate,
    /// Sharded along the sequence: a `reduce_scatter` after each row-parallel weight, and an
    /// `all_gather` before the next column-parallel weight.
    Seq,
}

#[doc(hidden)]
impl Residual {
    /// Returns the name in options, recipes and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replicate => "replicate",
            Self::Seq => "seq",
        }
    }
}

/// How tensor parallelism shards the experts of a mixture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExpertShards {
    /// Each card has some of the experts: expert parallelism.
    #[default]
    Whole,
    /// Each card has a part of the intermediate size of every expert.
    Inner,
}

#[doc(hidden)]
impl ExpertShards {
    /// Returns the name in options, recipes and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole => "ep",
            Self::Inner => "tp",
        }
    }

    /// Returns the dim of the gate and up projections, and of the down projection.
    const fn dims(self) -> [usize; 2] {
        match self {
            Self::Whole => [0, 0],
            Self::Inner => [2, 2],
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct ValuePin {
    dims: Vec<(usize, String)>,
    partial: Vec<String>,
}

/// Sharding decisions by name. In a pattern, `*` matches any text. The last matching pattern wins.
///
/// ```
/// use ascend_tp::Pins;
///
/// let pins = Pins::default()
///     .value("x", &[(0, "dp")]) // Dim 0 of input `x` is sharded over the axis `dp`.
///     .split_axis("*.up.weight", 0) // Column parallel
///     .split_axis("*.down.weight", 1) // Row parallel
///     .replicate("*.norm.weight");
/// # drop(pins);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pins {
    cuts: Patterns<Option<usize>>,
    gathered: Patterns<()>,
    values: Patterns<ValuePin>,
    along: Patterns<(usize, String)>,
    axis: Option<String>,
    across: Option<String>,
    storage: Vec<String>,
    /// Axes on which params are sharded at their uses, even if they are storage axes.
    used_sharded: Patterns<String>,
    dealt: Vec<String>,
}

/// Decisions by pattern. Patterns without `*` are in a hash map, because [`Pins::like`] pins
/// thousands of names.
#[derive(Clone, Debug, PartialEq)]
struct Patterns<T> {
    decided: Vec<(String, T)>,
    /// Index of the last decision for each pattern without `*`.
    names: FxHashMap<String, usize>,
    open: Vec<usize>,
}

impl<T> Default for Patterns<T> {
    fn default() -> Self {
        Self { decided: Vec::new(), names: FxHashMap::default(), open: Vec::new() }
    }
}

impl<T> Patterns<T> {
    fn push(&mut self, pattern: &str, decision: T) {
        let place = self.decided.len();
        if pattern.contains('*') {
            self.open.push(place);
        } else {
            self.names.insert(pattern.to_owned(), place);
        }
        self.decided.push((pattern.to_owned(), decision));
    }

    fn last(&self, name: &str) -> Option<&(String, T)> {
        let open = self.open.iter().rev().copied().find(|place| fits(&self.decided[*place].0, name));
        self.names.get(name).copied().max(open).map(|place| &self.decided[place])
    }

    fn among(self, names: &FxHashSet<&str>) -> Self {
        let mut kept = Self::default();
        for (pattern, decision) in self.decided {
            if pattern.contains('*') || names.contains(pattern.as_str()) {
                kept.push(&pattern, decision);
            }
        }
        kept
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.decided.iter().map(|(pattern, _)| pattern.as_str()).filter(|pattern| !pattern.contains('*'))
    }
}

impl Pins {
    /// Pins only the residual stream. The cut of each weight is chosen by the resulting
    /// communication.
    #[must_use]
    pub fn auto(residual: Residual) -> Self {
        Self::default().value(
            "residual.*",
            match residual {
                Residual::Replicate => &[],
                Residual::Seq => &[(1, TENSOR)],
            },
        )
    }

    /// Returns the cuts of Megatron-LM. q, k, v, gate, up and head are cut by outputs, attention
    /// output and down projection by inputs, and the embedding by vocabulary.
    #[must_use]
    pub fn megatron(residual: Residual) -> Self {
        let mut pins = Self::auto(residual);
        let fused = ["*.c_attn.*.weight", "*.qkv_proj.*.weight", "*.gate_up_proj.*.weight"];
        let recurrent = ["*.in_proj_*.weight", "*.conv1d.*.weight"];
        for column in ["*_proj.weight", "*.w1.weight", "*.w2.weight", "*lm_head.weight"]
            .into_iter()
            .chain(fused)
            .chain(recurrent)
        {
            pins = pins.split_axis(column, 0);
        }
        for row in ["*.o_proj.weight", "*.out_proj.weight", "*.down_proj.weight", "*.c_proj.weight"] {
            pins = pins.split_axis(row, 1);
        }
        pins.split_axis("*.embed_tokens.weight", 0).split_axis("*.wte.weight", 0)
    }

    /// Shards the matching weights along an axis of their `[out, in]` matrix. Axis 0 shards the
    /// outputs (column parallel; an embedding by vocabulary), axis 1 the inputs (row parallel; an
    /// embedding by hidden size).
    #[must_use]
    pub fn split_axis(mut self, pattern: &str, axis: usize) -> Self {
        self.cuts.push(pattern, Some(axis));
        self
    }

    /// Replicates the weights that match `pattern`.
    #[must_use]
    pub fn replicate(mut self, pattern: &str) -> Self {
        self.cuts.push(pattern, None);
        self
    }

    /// Replicates the products of the matching weights immediately.
    #[must_use]
    #[doc(hidden)]
    pub fn gather_output(mut self, pattern: &str) -> Self {
        self.gathered.push(pattern, ());
        self
    }

    /// Shards the matching values along these dims, each on an axis. All other axes replicate.
    #[must_use]
    pub fn value(self, pattern: &str, dims: &[(usize, &str)]) -> Self {
        self.partial_value(pattern, dims, &[])
    }

    /// Like [`Pins::value`], with partial sums on the axes of `partial`. For states to which
    /// programs add.
    #[must_use]
    #[doc(hidden)]
    pub fn partial_value(mut self, pattern: &str, dims: &[(usize, &str)], partial: &[&str]) -> Self {
        let dims = dims.iter().map(|(dim, axis)| (*dim, (*axis).to_owned())).collect();
        let partial = partial.iter().map(|axis| (*axis).to_owned()).collect();
        self.values.push(pattern, ValuePin { dims, partial });
        self
    }

    /// Shards the results of matching ops along `dim` on an axis, with any layout on other axes.
    #[must_use]
    #[doc(hidden)]
    pub fn cut_along(mut self, pattern: &str, dim: usize, axis: &str) -> Self {
        self.along.push(pattern, (dim, axis.to_owned()));
        self
    }

    /// Uses the layouts of another program's params and states, so that both programs share one
    /// copy.
    #[must_use]
    #[doc(hidden)]
    pub fn like(mut self, other: &Placed) -> Self {
        let names = other.mesh.axis_names();
        for (id, value) in
            other.program.values.iter().filter(|(_, v)| matches!(v.role, Role::Param | Role::State))
        {
            let axes = other.layouts[id].dims.iter().enumerate();
            let dims = axes.flat_map(|(dim, axes)| axes.iter().map(move |axis| (dim, axis.index())));
            let dims = dims.map(|(dim, axis)| (dim, names[axis].clone())).collect();
            self.values.push(&value.name, ValuePin { dims, partial: Vec::new() });
        }
        self
    }

    /// Drops pins of single values that the program does not have.
    #[must_use]
    #[doc(hidden)]
    pub fn among(mut self, program: &Program) -> Self {
        let names: FxHashSet<&str> =
            program.values.values().iter().map(|value| value.name.as_str()).collect();
        (self.values, self.along) = (self.values.among(&names), self.along.among(&names));
        (self.cuts, self.gathered) = (self.cuts.among(&names), self.gathered.among(&names));
        self.used_sharded = self.used_sharded.among(&names);
        self
    }

    /// Returns the pins of a decoder on a mesh of [`Mesh::of_grid`].
    ///
    /// `experts` is the sharding of mixtures on the first axis. A second axis shards the
    /// intermediate size of each expert. An axis [`EXPERTS`] shards the experts themselves. Routers
    /// are replicated.
    ///
    /// With one axis, these are [`Pins::auto`], or [`Pins::megatron`] for quantised weights. With
    /// two axes, [`Pins::megatron`] applies on [`COLUMNS`], and each matrix is also sharded along
    /// the hidden size on [`ROWS`]. Values between two products are sharded over both axes, so that
    /// no card repeats work of another card. These values are the heads, the intermediate size and
    /// the logits. Heads are split along `kv_heads` or the `group` of each, depending on the load
    /// of the fullest card. Sequences are distributed over [`DEPTH`].
    #[must_use]
    #[doc(hidden)]
    pub fn decoder(
        program: &Program,
        mesh: &Mesh,
        residual: Residual,
        experts: ExpertShards,
        [kv_heads, group]: [usize; 2],
    ) -> Self {
        let depth = || (!mesh.named(DEPTH).is_empty()).then_some((0, DEPTH));
        let mut stream: Vec<(usize, &str)> = depth().into_iter().collect();
        let rows = mesh.named(ROWS);
        let axes: &[&str] = if rows.is_empty() { &[TENSOR] } else { &[COLUMNS, ROWS] };
        if residual == Residual::Seq {
            stream.extend(axes.iter().map(|axis| (1, *axis)));
        }
        // Bytes alone would have quantised rows gathered before a product and its results behind
        // it. A step of one token pays for each exchange.
        let is_quantised = program
            .with_role(Role::Param)
            .any(|id| matches!(program.values[id].dtype, DType::I8 | DType::I32));
        // The same holds for heads that are narrower than the residual stream.
        let elems = |name: &str| {
            program.values.values().iter().find(|value| value.name == name).map(|value| value.shape.elems())
        };
        let is_narrow = elems("layers.0.attention.heads")
            .zip(elems("residual.embedding"))
            .is_some_and(|(heads, stream)| heads < stream);
        let is_auto = rows.is_empty() && !is_quantised && !is_narrow;
        let base = if is_auto { Self::auto(residual) } else { Self::megatron(residual) };
        // Rows of experts are summed before they are weighted, so that the sum of each is exact.
        let mut pins = base.value("residual.*", &stream).value("layers.*.mlp.experts.rows", &stream);
        if let Some(depth) = depth() {
            let inputs = program.with_role(Role::Input).map(|id| &program.values[id]);
            let dealt = inputs.filter(|value| value.shape.rank() > 0);
            pins = dealt.fold(pins, |pins, value| pins.value(&value.name, &[depth]));
        }
        // Recurrent states are sharded along heads. A run reads them before it has any heads.
        for (state, dim) in [("layers.*.state", 1), ("layers.*.window", 2)] {
            let dims: Vec<(usize, &str)> = depth().into_iter().chain([(dim, axes[0])]).collect();
            pins = pins.value(state, &dims);
        }
        // The prediction layer normalises whole outputs of the last layer.
        if program.find(Role::State, "prediction.hidden").is_some() {
            pins = pins.value("prediction.hidden", &[]);
        }
        pins = pins.experts(program, mesh, axes, experts);
        let [rows] = rows[..] else { return pins };
        pins = pins.on_axis(COLUMNS).across(ROWS);
        let columns: Vec<usize> = mesh.named(COLUMNS).into_iter().map(|axis| mesh.size(axis)).collect();
        // How the columns shard the heads: key heads first if there are enough, then the queries of
        // each.
        let [of_keys, of_queries] = match columns[..] {
            [one] if one > kv_heads && one <= group => [1, one],
            [keys, queries] => [keys, queries],
            [one] => [one, 1],
            _ => [1, 1],
        };
        let fullest = |keys: usize, queries: usize| kv_heads.div_ceil(keys) * group.div_ceil(queries);
        let rows = mesh.size(rows);
        if fullest(of_keys * rows, of_queries) <= fullest(of_keys, of_queries * rows) {
            for heads in ["q", "k", "v"] {
                pins = pins.cut_along(&format!("layers.*.attention.{heads}"), 2, ROWS);
            }
        } else {
            pins = pins.cut_along("layers.*.attention.q", 3, ROWS);
        }
        let logits = program.values.values().iter().find(|value| value.name == "logits");
        if let Some(rank) = logits.map(|logits| logits.shape.rank()) {
            pins = pins.cut_along("logits", rank - 1, ROWS);
        }
        pins.cut_along("layers.*.mlp.hidden", 2, ROWS)
    }

    /// Pins the params of mixtures: experts are sharded, routers replicated.
    fn experts(mut self, program: &Program, mesh: &Mesh, axes: &[&str], shards: ExpertShards) -> Self {
        let over_experts = (!mesh.named(EXPERTS).is_empty()).then_some((0, EXPERTS));
        let param = |id: ValueId| {
            let copied = program.ops.values().iter().find(|op| op.results[0] == id && op.kind.row().is_copy);
            let id = copied.map_or(id, |op| op.operands[0]);
            (program.values[id].role == Role::Param).then(|| program.values[id].name.as_str())
        };
        for op in program.ops.values() {
            if let Some(first) = op.kind.row().experts {
                let names = [param(op.operands[first]), param(op.operands[first + 1])];
                for (name, dim) in names.into_iter().zip(shards.dims()) {
                    let Some(name) = name else { continue };
                    let inner = ExpertShards::Inner.dims()[0];
                    let on =
                        axes.iter().enumerate().map(|(at, axis)| (if at == 0 { dim } else { inner }, *axis));
                    self = self.value(name, &over_experts.into_iter().chain(on).collect::<Vec<_>>());
                    if over_experts.is_some() {
                        self = self.used_sharded(name, EXPERTS);
                    }
                }
            } else if op.kind.einsum().is_some()
                && ROUTED.iter().any(|end| program.values[op.result()].name.ends_with(end))
                && let Some(name) = op.operands.get(1).and_then(|weight| param(*weight))
            {
                self = self.replicate(name);
            }
        }
        self
    }

    /// Shards weights on this mesh axis. The default is `tp`, or every axis of a mesh without `tp`.
    #[must_use]
    #[doc(hidden)]
    pub fn on_axis(mut self, axis: &str) -> Self {
        self.axis = Some(axis.to_owned());
        self
    }

    /// Shards each sharded weight along the other axis of the matrix too, on this mesh axis.
    #[must_use]
    #[doc(hidden)]
    pub fn across(mut self, axis: &str) -> Self {
        self.across = Some(axis.to_owned());
        self
    }

    /// Shards params on these axes for storage only. Each use gathers the param separately.
    #[must_use]
    #[doc(hidden)]
    pub fn stored_on(mut self, axes: &[&str]) -> Self {
        self.storage = axes.iter().map(|axis| (*axis).to_owned()).collect();
        self
    }

    /// Uses the matching params in their shards on this axis, even if [`Pins::stored_on`] names it.
    #[must_use]
    #[doc(hidden)]
    pub fn used_sharded(mut self, pattern: &str, axis: &str) -> Self {
        self.used_sharded.push(pattern, axis.to_owned());
        self
    }

    /// Distributes the work over these axes: an op never runs whole if it can run sharded, even if
    /// that exchanges more bytes.
    #[must_use]
    #[doc(hidden)]
    pub fn dealt_on(mut self, axes: &[&str]) -> Self {
        self.dealt = axes.iter().map(|axis| (*axis).to_owned()).collect();
        self
    }

    pub(super) fn dealt_axes(&self, mesh: &Mesh) -> Vec<AxisId> {
        let named = self.dealt.iter().flat_map(|axis| mesh.named(axis));
        named.filter(|axis| mesh.size(*axis) > 1).collect()
    }

    /// Returns the axes on which a param is sharded for storage only.
    pub(super) fn storage_axes(&self, name: &str, mesh: &Mesh) -> Vec<AxisId> {
        let used = self.used_sharded.last(name).map_or_else(Vec::new, |(_, axis)| mesh.named(axis));
        let named = self.storage.iter().flat_map(|axis| mesh.named(axis));
        named.filter(|axis| mesh.size(*axis) > 1 && !used.contains(axis)).collect()
    }

    pub(super) fn weight_axes(&self, mesh: &Mesh) -> Vec<AxisId> {
        let named = mesh.named(self.axis.as_deref().unwrap_or(TENSOR));
        if named.is_empty() && self.axis.is_none() { mesh.ids() } else { named }
    }

    pub(super) fn across_axes(&self, mesh: &Mesh) -> Vec<AxisId> {
        let named = self.across.iter().flat_map(|axis| mesh.named(axis));
        named.filter(|axis| mesh.size(*axis) > 1).collect()
    }

    /// Returns the pinned cut of a weight: `Some(None)` is replicated.
    pub(super) fn cut(&self, name: &str) -> Option<Option<usize>> {
        self.cuts.last(name).map(|(_, axis)| *axis)
    }

    pub(super) fn gathers(&self, name: &str) -> bool {
        self.gathered.last(name).is_some()
    }

    /// Returns the pinned layout of a value.
    pub(super) fn value_pin(
        &self,
        name: &str,
        rank: usize,
        mesh: &Mesh,
    ) -> Result<Option<Layout>, Diagnostic> {
        let Some((pattern, ValuePin { dims, partial })) = self.values.last(name) else {
            return Ok(None);
        };
        let mut layout = Layout::replicated(rank);
        for (dim, axis) in dims {
            let axes = mesh.named(axis);
            if axes.is_empty() || *dim >= rank {
                return Err(no_layout(pattern, rank, mesh, *dim, name, axis));
            }
            for axis in axes.into_iter().filter(|axis| mesh.size(*axis) > 1) {
                layout = layout.sharded(*dim, axis);
            }
        }
        for axis in partial.iter().flat_map(|axis| mesh.named(axis)).filter(|axis| mesh.size(*axis) > 1) {
            layout = layout.with_partial(axis, Reduce::Sum);
        }
        match layout.problem(mesh, rank) {
            Some(problem) => Err(Diagnostic::new(format!("pin `{pattern}`"), problem)),
            None => Ok(Some(layout)),
        }
    }

    /// Returns the dim along which a result is pinned, and the axes of more than one card that
    /// shard it.
    pub(super) fn along(
        &self,
        name: &str,
        rank: usize,
        mesh: &Mesh,
    ) -> Result<Option<(usize, Vec<AxisId>)>, Diagnostic> {
        let Some((pattern, (dim, axis))) = self.along.last(name) else {
            return Ok(None);
        };
        let axes = mesh.named(axis);
        if axes.is_empty() || *dim >= rank {
            return Err(no_layout(pattern, rank, mesh, *dim, name, axis));
        }
        Ok(Some((*dim, axes.into_iter().filter(|axis| mesh.size(*axis) > 1).collect())))
    }

    /// Returns the patterns without `*` that match no name: probably typing errors.
    pub(super) fn unused<'a>(&'a self, names: &FxHashSet<&str>) -> impl Iterator<Item = &'a str> {
        let patterns = self.cuts.names().chain(self.gathered.names()).chain(self.values.names());
        let patterns = patterns.chain(self.along.names()).chain(self.used_sharded.names());
        patterns.filter(|pattern| !names.contains(pattern))
    }
}

/// Ends of the names of products that are as wide as the number of experts, or one number wide.
const ROUTED: [&str; 2] = [".mlp.router.logits", ".mlp.shared.gate"];

fn no_layout(pattern: &str, rank: usize, mesh: &Mesh, dim: usize, name: &str, axis: &str) -> Diagnostic {
    Diagnostic::new(format!("pin `{pattern}`"), "no such layout")
        .expected(format!("one of {rank} dims on an axis of {mesh}"))
        .found(format!("dim {dim} of `{name}` on `{axis}`"))
}

fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    if !pattern.contains('*') {
        return rest.is_empty();
    }
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("*.weight", "x.weight", true),
            ("*.weight", "x.weights", false),
            ("model.*.mlp.*.weight", "model.layers.3.mlp.up_proj.weight", true),
            ("model.*.mlp.*.weight", "model.layers.3.attn.up_proj.weight", false),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
