//! The rows that only training has: gradients, the loss and optimizers.

use smallvec::smallvec;

use crate::base::{DType, Shape};
use crate::program::grad;
use crate::program::interpret::training as host;
use crate::program::npu::training as npu;
use crate::program::rule::{Reduce, Rule, any_rank};

use super::{BASE, DTypes, Host, Kind, Linear, Row, all_equal, all_float, elementwise, first, sum};

/// The rule of an op whose first operand has a last dim `z` over which it works.
fn over_last(shape: &Shape, text: impl Fn(&str) -> String) -> Result<Rule, String> {
    match shape.rank().checked_sub(1) {
        Some(lead) => sum(&text(&any_rank(lead))),
        None => Err("a scalar has no last dim".to_owned()),
    }
}

/// As [`elementwise`], with `results` results of the first operand's shape.
fn elementwise_results(kind: &Kind, shapes: &[&Shape], results: usize) -> Result<Rule, String> {
    let mut rule = elementwise(kind, shapes)?;
    rule.results = smallvec![rule.results[0].clone(); results];
    Ok(rule)
}

/// The element type of all operands, `count` times.
fn equal_floats(kind: &Kind, dtypes: &[DType], count: usize) -> Result<DTypes, String> {
    Ok(smallvec![all_float(kind, dtypes)?[0]; count])
}

/// Operand `index` is i64, the others are of one float type.
fn with_label(kind: &Kind, dtypes: &[DType]) -> Result<DTypes, String> {
    if dtypes[1] != DType::I64 {
        return Err(format!("the label is {}, expected i64", dtypes[1]));
    }
    all_float(kind, &[&dtypes[..1], &dtypes[2..]].concat())
}

