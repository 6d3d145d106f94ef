//! Rows of random fills and dropout.

use crate::lane::Lane;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::{ARITHMETIC, FLOATING, INDEX64, NUMBER, OCTETS, REAL};
use crate::operator::{CallPlan, Refusal};
use crate::random::kernels::{self as random, RandomStream};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnInplaceUniform",
        parameters: &[in_place(SELF_REF, REAL, 0, 8)],
        limits: "from is at most to; numbers are in from..to",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceUniform (random numbers from the emulator's own counters)",
        plan: uniform,
    },
    Operator {
        name: "aclnnInplaceNormal",
        parameters: &[in_place(SELF_REF, REAL, 0, 8)],
        limits: "std is at least 0",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceNormal (random numbers from the emulator's own counters)",
        plan: normal,
    },
    Operator {
        name: "aclnnInplaceRandom",
        parameters: &[in_place(SELF_REF, NUMBER, 0, 8)],
        limits: "from is below to; integers are in from..to",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceRandom (random numbers from the emulator's own counters)",
        plan: whole,
    },
    Operator {
        name: "aclnnInplaceBernoulli",
        parameters: &[in_place(SELF_REF, NUMBER, 0, 8)],
        limits: "prob from 0 to 1; an element is 1 with this probability, otherwise 0",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceBernoulli (random numbers from the emulator's own counters)",
        plan: |call| bernoulli(call, SELF_REF),
    },
    Operator {
        name: "aclnnBernoulli",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 8)],
        limits: "prob from 0 to 1, a floating-point number; offset a multiple of 4; out has the shape and type of \
                 self, without reading its values",
        source: "ops-math random/stateless_bernoulli/docs/aclnnBernoulli&aclnnInplaceBernoulli.md (random numbers from \
                 the emulator's own counters)",
        plan: |call| {
            let (x, offset) = (call.tensor(SELF)?, call.int(OFFSET_INT)?);
            call.expect_dtype(OUT, x.dtype, "the type of self")?;
            call.expect_shape(OUT, &x.dims, "of self")?;
            if offset % 4 != 0 {
                return Err(call.refuse(OFFSET_INT, format!("expected a multiple of 4, found {offset}")));
            }
            let kind = call.scalar(PROB_SCALAR)?.dtype();
            if !kind.is_float() {
                return Err(
                    call.refuse(PROB_SCALAR, format!("expected a floating point number, found {kind}"))
                );
            }
            bernoulli(call, OUT)
        },
    },
    Operator {
        name: "aclnnSimThreadExponential",
        parameters: &[in_place(SELF_REF, FLOATING, 0, 8)],
        limits: "count is the number of elements of selfRef, lambda above 0; exponential distribution with rate lambda",
        source: "ops-math random/sim_thread_exponential/docs/aclnnSimThreadExponential.md (random numbers from the \
                 emulator's own counters)",
        plan: exponential,
    },
    Operator {
        name: "aclnnMultinomial",
        parameters: &[input(SELF, REAL, 1, 2), output(OUT, INDEX64, 1, 2)],
        limits: "self [N, C] or [C], C at most 2^24, out [N, numsamples] or [numsamples]; weights at least 0, with any \
                 sum; numsamples above 0, without replacement at most C and at most the number of weights above 0",
        source: "ops-math random/stateless_sample_multinomial/docs/aclnnMultinomial.md (random numbers from the \
                 emulator's own counters)",
        plan: multinomial,
    },
    Operator {
        name: "aclnnDropoutGenMask",
        parameters: &[output(OUT, OCTETS, 1, 1)],
        limits: "prob from 0 to 1 that an element becomes 0; out has one bit per element, rounded up to 128",
        source: "CANN 8.1 aclnn API reference, aclnnDropoutGenMask (random numbers from the emulator's own counters)",
        plan: mask,
    },
    Operator {
        name: "aclnnDropoutGenMaskV2",
        parameters: &[output(OUT, OCTETS, 1, 1)],
        limits: "prob from 0 to 1 that an element becomes 0; out has one bit per element, rounded up to 128",
        source: "CANN 8.1 aclnn API reference, aclnnDropoutGenMaskV2 (random numbers from the emulator's own counters)",
        plan: mask,
    },
    Operator {
        name: "aclnnDropoutDoMask",
        parameters: &[input(SELF, FLOATING, 0, 8), input(MASK, OCTETS, 1, 1), output(OUT, FLOATING, 0, 8)],
        limits: "prob from 0 to 1; mask from aclnnDropoutGenMask; out has the shape and type of self",
        source: "CANN 8.1 aclnn API reference, aclnnDropoutDoMask",
        plan: apply_mask,
    },
];

fn stream(call: &OperatorCall) -> Result<RandomStream, Refusal> {
    Ok(RandomStream { seed: call.int(SEED)?.cast_unsigned(), offset: call.int(OFFSET_INT)?.cast_unsigned() })
}

fn probability(call: &OperatorCall) -> Result<f64, Refusal> {
    let zeros = call.float(PROB)?;
    if (0.0..=1.0).contains(&zeros) {
        return Ok(zeros);
    }
    Err(call.refuse(PROB, format!("expected 0 to 1, found {zeros}")))
}

