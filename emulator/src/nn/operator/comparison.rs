//! Rows of the elementwise comparisons, logic, selections, copies, conversions and fills.

use super::arithmetic::with_scalar_type;
use super::call::{OperatorCall, Scalar};
use super::row::{Operator, attribute, in_place, input, output, scalar};
use super::sets::{ANY, ARITHMETIC, BOOL, CONDITION, MASKABLE};
use super::{Plan, Refusal};
use crate::nn::elementwise::{self, each, map1, map2, zip};
use crate::nn::lane::{Arithmetic, BLOCK, Lane, with_lane};

/// A row that compares two tensors.
macro_rules! compare_tensors {
    ($name:literal, $source:literal, $relation:expr) => {
        Operator {
            name: $name,
            parameters: &[input("self", ARITHMETIC, 0, 8), input("other", ARITHMETIC, 0, 8), output("out", BOOL, 0, 8)],
            limits: "self and other broadcast to out",
            source: $source,
            plan: |call| compare_tensors(call, $relation),
        }
    };
}

/// A row that compares a tensor with a scalar.
macro_rules! compare_scalar {
    ($name:literal, $source:literal, $relation:expr) => {
        Operator {
            name: $name,
            parameters: &[input("self", ARITHMETIC, 0, 8), scalar("other"), output("out", BOOL, 0, 8)],
            limits: "out has the shape of self",
            source: $source,
            plan: |call| compare_scalar(call, $relation),
        }
    };
}

pub(super) const OPERATORS: &[Operator] = &[
    compare_tensors!(
        "aclnnEqTensor",
        "ops-math math/equal/docs/aclnnEqTensor&aclnnInplaceEqTensor.md",
        Relation::Equal
    ),
    compare_tensors!("aclnnNeTensor", "CANN 8.1 aclnn API reference, aclnnNeTensor", Relation::NotEqual),
    compare_tensors!("aclnnLtTensor", "CANN 8.1 aclnn API reference, aclnnLtTensor", Relation::Less),
    compare_scalar!("aclnnEqScalar", "ops-math math/equal/docs/aclnnEqScalar&aclnnInplaceEqScalar.md", Relation::Equal),
    compare_scalar!("aclnnNeScalar", "CANN 8.1 aclnn API reference, aclnnNeScalar", Relation::NotEqual),
    compare_scalar!("aclnnGtScalar", "CANN 8.1 aclnn API reference, aclnnGtScalar", Relation::Greater),
    compare_scalar!("aclnnLtScalar", "CANN 8.1 aclnn API reference, aclnnLtScalar", Relation::Less),
    compare_scalar!("aclnnGeScalar", "CANN 8.1 aclnn API reference, aclnnGeScalar", Relation::GreaterEqual),
    compare_scalar!("aclnnLeScalar", "CANN 8.1 aclnn API reference, aclnnLeScalar", Relation::LessEqual),
    Operator {
        name: "aclnnLogicalNot",
        parameters: &[input("self", ARITHMETIC, 0, 8), output("out", BOOL, 0, 8)],
        limits: "out has the shape of self",
        source: "CANN 8.1 aclnn API reference, aclnnLogicalNot",
        plan: logical_not,
    },
    Operator {
        name: "aclnnIsFinite",
        parameters: &[input("self", ARITHMETIC, 0, 8), output("out", BOOL, 0, 8)],
        limits: "out has the shape of self",
        source: "ops-math math/is_finite/docs/aclnnIsFinite.md",
        plan: is_finite,
    },
    Operator {
        name: "aclnnLogicalAnd",
        parameters: &[input("self", ARITHMETIC, 0, 8), input("other", ARITHMETIC, 0, 8), output("out", BOOL, 0, 8)],
        limits: "self and other broadcast to out",
        source: "CANN 8.1 aclnn API reference, aclnnLogicalAnd",
        plan: |call| compare_tensors(call, Relation::And),
    },
    Operator {
        name: "aclnnLogicalOr",
        parameters: &[input("self", ARITHMETIC, 0, 8), input("other", ARITHMETIC, 0, 8), output("out", BOOL, 0, 8)],
        limits: "self and other broadcast to out",
        source: "CANN 8.1 aclnn API reference, aclnnLogicalOr",
        plan: |call| compare_tensors(call, Relation::Or),
    },
    Operator {
        name: "aclnnSWhere",
        parameters: &[
            input("condition", CONDITION, 0, 8),
            input("self", ARITHMETIC, 0, 8),
            input("other", ARITHMETIC, 0, 8),
            output("out", ARITHMETIC, 0, 8),
        ],
        limits: "condition, self and other broadcast to out; out has the common type of self and other",
        source: "CANN 8.1 aclnn API reference, aclnnSWhere",
        plan: select,
    },
    Operator {
        name: "aclnnInplaceMaskedFillScalar",
        parameters: &[in_place("selfRef", MASKABLE, 0, 8), input("mask", BOOL, 0, 8), scalar("value")],
        limits: "mask broadcasts to selfRef; value storable in the type of selfRef",
        source: "ops-math conversion/masked_fill/docs/aclnnInplaceMaskedFillScalar.md",
        plan: masked_fill,
    },
    Operator {
        name: "aclnnCast",
        parameters: &[input("self", ANY, 0, 8), attribute("dtype"), output("out", ANY, 0, 8)],
        limits: "out has the shape of self and the type dtype; NaN becomes 0 in integers",
        source: "ops-math math/cast/docs/aclnnCast.md",
        plan: cast,
    },
    Operator {
        name: "aclnnInplaceCopy",
        parameters: &[in_place("selfRef", ANY, 0, 8), input("src", ANY, 0, 8)],
        limits: "src broadcasts to selfRef and is converted to its type",
        source: "ops-math conversion/view_copy/docs/aclnnInplaceCopy.md",
        plan: copy,
    },
    Operator {
        name: "aclnnInplaceZero",
        parameters: &[in_place("selfRef", ANY, 0, 8)],
        limits: "",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceZero",
        plan: |call| fill(call, Scalar::Int(0, crate::nn::dtype::DType::I64)),
    },
    Operator {
        name: "aclnnInplaceOne",
        parameters: &[in_place("selfRef", ANY, 0, 8)],
        limits: "",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceOne",
        plan: |call| fill(call, Scalar::Int(1, crate::nn::dtype::DType::I64)),
    },
    Operator {
        name: "aclnnInplaceFillScalar",
        parameters: &[in_place("selfRef", ARITHMETIC, 0, 8), scalar("value")],
        limits: "value storable in the type of selfRef",
        source: "ops-math conversion/fill/docs/aclnnInplaceFillScalar.md",
        plan: fill_scalar,
    },
];

