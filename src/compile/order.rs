//! Checks whether a layout can sum in the required order, before anything runs.
//!
//! Input: a sum order, and a lowered program or mesh axes. Output: all reasons why the order is
//! impossible. Only the ops' descriptions count, so the check is independent of the placement pass.

use std::ops::Range;

use crate::base::{AxisId, Diagnostic, Diagnostics, Reduce};
use crate::placement::{Grid, Placed};
use crate::program::op::rule_of;
use crate::program::text::op_text;
use crate::program::tree::{BLOCK_LEVELS, Halved, SumOrder, node_problem};
use crate::program::{Factor, Kind, Op, Program, ValueId};

/// Maximum number of cards over which a sum can be sharded.
const BLOCKS: usize = 1 << BLOCK_LEVELS;

/// Reports the axes over which tree sums are impossible.
pub(crate) fn check_axes(axes: &[(&str, usize)], grid: Grid, problems: &mut Diagnostics) {
    for (what, cards) in axes {
        if !BLOCKS.is_multiple_of(*cards) {
            let text = format!("{what} does not divide the {BLOCKS} blocks of each sum");
            let problem = Diagnostic::new("--exact", text)
                .expected("1, 2, 4, 8 or 16")
                .found(format!("{what}={cards}"));
            problems.push(problem.help("use another --mesh, or remove --exact"));
        }
    }
    if grid != Grid::LINE {
        let problem = Diagnostic::new("--exact", "sums over two axes are added in the order of the cards");
        let Grid { rows, depth } = grid;
        let problem = problem.expected("one axis tp").found(format!("tp_row={rows}, tp_depth={depth}"));
        problems.push(problem.help("use another --mesh, or remove --exact"));
    }
}

/// Checks that no sum of a program with tree order depends on the layout.
///
/// # Errors
/// Returns all sums with a layout-dependent order.
pub(crate) fn check_order(order: SumOrder, placed: &Placed) -> Result<(), Diagnostics> {
    if order == SumOrder::AsTheyCome {
        return Ok(());
    }
    let mut problems = Diagnostics::new();
    let mut said: Vec<String> = Vec::new();
    let program = &placed.program;
    for (_, op) in program.ops.iter() {
        let message = match &op.kind {
            Kind::AllReduce { axes, reduce: Reduce::Tree }
            | Kind::ReduceScatter { axes, reduce: Reduce::Tree, .. } => {
                let joined_first = |operand: &ValueId| {
                    let inner = placed.layouts[*operand].partial.iter().rev().take(axes.len());
                    inner.map(|(axis, _)| *axis).all(|axis| axes.contains(&axis))
                };
                (!op.operands.iter().all(joined_first))
                    .then(|| "combines cards before the cards between them".to_owned())
            }
            kind if kind.is_movement() => None,
            _ => of_op(placed, op),
        };
        // Reports each message once, because the layers are alike.
        if let Some(message) = message.filter(|message| !said.contains(message)) {
            said.push(message.clone());
            let problem = Diagnostic::new(op_text(program, op), message);
            problems.push(problem.help("use another --mesh, or remove --exact"));
        }
    }
    problems.into_result(())
}

/// Returns whether each element of the result is nonzero on at most one card. A scale or a cast of
/// such a value is one too.
fn leaves_one_part(program: &Program, op: &Op) -> bool {
    let source = || program.ops.values().iter().find(|source| source.results.contains(&op.operands[0]));
    op.kind.row().leaves_one_part
        || op.kind.row().keeps_one_part && source().is_some_and(|source| leaves_one_part(program, source))
}

fn of_op(placed: &Placed, op: &Op) -> Option<String> {
    let (program, mesh) = (&placed.program, &placed.mesh);
    let shapes = program.operand_shapes(op);
    let rule = rule_of(op, &shapes).ok()?;
    let is_sum = |id: &ValueId| placed.layouts[*id].partial.iter().any(|(_, by)| *by == Reduce::Sum);
    if op.results.iter().any(is_sum) && !leaves_one_part(program, op) {
        return Some("sums shards without a fixed order".to_owned());
    }
    let dim = |(letter, halved): (u8, Halved)| -> Option<(Halved, Vec<Range<usize>>, usize)> {
        let operand =
            (0..op.operands.len()).find(|at| rule.operands[*at].contains(&Factor::Letter(letter)))?;
        let (dim, layout) = (rule.operand_dim(operand, letter)?, &placed.layouts[op.operands[operand]]);
        let axes: &[AxisId] = &layout.dims[dim];
        let mut ranges: Vec<Range<usize>> =
            (0..mesh.cards()).map(|rank| layout.ranges(mesh, shapes[operand], rank)[dim].clone()).collect();
        ranges.dedup();
        Some((halved, ranges, mesh.joint_size(axes)))
    };
    let dims: Vec<_> = (op.kind.row().tree)(&op.kind, &shapes).into_iter().filter_map(dim).collect();
    node_problem(&dims)
}