pub(super) static EXPAND: Row = Row {
    name: "expand",
    arity: 2,
    shape_only: &[1],
    rule: |kind, shapes| {
        let Kind::Expand { dims } = kind else { return Err("not an expand".to_owned()) };
        let whole = any_rank(shapes[1].rank());
        let kept: String = whole.chars().enumerate().filter(|(dim, _)| !dims.contains(dim)).map(|(_, c)| c).collect();
        sum(&format!("{kept},{whole}->{whole}"))
    },
    linear: Linear::InEach(&[0]),
    dtype: first,
    host: Host::One(host::expand),
    npu: npu::expand,
    grad: Some(grad::expand),
    ..BASE
};
pub(super) static REDUCE_TO: Row = Row {
    name: "reduce_to",
    arity: 2,
    shape_only: &[1],
    rule: |kind, shapes| {
        let mut rule = elementwise(kind, shapes)?;
        rule.results = smallvec![rule.operands[1].clone()];
        Ok(rule)
    },
    linear: Linear::InEach(&[0]),
    host: Host::One(host::reduce_to),
    npu: npu::reduce_to,
    ..BASE
};
pub(super) static SILU_GRAD: Row = Row {
    name: "silu_grad",
    arity: 2,
    linear: Linear::InEach(&[1]),
    host: Host::One(host::silu_grad),
    npu: npu::silu_grad,
    ..BASE
};
pub(super) static SWIGLU_GRAD: Row = Row {
    name: "swiglu_grad",
    arity: 3,
    rule: |kind, shapes| elementwise_results(kind, shapes, 2),
    linear: Linear::InEach(&[2]),
    dtype: |kind, dtypes| equal_floats(kind, dtypes, 2),
    host: Host::Several(host::swiglu_grad),
    npu: npu::swiglu_grad,
    ..BASE
};
pub(super) static RMS_NORM_GRAD: Row = Row {
    name: "rms_norm_grad",
    arity: 4,
    rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}Z,{lead}Z,{lead},Z->{lead}Z,Z")),
    linear: Linear::InEach(&[0]),
    dtype: |kind, dtypes| match dtypes {
        [dy, x, DType::F32, gamma] => all_float(kind, &[*dy, *x, *gamma]).map(|found| smallvec![found[0], DType::F32]),
        _ => Err("its third operand, the second result of rms_norm, is f32".to_owned()),
    },
    host: Host::Several(host::rms_norm_grad),
    npu: npu::rms_norm_grad,
    ..BASE
};
pub(super) static ATTENTION_GRAD: Row = Row {
    name: "attention_grad",
    arity: 8,
    rule: |_, _| sum("bskgD,bTkD,bTkD,bsT,bskgD,bskgD,bkgs,bkgs->bskgD,bTkD,bTkD"),
    linear: Linear::InEach(&[4]),
    dtype: |kind, dtypes| {
        if dtypes[3] != DType::Bool {
            return Err(format!("the mask is {}, expected bool", dtypes[3]));
        }
        if dtypes[6..] != [DType::F32, DType::F32] {
            return Err("its last operands, the further results of attention, are f32".to_owned());
        }
        equal_floats(kind, &[&dtypes[..3], &dtypes[4..6]].concat(), 3)
    },
    host: Host::Several(host::attention_grad),
    npu: npu::attention_grad,
    ..BASE
};
pub(super) static EMBED_GRAD: Row = Row {
    name: "embed_grad",
    arity: 3,
    shape_only: &[2],
    rule: |_, shapes| {
        let ids = any_rank(shapes[0].rank());
        sum(&format!("{ids},{ids}z,yz->yz"))
    },
    linear: Linear::InEach(&[1]),
    dtype: |kind, dtypes| match dtypes {
        [DType::I64, floats @ ..] => all_float(kind, floats),
        _ => Err(format!("ids are {}, expected i64", dtypes[0])),
    },
    host: Host::One(host::embed_grad),
    npu: npu::embed_grad,
    ..BASE
};
pub(super) static TAKE_GRAD: Row = Row {
    name: "take_grad",
    arity: 3,
    shape_only: &[2],
    rule: |_, _| sum("b,bh,bSh->bSh"),
    linear: Linear::InEach(&[1]),
    dtype: |kind, dtypes| match dtypes {
        [DType::I64, floats @ ..] => all_float(kind, floats),
        _ => Err(format!("the index is {}, expected i64", dtypes[0])),
    },
    host: Host::One(host::take_grad),
    npu: npu::take_grad,
    ..BASE
};
pub(super) static SUM_EXP: Row = Row {
    name: "sum_exp",
    arity: 2,
    rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}z,{lead}->{lead}")),
    host: Host::One(host::sum_exp),
    npu: npu::sum_exp,
    ..BASE
};
pub(super) static LOG_PROBABILITY: Row = Row {
    name: "log_probability",
    arity: 4,
    rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}z,{lead},{lead},{lead}->{lead}")),
    dtype: with_label,
    host: Host::One(host::log_probability),
    npu: npu::log_probability,
    grad: Some(grad::log_probability),
    ..BASE
};
pub(super) static LOG_PROBABILITY_GRAD: Row = Row {
    name: "log_probability_grad",
    arity: 5,
    rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}z,{lead},{lead},{lead},{lead}->{lead}z")),
    linear: Linear::InEach(&[4]),
    dtype: with_label,
    host: Host::One(host::log_probability_grad),
    npu: npu::log_probability_grad,
    ..BASE
};
pub(super) static TOTAL: Row = Row {
    name: "total",
    arity: 2,
    linear: Linear::Parts,
    dtype: all_equal,
    host: Host::One(crate::program::interpret::add),
    npu: crate::program::npu::add,
    grad: Some(grad::total),
    ..BASE
};
pub(super) static CLIP_FACTOR: Row = Row {
    name: "clip_factor",
    rule: |kind, shapes| elementwise_results(kind, shapes, 2),
    dtype: |kind, dtypes| equal_floats(kind, dtypes, 2),
    host: Host::Several(host::clip_factor),
    npu: npu::clip_factor,
    ..BASE
};
pub(super) static ADAMW: Row = Row {
    name: "adamw",
    arity: 7,
    rule: |_, shapes| {
        let dims = any_rank(shapes[0].rank());
        if let Some(number) = shapes[4..].iter().find(|shape| shape.rank() > 0) {
            return Err(format!("the factor, the rate and the step are numbers, found shape {number}"));
        }
        Rule::parse(&format!("{dims},{dims},{dims},{dims},,,->{dims},{dims},{dims}"), Reduce::Sum)
    },
    dtype: |kind, dtypes| equal_floats(kind, dtypes, 3),
    in_place: &[1, 2],
    host: Host::Several(host::adamw),
    npu: npu::adamw,
    ..BASE
};
pub(super) static ASSIGN: Row = Row {
    name: "assign",
    arity: 2,
    rule: |kind, shapes| match shapes {
        [x, y] if x == y => elementwise(kind, shapes),
        _ => Err(format!("shapes differ, {} and {}", shapes[0], shapes[1])),
    },
    linear: Linear::Jointly,
    dtype: all_equal,
    in_place: &[0],
    host: Host::One(host::assign),
    npu: npu::assign,
    ..BASE
};
