//! Elementwise comparisons, logic, selections, copies, conversions and fills.

use crate::dtype::AclType;
use crate::elementwise::arithmetic::with_scalar_type;
use crate::elementwise::kernels::{self as elementwise, each, map1, map2, zip};
use crate::lane::{Arithmetic, BLOCK, Lane, with_lane};
use crate::operator::argument::{CheckedTensor, Scalar};
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::{ANY, ARITHMETIC, BOOL, CONDITIONS, COPIED, MASKABLE, NUMBER};
use crate::operator::{CallPlan, Refusal};

macro_rules! compare_tensors {
    ($name:literal, $source:literal, $relation:expr) => {
        Operator {
            name: $name,
            parameters: &[
                input(SELF, ARITHMETIC, 0, 8),
                input(OTHER, ARITHMETIC, 0, 8),
                output(OUT, ARITHMETIC, 0, 8),
            ],
            limits: "self and other broadcast to out",
            source: $source,
            plan: |call| compare_tensors(call, $relation),
        }
    };
}

macro_rules! compare_scalar {
    ($name:literal, $source:literal, $relation:expr) => {
        Operator {
            name: $name,
            parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 8)],
            limits: "out has the shape of self",
            source: $source,
            plan: |call| compare_scalar(call, SELF, OTHER_SCALAR, $relation),
        }
    };
}