/// A relation of two values that gives a truth value.
#[derive(Clone, Copy, Debug)]
enum Relation {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    And,
    Or,
}

impl Relation {
    fn apply<L: Lane>(self, a: &mut [L], b: &[L]) {
        let zero = L::default();
        match self {
            Self::Equal => zip(a, b, |x, y| L::from_bool(x == y)),
            Self::NotEqual => zip(a, b, |x, y| L::from_bool(x != y)),
            Self::Less => zip(a, b, |x, y| L::from_bool(x < y)),
            Self::LessEqual => zip(a, b, |x, y| L::from_bool(x <= y)),
            Self::Greater => zip(a, b, |x, y| L::from_bool(x > y)),
            Self::GreaterEqual => zip(a, b, |x, y| L::from_bool(x >= y)),
            Self::And => zip(a, b, |x, y| L::from_bool(x != zero && y != zero)),
            Self::Or => zip(a, b, |x, y| L::from_bool(x != zero || y != zero)),
        }
    }
}

fn compare_tensors(call: &OperatorCall<'_>, relation: Relation) -> Result<Plan, Refusal> {
    let common = call.promote("self", "other")?;
    call.expect_shape("out", &call.broadcast("self", "other")?, "to which self and other broadcast")?;
    let (a, b, out) = (call.tensor("self")?.slot, call.tensor("other")?.slot, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        with_lane!(common, L => map2::<L>(tiles, views.of(a), views.of(b), views.of(out), |x, y| relation.apply(x, y)));
        Ok(())
    })
}

fn compare_scalar(call: &OperatorCall<'_>, relation: Relation) -> Result<Plan, Refusal> {
    let (tensor, other) = (call.tensor("self")?, call.scalar("other")?);
    let common = with_scalar_type(tensor.dtype, other.dtype());
    call.expect_shape("out", &tensor.dims, "of self")?;
    let (a, out) = (tensor.slot, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        // The scalar takes the type of the tensor first: 0.1 compares equal to the f16 nearest to 0.1.
        with_lane!(common, L => {
            let operand = [other.lane::<L>().rounded(common); BLOCK];
            map1::<L>(tiles, views.of(a), views.of(out), |x| {
                let len = x.len();
                relation.apply(x, &operand[..len]);
            });
        });
        Ok(())
    })
}

