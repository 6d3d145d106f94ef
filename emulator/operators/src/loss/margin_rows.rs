//! Losses of margins, and the gradient of a divergence for its target.

use crate::lane::Lane;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{FLOATING, INDEXES};
use crate::operator::{CallPlan, Refusal};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnKlDivTargetBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 0, 8),
            input(SELF, FLOATING, 0, 8),
            input(TARGET, FLOATING, 0, 8),
            output(GRAD_TARGET, FLOATING, 0, 8),
        ],
        limits: "one element type; target and gradTarget have the shape of self, gradOutput broadcasts to it; reduction 0 (none), 1 \
                 (mean), 2 (sum), 3 (sum over the first extent); a target of at most 0 has no gradient unless logTarget",
        source: "ops-nn loss/kl_div_target_backward, aclnnKlDivTargetBackward (host code)",
        plan: divergence_grad,
    },
    Operator {
        name: "aclnnMultilabelMarginLoss",
        parameters: &[
            input(SELF, FLOATING, 1, 2),
            input(TARGET, INDEXES, 1, 2),
            output(OUT, FLOATING, 0, 1),
            output(IS_TARGET, FLOATING, 1, 2),
        ],
        limits: "self [N, C] or [C]; target has its shape, with classes up to the first -1; reduction 0 (none, out [N] or one \
             element), 1 (mean), 2 (sum); isTarget has the shape of self, and 1 for each class of target",
        source: "CANN 8.1 aclnn API reference, aclnnMultilabelMarginLoss",
        plan: multilabel,
    },
];

fn divergence_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_type_of(SELF, &[GRAD_OUTPUT, TARGET, GRAD_TARGET])?;
    for name in [TARGET, GRAD_TARGET] {
        call.expect_shape(name, &x.dims, "of self")?;
    }
    let grad_dims = &call.tensor(GRAD_OUTPUT)?.dims;
    let fits = call.broadcast(GRAD_OUTPUT, SELF)? == x.dims;
    call.expect_that(fits, GRAD_OUTPUT, &format!("dims that broadcast to {:?}", x.dims), grad_dims)?;
    let divisor = match call.int_in(REDUCTION, 0..=3)? {
        1 => x.len() as f64,
        3 => x.dims.first().copied().unwrap_or(1) as f64,
        _ => 1.0,
    };
    let is_log = call.flag(LOG_TARGET)?;
    let [grad, x, target, out] = call.slots_of([GRAD_OUTPUT, SELF, TARGET, GRAD_TARGET])?;
    CallPlan::new(move |views, _| {
        let (values, targets) = (views.read::<f64>(x), views.read::<f64>(target));
        let mut grads = vec![0f64; values.len()];
        f64::load(&views.of(grad).broadcast_to(views.of(x).dims()).collapsed(), 0, &mut grads);
        for (grad, (x, target)) in grads.iter_mut().zip(values.iter().zip(&targets)) {
            let slope = if is_log {
                target.exp() * (target - x + 1.0)
            } else if *target > 0.0 {
                target.ln() + 1.0 - x
            } else {
                0.0
            };
            *grad *= slope / divisor;
        }
        views.write(out, &grads);
        Ok(())
    })
}

fn multilabel(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_type_of(SELF, &[OUT, IS_TARGET])?;
    for name in [TARGET, IS_TARGET] {
        call.expect_shape(name, &x.dims, "of self")?;
    }
    let (reduction, classes) = (call.int_in(REDUCTION, 0..=2)?, x.dims[x.rank() - 1]);
    let whole: &[usize] = &[];
    let rows = if reduction == 0 { &x.dims[..x.rank() - 1] } else { whole };
    call.expect_shape_or_one(OUT, if rows.is_empty() { &[1] } else { rows }, "by reduction")?;
    let [x, target, out, flags] = call.slots_of([SELF, TARGET, OUT, IS_TARGET])?;
    CallPlan::new(move |views, _| {
        let (values, targets) = (views.read::<f64>(x), views.read::<i64>(target));
        let (mut losses, mut is_target) = (Vec::new(), vec![0f64; values.len()]);
        let rows = values.chunks_exact(classes.max(1)).zip(targets.chunks_exact(classes.max(1)));
        for ((row, named), flags) in rows.zip(is_target.chunks_exact_mut(classes.max(1))) {
            let named: Vec<i64> = named.iter().copied().take_while(|&class| class != -1).collect();
            let class_of = |&class: &i64| usize::try_from(class).ok().filter(|&class| class < classes);
            if let Some(wrong) = named.iter().find(|class| class_of(class).is_none()) {
                return Err(format!("target: expected -1 to {}, found {wrong}", classes as i64 - 1));
            }
            let named: Vec<usize> = named.iter().filter_map(class_of).collect();
            named.iter().for_each(|&class| flags[class] = 1.0);
            let others = row.iter().zip(flags.iter()).filter(|(_, flag)| **flag == 0.0);
            let margin = |class: usize| {
                others.clone().map(move |(other, _)| (1.0 - row[class] + other).max(0.0)).sum::<f64>()
            };
            losses.push(named.iter().map(|&class| margin(class)).sum::<f64>() / classes as f64);
        }
        views.write(flags, &is_target);
        let total = losses.iter().sum::<f64>();
        match reduction {
            0 => views.write(out, &losses),
            1 => views.write(out, &[total / losses.len() as f64]),
            _ => views.write(out, &[total]),
        }
        Ok(())
    })
}
