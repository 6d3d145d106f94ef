//! Parsing of `--mesh`, such as `pp=2,dp=*,tp=4`.
//!
//! One axis may be `*`, which takes the remaining cards. The planner handles `--mesh auto`
//! ([`super::planned`]).

use ascend_tp::base::Diagnostic;
use ascend_tp::placement::Grid;

use crate::numbers::counted;

const FREE: &str = "*";

#[derive(Clone, Copy)]
pub(super) struct MeshAxes {
    pub(super) stages: usize,
    /// Total size of the data-parallel axis.
    pub(super) data: usize,
    /// Number of data-parallel cards that share the experts.
    pub(super) expert: usize,
    /// Number of replica groups in the data-parallel axis.
    pub(super) replicas: usize,
    pub(super) context: usize,
    /// Columns times rows of the tensor-parallel grid.
    pub(super) tensor: usize,
    pub(super) grid: Grid,
}

/// A mesh for serving.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServingMesh {
    /// Number of sessions, which have separate cards.
    pub(crate) replicas: usize,
    /// Pipeline stages of a session.
    pub(crate) stages: usize,
    /// The grid of each stage.
    pub(crate) grid: Grid,
}

impl ServingMesh {
    /// All cards along tp.
    pub(crate) const LINE: Self = Self { replicas: 1, stages: 1, grid: Grid::LINE };
}

/// Returns the mesh of a server. Its axis dp counts replicas.
pub(crate) fn replicated_mesh(text: Option<&str>, cards: usize) -> Result<ServingMesh, Diagnostic> {
    let MeshAxes { stages, data, expert, replicas, context, grid, .. } = mesh(text, cards)?;
    // dp_rep and dp_shard are axes of training.
    if context == 1 && replicas == 1 && expert == 1 && !text.is_some_and(|text| text.contains("dp_")) {
        return Ok(ServingMesh { replicas: data, stages, grid });
    }
    let problem = Diagnostic::new("--mesh", "serving has no axes cp and ep, and shards no weights along dp")
        .expected("axes dp, pp and tp, such as dp=2,tp=4, or tp_row, tp_col and tp_depth");
    Err(problem.found(text.unwrap_or_default()))
}

/// Returns the stages of the mesh of one session, and the grid of each stage.
pub(crate) fn serving_mesh(text: Option<&str>, cards: usize) -> Result<(usize, Grid), Diagnostic> {
    let MeshAxes { stages, data, context, grid, .. } = mesh(text, cards)?;
    if data * context == 1 {
        return Ok((stages, grid));
    }
    let problem = Diagnostic::new("--mesh", "serving has no axes dp, cp and ep")
        .expected("axes pp and tp, such as pp=2,tp=4, or tp_row, tp_col and tp_depth");
    Err(problem.found(text.unwrap_or_default()))
}

/// Returns the product of a mesh without a free axis. Returns None for an invalid mesh; [`mesh`]
/// reports the reason.
pub(crate) fn cards_of_mesh(text: Option<&str>) -> Option<usize> {
    let sizes = text?.split(',').map(|part| part.split_once('=')?.1.parse().ok());
    sizes
        .collect::<Option<Vec<usize>>>()?
        .into_iter()
        .try_fold(1, usize::checked_mul)
        .filter(|cards| *cards > 0)
}