fn logical_not(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    call.expect_shape("out", &x.dims, "of self")?;
    let (slot, dtype, out) = (x.slot, x.dtype, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        with_lane!(dtype, L => map1::<L>(tiles, views.of(slot), views.of(out), |block| {
            each(block, |value| L::from_bool(value == L::default()));
        }));
        Ok(())
    })
}

fn is_finite(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    call.expect_shape("out", &x.dims, "of self")?;
    let (slot, dtype, out) = (x.slot, x.dtype, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        // What is not finite is no number when it is taken from itself.
        with_lane!(dtype, L => map1::<L>(tiles, views.of(slot), views.of(out), |block| {
            each(block, |value| L::from_bool(value.minus(value) == L::default()));
        }));
        Ok(())
    })
}

fn select(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let common = call.promote("self", "other")?;
    let branches = call.broadcast("self", "other")?;
    let condition = call.tensor("condition")?;
    let shape = super::call::broadcast(&branches, &condition.dims).ok_or_else(|| {
        call.refuse("condition", format!("{:?} does not broadcast with {branches:?} of self and other", condition.dims))
    })?;
    call.expect_shape("out", &shape, "to which condition, self and other broadcast")?;
    call.expect_dtype("out", common, "the common type of self and other")?;
    let (condition, a, b) = (condition.slot, call.tensor("self")?.slot, call.tensor("other")?.slot);
    let out = call.tensor("out")?.slot;
    Plan::new(move |views, tiles| {
        elementwise::select(tiles, views.of(condition), views.of(a), views.of(b), views.of(out), common);
        Ok(())
    })
}

/// Refuses a value that the type of a tensor cannot hold.
fn expect_storable(call: &OperatorCall<'_>, value: Scalar, tensor: &str) -> Result<(), Refusal> {
    let dtype = call.tensor(tensor)?.dtype;
    if value.dtype().can_cast(dtype) {
        return Ok(());
    }
    Err(call.refuse("value", format!("a value of type {} cannot be stored as {dtype} of {tensor}", value.dtype())))
}

fn masked_fill(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let (target, mask, value) = (call.tensor("selfRef")?, call.tensor("mask")?, call.scalar("value")?);
    let shape = call.broadcast("selfRef", "mask")?;
    call.expect_shape("selfRef", &shape, "to which mask must broadcast")?;
    expect_storable(call, value, "selfRef")?;
    let (slot, dtype, mask) = (target.slot, target.dtype, mask.slot);
    Plan::new(move |views, tiles| {
        with_lane!(dtype, L => elementwise::masked_fill(tiles, views.of(slot), views.of(mask), value.lane::<L>()));
        Ok(())
    })
}

fn cast(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    call.expect_shape("out", &x.dims, "of self")?;
    call.expect_dtype("out", call.data_type("dtype")?, "the attribute dtype")?;
    let (slot, out) = (x.slot, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        elementwise::copy(tiles, views.of(slot), views.of(out));
        Ok(())
    })
}

fn copy(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let (target, src) = (call.tensor("selfRef")?, call.tensor("src")?);
    if super::call::broadcast(&target.dims, &src.dims).as_deref() != Some(&target.dims) {
        return Err(call.refuse("src", format!("{:?} does not broadcast to {:?} of selfRef", src.dims, target.dims)));
    }
    let (slot, src) = (target.slot, src.slot);
    Plan::new(move |views, tiles| {
        elementwise::copy(tiles, views.of(src), views.of(slot));
        Ok(())
    })
}

fn fill_scalar(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let value = call.scalar("value")?;
    expect_storable(call, value, "selfRef")?;
    fill(call, value)
}

fn fill(call: &OperatorCall<'_>, value: Scalar) -> Result<Plan, Refusal> {
    let target = call.tensor("selfRef")?;
    let (slot, dtype) = (target.slot, target.dtype);
    Plan::new(move |views, tiles| {
        with_lane!(dtype, L => elementwise::fill(tiles, views.of(slot), value.lane::<L>()));
        Ok(())
    })
}