pub(crate) const OPERATORS: &[Operator] = &[
    compare_tensors!("aclnnGeTensor", "CANN 8.1 aclnn API reference, aclnnGeTensor", Relation::GreaterEqual),
    compare_tensors!("aclnnGtTensor", "CANN 8.1 aclnn API reference, aclnnGtTensor", Relation::Greater),
    compare_tensors!("aclnnLeTensor", "CANN 8.1 aclnn API reference, aclnnLeTensor", Relation::LessEqual),
    compare_tensors!(
        "aclnnEqTensor",
        "ops-math math/equal/docs/aclnnEqTensor&aclnnInplaceEqTensor.md",
        Relation::Equal
    ),
    compare_tensors!("aclnnNeTensor", "CANN 8.1 aclnn API reference, aclnnNeTensor", Relation::NotEqual),
    compare_tensors!("aclnnLtTensor", "CANN 8.1 aclnn API reference, aclnnLtTensor", Relation::Less),
    compare_scalar!(
        "aclnnEqScalar",
        "ops-math math/equal/docs/aclnnEqScalar&aclnnInplaceEqScalar.md",
        Relation::Equal
    ),
    compare_scalar!("aclnnNeScalar", "CANN 8.1 aclnn API reference, aclnnNeScalar", Relation::NotEqual),
    compare_scalar!("aclnnGtScalar", "CANN 8.1 aclnn API reference, aclnnGtScalar", Relation::Greater),
    compare_scalar!("aclnnLtScalar", "CANN 8.1 aclnn API reference, aclnnLtScalar", Relation::Less),
    compare_scalar!("aclnnGeScalar", "CANN 8.1 aclnn API reference, aclnnGeScalar", Relation::GreaterEqual),
    compare_scalar!("aclnnLeScalar", "CANN 8.1 aclnn API reference, aclnnLeScalar", Relation::LessEqual),
    Operator {
        name: "aclnnLogicalNot",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 8)],
        limits: "out has the shape of self",
        source: "CANN 8.1 aclnn API reference, aclnnLogicalNot",
        plan: logical_not,
    },
    Operator {
        name: "aclnnIsFinite",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 8)],
        limits: "out has the shape of self",
        source: "ops-math math/is_finite/docs/aclnnIsFinite.md",
        plan: is_finite,
    },
    Operator {
        name: "aclnnLogicalAnd",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(OTHER, ARITHMETIC, 0, 8),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "self and other broadcast to out",
        source: "CANN 8.1 aclnn API reference, aclnnLogicalAnd",
        plan: |call| compare_tensors(call, Relation::And),
    },
    Operator {
        name: "aclnnLogicalOr",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(OTHER, ARITHMETIC, 0, 8),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "self and other broadcast to out",
        source: "CANN 8.1 aclnn API reference, aclnnLogicalOr",
        plan: |call| compare_tensors(call, Relation::Or),
    },
    Operator {
        name: "aclnnIsClose",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), input(OTHER, ARITHMETIC, 0, 8), output(OUT, BOOL, 0, 8)],
        limits: "self and other broadcast to out and have one element type; |self - other| <= atol + rtol |other|, or equal",
        source: "ops-math math/is_close/docs/aclnnIsClose.md",
        plan: is_close,
    },
    Operator {
        name: "aclnnSWhere",
        parameters: &[
            input(CONDITION, CONDITIONS, 0, 8),
            input(SELF, ARITHMETIC, 0, 8),
            input(OTHER, ARITHMETIC, 0, 8),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "condition, self and other broadcast to out; out has the common type of self and other",
        source: "CANN 8.1 aclnn API reference, aclnnSWhere",
        plan: select,
    },
    Operator {
        name: "aclnnInplaceMaskedFillScalar",
        parameters: &[in_place(SELF_REF, MASKABLE, 0, 8), input(MASK, BOOL, 0, 8)],
        limits: "mask broadcasts to selfRef; value storable in the type of selfRef",
        source: "ops-math conversion/masked_fill/docs/aclnnInplaceMaskedFillScalar.md",
        plan: masked_fill,
    },
    Operator {
        name: "aclnnCast",
        parameters: &[input(SELF, COPIED, 0, 8), output(OUT, COPIED, 0, 8)],
        limits: "out has the shape of self and the type dtype; NaN becomes 0 in integers; COMPLEX64 from a real number has no \
                 imaginary part, and a real number from COMPLEX64 is its real part",
        source: "ops-math math/cast/docs/aclnnCast.md",
        plan: cast,
    },
    Operator {
        name: "aclnnInplaceCopy",
        parameters: &[in_place(SELF_REF, COPIED, 0, 8), input(SRC, COPIED, 0, 8)],
        limits: "src broadcasts to selfRef and is converted to its type; COMPLEX64 only to COMPLEX64",
        source: "ops-math conversion/view_copy/docs/aclnnInplaceCopy.md",
        plan: copy,
    },
    Operator {
        name: "aclnnInplaceZero",
        parameters: &[in_place(SELF_REF, COPIED, 0, 8)],
        limits: "",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceZero",
        plan: |call| fill(call, Scalar::Int(0, AclType::I64)),
    },
    Operator {
        name: "aclnnInplaceOne",
        parameters: &[in_place(SELF_REF, ANY, 0, 8)],
        limits: "",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceOne",
        plan: |call| fill(call, Scalar::Int(1, AclType::I64)),
    },
    Operator {
        name: "aclnnInplaceFillScalar",
        parameters: &[in_place(SELF_REF, ARITHMETIC, 0, 8)],
        limits: "value is converted to the type of selfRef",
        source: "ops-math conversion/fill/docs/aclnnInplaceFillScalar.md",
        plan: fill_scalar,
    },
    Operator {
        name: "aclnnIsInTensorScalar",
        parameters: &[input(ELEMENT, NUMBER, 0, 8), output(OUT, BOOL, 0, 8)],
        limits: "out has the shape of element",
        source: "CANN 8.1 aclnn API reference, aclnnIsInTensorScalar",
        plan: |call| compare_scalar(call, ELEMENT, TEST_ELEMENT, membership(call)?),
    },
    Operator {
        name: "aclnnIsInScalarTensor",
        parameters: &[input(TEST_ELEMENTS, NUMBER, 0, 8), output(OUT, BOOL, 0, 1)],
        limits: "out has one element",
        source: "CANN 8.1 aclnn API reference, aclnnIsInScalarTensor",
        plan: is_in_scalar_tensor,
    },
];

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