/// Parses the mesh of a training run. One axis may be `*`, which takes the remaining cards.
pub(super) fn mesh(text: Option<&str>, cards: usize) -> Result<MeshAxes, Diagnostic> {
    let grid = Grid::LINE;
    let Some(text) = text else {
        return Ok(MeshAxes { stages: 1, data: 1, expert: 1, replicas: 1, context: 1, tensor: cards, grid });
    };
    let expected = "axes pp, dp, or dp_rep and dp_shard, ep, cp and tp, or tp_row, tp_col and tp_depth, such as dp=2,tp=4";
    let problem = |what: &str| Diagnostic::new("--mesh", what).expected(expected).found(text);
    let (mut stages, mut expert, mut context) = (None, None, None);
    let (mut data, mut replicas, mut shards, mut tensor) = (None, None, None, None);
    let (mut rows, mut columns, mut depth) = (None, None, None);
    let mut sizes = Vec::new();
    for part in text.split(',') {
        let (axis, size) = part.split_once('=').ok_or_else(|| problem("an axis without a size"))?;
        let number =
            || size.parse().ok().filter(|size| *size > 0).ok_or_else(|| problem("not a number of cards"));
        sizes.push((axis, if size == FREE { None } else { Some(number()?) }));
    }
    let others = sizes.iter().filter_map(|(_, size)| *size).try_fold(1_usize, usize::checked_mul);
    let others = others.ok_or_else(|| problem("too many cards"))?;
    if sizes.iter().filter(|(_, size)| size.is_none()).count() > 1 {
        return Err(problem("more than one axis is *"));
    }
    let leave = || {
        let rest = cards / others;
        (rest * others == cards && rest > 0).then_some(rest).ok_or_else(|| {
            let problem = Diagnostic::new("--mesh", "does not match the cards").found(counted(cards, "card"));
            problem.expected(format!("a multiple of {others}, the product of the other axes"))
        })
    };
    for (axis, size) in sizes {
        let size = size.map_or_else(leave, Ok)?;
        let slot = match axis {
            "pp" => &mut stages,
            "dp" => &mut data,
            "dp_rep" => &mut replicas,
            "dp_shard" => &mut shards,
            "ep" => &mut expert,
            "cp" => &mut context,
            "tp" => &mut tensor,
            "tp_row" => &mut rows,
            "tp_col" => &mut columns,
            "tp_depth" => &mut depth,
            _ => return Err(problem("an unknown axis")),
        };
        if slot.replace(size).is_some() {
            return Err(problem("an axis is given twice"));
        }
    }
    if data.is_some() && (replicas.is_some() || shards.is_some()) {
        return Err(problem("dp is the product of dp_rep and dp_shard"));
    }
    if tensor.is_some() && (rows.is_some() || columns.is_some()) {
        return Err(problem("tp is the product of tp_row and tp_col"));
    }
    let grid = Grid { rows: rows.unwrap_or(1), depth: depth.unwrap_or(1) };
    let tensor = tensor.unwrap_or(grid.rows * columns.unwrap_or(1));
    let replicas = replicas.unwrap_or(1);
    let data = data.unwrap_or(replicas * shards.unwrap_or(1));
    let (stages, expert, context) = (stages.unwrap_or(1), expert.unwrap_or(1), context.unwrap_or(1));
    let rest = |size: usize| (size > 1).then_some(size);
    let factors = [rest(stages), Some(data), rest(expert), rest(context), rest(grid.depth), Some(tensor)];
    let factors = factors.into_iter().flatten().map(|size| size.to_string()).collect::<Vec<_>>().join(" × ");
    // Cards along ep have sequences of their own.
    let data = data * expert;
    match stages * data * context * grid.depth * tensor {
        product if product == cards => Ok(MeshAxes { stages, data, expert, replicas, context, tensor, grid }),
        product => Err(Diagnostic::new("--mesh", "does not match the cards")
            .expected(format!("a product of {cards}, the value of --cards"))
            .found(format!("{factors} = {product}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_that_share_experts_have_sequences_of_their_own() {
        let axes = mesh(Some("dp=2,ep=4,tp=3"), 24).unwrap();
        assert_eq!((axes.data, axes.expert, axes.tensor), (8, 4, 3));
        let free = mesh(Some("pp=2,dp=*,ep=4"), 24).unwrap();
        assert_eq!((free.stages, free.data, free.expert), (2, 12, 4));
        let error = mesh(Some("dp=2,ep=4"), 4).map(|axes| axes.data).unwrap_err().to_string();
        assert!(error.contains("found 2 × 4 × 1 = 8"), "{error}");
        let error = replicated_mesh(Some("ep=2,tp=2"), 4).unwrap_err().to_string();
        assert!(error.contains("serving has no axes cp and ep"), "{error}");
    }

    #[test]
    fn a_mesh_that_leaves_nothing_open_says_how_many_cards_there_are() {
        let cards = |text| cards_of_mesh(Some(text));
        assert_eq!((cards("pp=2,tp=4"), cards("tp_row=2,tp_col=3,tp_depth=2")), (Some(8), Some(12)));
        for open in ["dp=*,tp=2", "tp", "tp=0", "tp=two", "", "tp=4294967296,dp=4294967296"] {
            assert_eq!(cards(open), None, "{open}");
        }
        assert_eq!(cards_of_mesh(None), None);
    }
}