fn uniform(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (low, high, stream) = (call.float(FROM_FLOAT)?, call.float(TO_FLOAT)?, stream(call)?);
    if low > high {
        return Err(call.refuse(FROM_FLOAT, format!("expected at most to {high}, found {low}")));
    }
    let out = call.tensor(SELF_REF)?.slot;
    CallPlan::new(move |views, tiles| {
        let out = views.of(out);
        // A value rounded up to the excluded bound becomes the lower bound.
        random::fill(tiles, out, |i| {
            let value = (low + (high - low) * f64::from(stream.uniform(i))).rounded(out.dtype());
            if value < high { value } else { low }
        });
        Ok(())
    })
}

fn normal(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (mean, deviation, stream) = (call.float(MEAN_FLOAT)?, call.float(STD)?, stream(call)?);
    if deviation.is_nan() || deviation < 0.0 {
        return Err(call.refuse(STD, format!("expected at least 0, found {deviation}")));
    }
    let out = call.tensor(SELF_REF)?.slot;
    CallPlan::new(move |views, tiles| {
        random::fill(tiles, views.of(out), |i| mean + deviation * f64::from(stream.normal(i)));
        Ok(())
    })
}

fn whole(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (low, high, stream) = (call.int(FROM)?, call.int(TO)?, stream(call)?);
    if low >= high {
        return Err(call.refuse(FROM, format!("expected less than to {high}, found {low}")));
    }
    let out = call.tensor(SELF_REF)?.slot;
    CallPlan::new(move |views, tiles| {
        random::fill(tiles, views.of(out), |i| {
            low.wrapping_add_unsigned(stream.whole(i, high.abs_diff(low)))
        });
        Ok(())
    })
}

fn bernoulli(call: &OperatorCall, out: Name<CheckedTensor>) -> Result<CallPlan, Refusal> {
    let (ones, stream) = (call.scalar(PROB_SCALAR)?.as_f64(), stream(call)?);
    if !(0.0..=1.0).contains(&ones) {
        return Err(call.refuse(PROB_SCALAR, format!("expected 0 to 1, found {ones}")));
    }
    let out = call.tensor(out)?.slot;
    CallPlan::new(move |views, tiles| {
        random::fill(tiles, views.of(out), |i| i64::from(f64::from(stream.uniform(i)) < ones));
        Ok(())
    })
}

fn exponential(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (out, count, rate, stream) =
        (call.tensor(SELF_REF)?, call.int(COUNT)?, call.float(LAMBDA_FLOAT)?, stream(call)?);
    if count != out.len() as i64 {
        return Err(
            call.refuse(COUNT, format!("expected {} as selfRef has elements, found {count}", out.len()))
        );
    }
    if rate.is_nan() || rate <= 0.0 {
        return Err(call.refuse(LAMBDA_FLOAT, format!("expected more than 0, found {rate}")));
    }
    let out = out.slot;
    CallPlan::new(move |views, tiles| {
        random::fill(tiles, views.of(out), |i| stream.exponential(i) / rate);
        Ok(())
    })
}

const CLASSES: usize = 1 << 24;

fn multinomial(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, count, stream) = (call.tensor(SELF)?, call.int(NUM_SAMPLES)?, stream(call)?);
    let (outer, classes) = (&x.dims[..x.rank() - 1], x.dims[x.rank() - 1]);
    let is_replaced = call.flag(REPLACEMENT)?;
    if classes > CLASSES {
        return Err(
            call.refuse(SELF, format!("expected a last dim of at most {CLASSES}, found {:?}", x.dims))
        );
    }
    let most = if is_replaced { i64::MAX } else { classes as i64 };
    if !(1..=most).contains(&count) {
        return Err(call.refuse(NUM_SAMPLES, format!("expected 1 to {most}, found {count}")));
    }
    call.expect_shape(OUT, &[outer, &[count as usize]].concat(), "of self, with numsamples at the end")?;
    let (x, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        random::choices(tiles, stream, views.of(x), is_replaced, views.of(out))
            .map_err(|text| format!("self: {text}"))
    })
}

/// Counts one bit per element.
fn mask_bytes(elements: usize) -> usize {
    elements.div_ceil(128) * 16
}

fn mask(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (zeros, stream, shape) = (probability(call)?, stream(call)?, call.ints(SHAPE)?);
    let elements =
        shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(usize::try_from(dim).ok()?));
    let Some(elements) = elements else {
        return Err(call.refuse(SHAPE, format!("expected extents of at least 0, found {shape:?}")));
    };
    call.expect_shape(OUT, &[mask_bytes(elements)], "one bit per element, rounded up to 128")?;
    let out = call.tensor(OUT)?.slot;
    CallPlan::new(move |views, tiles| {
        random::mask(tiles, stream, zeros, views.of(out));
        Ok(())
    })
}

fn apply_mask(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, mask, zeros) = (call.tensor(SELF)?, call.tensor(MASK)?, probability(call)?);
    call.expect_shape(OUT, &x.dims, "of self")?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    if mask.len() < x.len().div_ceil(8) {
        let text =
            format!("expected {} bytes for self {:?}, found {:?}", mask_bytes(x.len()), x.dims, mask.dims);
        return Err(call.refuse(MASK, text));
    }
    let (x, mask, out) = (x.slot, mask.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        random::apply_mask(tiles, views.of(x), views.of(mask), zeros, views.of(out));
        Ok(())
    })
}