fn compare_tensors(call: &OperatorCall, relation: Relation) -> Result<CallPlan, Refusal> {
    let common = call.promote(SELF, OTHER)?;
    call.expect_shape(OUT, &call.broadcast(SELF, OTHER)?, "to which self and other broadcast")?;
    let (a, b, out) = (call.tensor(SELF)?.slot, call.tensor(OTHER)?.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        with_lane!(common, L => map2::<L>(tiles, views.of(a), views.of(b), views.of(out), |x, y| relation.apply(x, y)));
        Ok(())
    })
}

fn membership(call: &OperatorCall) -> Result<Relation, Refusal> {
    Ok(if call.flag(INVERT)? { Relation::NotEqual } else { Relation::Equal })
}

fn is_in_scalar_tensor(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (tensor, element, inverted) =
        (call.tensor(TEST_ELEMENTS)?, call.scalar(ELEMENT_SCALAR)?, call.flag(INVERT)?);
    let common = with_scalar_type(tensor.dtype, element.dtype());
    if call.tensor(OUT)?.len() != 1 {
        return Err(call.refuse(OUT, format!("expected one element, found {:?}", call.tensor(OUT)?.dims)));
    }
    let (x, out) = (tensor.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, _| {
        with_lane!(common, L => {
            let mut all = vec![L::default(); views.of(x).len()];
            L::load(&views.of(x).collapsed(), 0, &mut all);
            let element = element.lane::<L>().rounded(common);
            L::store(&views.of(out).collapsed(), 0, &[L::from_bool(all.contains(&element) != inverted)]);
        });
        Ok(())
    })
}

fn compare_scalar(
    call: &OperatorCall,
    x: Name<CheckedTensor>,
    other: Name<Scalar>,
    relation: Relation,
) -> Result<CallPlan, Refusal> {
    let (tensor, other) = (call.tensor(x)?, call.scalar(other)?);
    let common = with_scalar_type(tensor.dtype, other.dtype());
    call.expect_shape(OUT, &tensor.dims, "of the tensor")?;
    let (a, out) = (tensor.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        // The scalar is rounded first: 0.1 equals the nearest f16.
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

fn logical_not(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    let (slot, dtype, out) = (x.slot, x.dtype, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        with_lane!(dtype, L => map1::<L>(tiles, views.of(slot), views.of(out), |block| {
            each(block, |value| L::from_bool(value == L::default()));
        }));
        Ok(())
    })
}

fn is_finite(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    let (slot, dtype, out) = (x.slot, x.dtype, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        // Infinity or NaN minus itself is NaN.
        with_lane!(dtype, L => map1::<L>(tiles, views.of(slot), views.of(out), |block| {
            each(block, |value| L::from_bool(value.minus(value) == L::default()));
        }));
        Ok(())
    })
}

fn is_close(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, y) = (call.tensor(SELF)?, call.tensor(OTHER)?);
    let shape = call.broadcast(SELF, OTHER)?;
    call.expect_shape(OUT, &shape, "to which self and other broadcast")?;
    call.expect_dtype(OTHER, x.dtype, "the type of self")?;
    let (relative, absolute, equal_nan) = (call.float(RTOL)?, call.float(ATOL)?, call.flag(EQUAL_NAN)?);
    for (name, value) in [(RTOL, relative), (ATOL, absolute)] {
        if value < 0.0 {
            return Err(call.refuse(name, format!("expected at least 0, found {value}")));
        }
    }
    let (x, y, out) = (x.slot, y.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let is_close = |x: f64, y: f64| {
            let is_near = y.is_finite() && (x - y).abs() <= absolute + relative * y.abs();
            f64::from(u8::from(x == y || is_near || (equal_nan && x.is_nan() && y.is_nan())))
        };
        map2::<f64>(tiles, views.of(x), views.of(y), views.of(out), |a, b| zip(a, b, is_close));
        Ok(())
    })
}

fn select(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let common = call.promote(SELF, OTHER)?;
    let branches = call.broadcast(SELF, OTHER)?;
    let condition = call.tensor(CONDITION)?;
    let shape = crate::operator::call::broadcast(&branches, &condition.dims).ok_or_else(|| {
        call.refuse(
            CONDITION,
            format!("{:?} does not broadcast with {branches:?} of self and other", condition.dims),
        )
    })?;
    call.expect_shape(OUT, &shape, "to which condition, self and other broadcast")?;
    call.expect_dtype(OUT, common, "the common type of self and other")?;
    let (condition, a, b) = (condition.slot, call.tensor(SELF)?.slot, call.tensor(OTHER)?.slot);
    let out = call.tensor(OUT)?.slot;
    CallPlan::new(move |views, tiles| {
        elementwise::select(tiles, views.of(condition), views.of(a), views.of(b), views.of(out), common);
        Ok(())
    })
}

fn expect_storable(call: &OperatorCall, value: Scalar, tensor: Name<CheckedTensor>) -> Result<(), Refusal> {
    let dtype = call.tensor(tensor)?.dtype;
    if value.dtype().can_cast(dtype) {
        return Ok(());
    }
    Err(call
        .refuse(VALUE, format!("a value of type {} cannot be stored as {dtype} of {tensor}", value.dtype())))
}

fn masked_fill(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (target, mask, value) = (call.tensor(SELF_REF)?, call.tensor(MASK)?, call.scalar(VALUE_SCALAR)?);
    let shape = call.broadcast(SELF_REF, MASK)?;
    call.expect_shape(SELF_REF, &shape, "to which mask must broadcast")?;
    expect_storable(call, value, SELF_REF)?;
    let (slot, dtype, mask) = (target.slot, target.dtype, mask.slot);
    CallPlan::new(move |views, tiles| {
        with_lane!(dtype, L => elementwise::masked_fill(tiles, views.of(slot), views.of(mask), value.lane::<L>()));
        Ok(())
    })
}

fn cast(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    call.expect_dtype(OUT, call.data_type(DTYPE)?, "the attribute dtype")?;
    let (rank, slot, out) = (x.rank(), x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let (x, out) = (views.of(slot), views.of(out));
        match [x.dtype(), out.dtype()] {
            [AclType::C64, real] if real != AclType::C64 => {
                elementwise::copy(tiles, &x.parts().at(rank, 0), out);
            }
            [real, AclType::C64] if real != AclType::C64 => {
                elementwise::copy(tiles, x, &out.parts().at(rank, 0));
                elementwise::fill(tiles, &out.parts().at(rank, 1), 0_f32);
            }
            _ => elementwise::copy(tiles, x, out),
        }
        Ok(())
    })
}

fn copy(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (target, src) = (call.tensor(SELF_REF)?, call.tensor(SRC)?);
    if crate::operator::call::broadcast(&target.dims, &src.dims).as_deref() != Some(&target.dims) {
        return Err(
            call.refuse(SRC, format!("{:?} does not broadcast to {:?} of selfRef", src.dims, target.dims))
        );
    }
    if target.dtype != src.dtype && [target.dtype, src.dtype].contains(&AclType::C64) {
        return Err(call.refuse(SRC, format!("{} is not converted to {}", src.dtype, target.dtype)));
    }
    let (slot, src) = (target.slot, src.slot);
    CallPlan::new(move |views, tiles| {
        elementwise::copy(tiles, views.of(src), views.of(slot));
        Ok(())
    })
}

fn fill_scalar(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    fill(call, call.scalar(VALUE_SCALAR)?.stored_as(call.tensor(SELF_REF)?.dtype))
}

fn fill(call: &OperatorCall, value: Scalar) -> Result<CallPlan, Refusal> {
    let target = call.tensor(SELF_REF)?;
    let (slot, dtype) = (target.slot, target.dtype);
    CallPlan::new(move |views, tiles| {
        if dtype == AclType::C64 {
            elementwise::fill_complex(tiles, views.of(slot), value.as_f64());
        } else {
            with_lane!(dtype, L => elementwise::fill(tiles, views.of(slot), value.lane::<L>()));
        }
        Ok(())
    })
}
