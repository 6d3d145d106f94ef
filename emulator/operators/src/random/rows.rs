//! Rows of random fills and dropout.

use crate::lane::Lane;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, Parameter, in_place, input, output};
use crate::operator::sets::{ARITHMETIC, FLOATING, INDEX64, NUMBER, OCTETS, REAL};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};
use crate::random::kernels::{self as random, RandomStream};

/// Seed and offset of the forms that a graph captures.
const SEEDS: [Parameter; 2] = [input(SEED_TENSOR, INDEX64, 1, 1), input(OFFSET_TENSOR, INDEX64, 1, 1)];

const NORMAL: &str = "CANN 8.1 aclnn API reference, aclnnNormalTensorTensor and its forms with numbers (random numbers \
                      from the emulator's own counters)";

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
        name: "aclnnInplaceUniformTensor",
        parameters: &[in_place(SELF_REF, REAL, 0, 8), SEEDS[0], SEEDS[1]],
        limits: "as aclnnInplaceUniform; seedTensor and offsetTensor [1]; offset is added",
        source: "ops-math random/dsa_random_uniform/docs/aclnnInplaceUniformTensor.md (random numbers from the \
                 emulator's own counters)",
        plan: uniform,
    },
    Operator {
        name: "aclnnInplaceNormalTensor",
        parameters: &[in_place(SELF_REF, REAL, 0, 8), SEEDS[0], SEEDS[1]],
        limits: "as aclnnInplaceNormal; seedTensor and offsetTensor [1]; offset is added",
        source: "ops-math random/dsa_random_normal/docs/aclnnInplaceNormalTensor.md (random numbers from the \
                 emulator's own counters)",
        plan: normal,
    },
    Operator {
        name: "aclnnInplaceRandomTensor",
        parameters: &[in_place(SELF_REF, NUMBER, 0, 8), SEEDS[0], SEEDS[1]],
        limits: "as aclnnInplaceRandom; seedTensor and offsetTensor [1]; offset is added",
        source: "ops-math random/dsa_random_uniform/docs/aclnnInplaceRandomTensor.md (random numbers from the \
                 emulator's own counters)",
        plan: whole,
    },
    Operator {
        name: "aclnnInplaceBernoulliTensor",
        parameters: &[in_place(SELF_REF, NUMBER, 0, 8), input(PROB_TENSOR, FLOATING, 0, 8)],
        limits: "prob from 0 to 1, and broadcasts to selfRef; an element is 1 with this probability, otherwise 0",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceBernoulliTensor (random numbers from the emulator's own \
                 counters)",
        plan: |call| {
            let (out, ones) = (call.tensor(SELF_REF)?, call.tensor(PROB_TENSOR)?);
            if call.broadcast(SELF_REF, PROB_TENSOR)? != out.dims {
                let text = format!("expected dims that broadcast to {:?}, found {:?}", out.dims, ones.dims);
                return Err(call.refuse(PROB_TENSOR, text));
            }
            drawn(call, SELF_REF, Some(PROB_TENSOR), None, |stream, i, ones, _| {
                if !(0.0..=1.0).contains(&ones) {
                    return Err(format!("prob: expected 0 to 1, found {ones}"));
                }
                Ok(f64::from(f64::from(stream.uniform(i)) < ones))
            })
        },
    },
    Operator {
        name: "aclnnNormalTensorTensor",
        parameters: &[
            input(MEAN, FLOATING, 0, 8),
            input(STD_TENSOR, FLOATING, 0, 8),
            output(OUT, FLOATING, 0, 8),
        ],
        limits: "mean and std broadcast to out; std at least 0",
        source: NORMAL,
        plan: |call| {
            let dims = call.broadcast(MEAN, STD_TENSOR)?;
            call.expect_shape(OUT, &dims, "to which mean and std broadcast")?;
            drawn(call, OUT, Some(MEAN), Some(STD_TENSOR), shifted)
        },
    },
    Operator {
        name: "aclnnNormalTensorFloat",
        parameters: &[input(MEAN, FLOATING, 0, 8), output(OUT, FLOATING, 0, 8)],
        limits: "out has the shape of mean; std at least 0",
        source: NORMAL,
        plan: |call| {
            let deviation = deviation(call)?;
            call.expect_shape(OUT, &call.tensor(MEAN)?.dims, "of mean")?;
            drawn(call, OUT, Some(MEAN), None, move |stream, i, mean, _| shifted(stream, i, mean, deviation))
        },
    },
    Operator {
        name: "aclnnNormalFloatTensor",
        parameters: &[input(STD_TENSOR, FLOATING, 0, 8), output(OUT, FLOATING, 0, 8)],
        limits: "out has the shape of std; std at least 0",
        source: NORMAL,
        plan: |call| {
            let mean = call.float(MEAN_FLOAT)?;
            call.expect_shape(OUT, &call.tensor(STD_TENSOR)?.dims, "of std")?;
            drawn(call, OUT, None, Some(STD_TENSOR), move |stream, i, _, std| shifted(stream, i, mean, std))
        },
    },
    Operator {
        name: "aclnnNormalFloatFloat",
        parameters: &[output(OUT, FLOATING, 0, 8)],
        limits: "std at least 0",
        source: NORMAL,
        plan: |call| {
            let (mean, deviation) = (call.float(MEAN_FLOAT)?, deviation(call)?);
            drawn(call, OUT, None, None, move |stream, i, _, _| shifted(stream, i, mean, deviation))
        },
    },
    Operator {
        name: "aclnnRandperm",
        parameters: &[output(OUT, NUMBER, 1, 1)],
        limits: "n at least 0; out [n] has each of 0 to n - 1 once; its type stores n",
        source: "ops-math random/stateless_randperm/docs/aclnnRandperm.md (random numbers from the emulator's own counters)",
        plan: permutation,
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
        name: "aclnnMultinomialTensor",
        parameters: &[input(SELF, REAL, 1, 2), SEEDS[0], SEEDS[1], output(OUT, INDEX64, 1, 2)],
        limits: "as aclnnMultinomial; seedTensor and offsetTensor [1]; offset is added",
        source: "ops-math random/stateless_sample_multinomial/docs/aclnnMultinomialTensor.md (random numbers from the \
                 emulator's own counters)",
        plan: multinomial,
    },
    Operator {
        name: "aclnnDropoutGenMaskV2Tensor",
        parameters: &[SEEDS[0], SEEDS[1], output(OUT, OCTETS, 1, 1)],
        limits: "as aclnnDropoutGenMaskV2; seedTensor and offsetTensor [1]; offset is added",
        source: "ops-math random/dsa_gen_bit_mask/docs/aclnnDropoutGenMaskV2Tensor.md (random numbers from the \
                 emulator's own counters)",
        plan: mask,
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

/// Seed and offset of a call: numbers, or tensors of one element with a number added to the offset.
#[derive(Clone, Copy, Debug)]
struct RandomSource {
    tensors: Option<[ViewIndex; 2]>,
    numbers: RandomStream,
}

impl RandomSource {
    fn of(call: &OperatorCall) -> Result<Self, Refusal> {
        let tensors = if call.has(SEED_TENSOR) {
            call.sizes(&[SEED_TENSOR.of("1"), OFFSET_TENSOR.of("1")])?;
            Some(call.slots_of([SEED_TENSOR, OFFSET_TENSOR])?)
        } else {
            None
        };
        let seed = if tensors.is_some() { 0 } else { call.int(SEED)?.cast_unsigned() };
        let numbers = RandomStream { seed, offset: call.int(OFFSET_INT)?.cast_unsigned() };
        Ok(Self { tensors, numbers })
    }

    fn read(self, views: &StridedViews<'_>) -> RandomStream {
        let Some([seed, offset]) = self.tensors else { return self.numbers };
        let one = |slot| views.read::<i64>(slot)[0].cast_unsigned();
        RandomStream { seed: one(seed), offset: one(offset).wrapping_add(self.numbers.offset) }
    }
}

fn deviation(call: &OperatorCall) -> Result<f64, Refusal> {
    let deviation = call.float(STD)?;
    if deviation.is_nan() || deviation < 0.0 {
        return Err(call.refuse(STD, format!("expected at least 0, found {deviation}")));
    }
    Ok(deviation)
}

/// Fills `out` by its position and the values of up to two tensors that broadcast to it.
fn drawn(
    call: &OperatorCall,
    out: Name<CheckedTensor>,
    first: Option<Name<CheckedTensor>>,
    second: Option<Name<CheckedTensor>>,
    draw: impl Fn(RandomStream, usize, f64, f64) -> Result<f64, String> + Send + Sync + 'static,
) -> Result<CallPlan, Refusal> {
    let (source, out) = (RandomSource::of(call)?, call.slot(out)?);
    let slot = |name: Option<Name<CheckedTensor>>| name.map(|name| call.slot(name)).transpose();
    let (first, second) = (slot(first)?, slot(second)?);
    CallPlan::new(move |views, _| {
        let stream = source.read(views);
        let spread = |slot: Option<ViewIndex>| {
            let mut values = vec![0f64; views.of(out).len()];
            if let Some(slot) = slot {
                f64::load(&views.of(slot).broadcast_to(views.of(out).dims()).collapsed(), 0, &mut values);
            }
            values
        };
        let operands = spread(first).into_iter().zip(spread(second)).enumerate();
        let values: Result<Vec<f64>, String> = operands.map(|(i, (a, b))| draw(stream, i, a, b)).collect();
        views.write(out, &values?);
        Ok(())
    })
}

fn shifted(stream: RandomStream, i: usize, mean: f64, deviation: f64) -> Result<f64, String> {
    if deviation >= 0.0 {
        return Ok(mean + deviation * f64::from(stream.normal(i)));
    }
    Err(format!("std: expected at least 0, found {deviation}"))
}

/// Sorts the positions by random words. Equal words keep their order.
fn permutation(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (count, source, out) = (call.int_in(N_INT, 0..=1 << 32)?, RandomSource::of(call)?, call.tensor(OUT)?);
    call.expect_shape(OUT, &[count as usize], "n elements")?;
    let last = (count - 1).max(0);
    let stored =
        if out.dtype.is_float() { (last as f64).rounded(out.dtype) as i64 } else { last.rounded(out.dtype) };
    if stored != last {
        return Err(call.refuse(OUT, format!("{} does not store {last}", out.dtype)));
    }
    let out = out.slot;
    CallPlan::new(move |views, _| {
        let stream = source.read(views);
        let mut places: Vec<i64> = (0..count).collect();
        places.sort_by_key(|&place| stream.whole(place as usize, u64::MAX));
        views.write(out, &places);
        Ok(())
    })
}

fn probability(call: &OperatorCall) -> Result<f64, Refusal> {
    let zeros = call.float(PROB)?;
    if (0.0..=1.0).contains(&zeros) {
        return Ok(zeros);
    }
    Err(call.refuse(PROB, format!("expected 0 to 1, found {zeros}")))
}

fn uniform(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (low, high, source) = (call.float(FROM_FLOAT)?, call.float(TO_FLOAT)?, RandomSource::of(call)?);
    if low > high {
        return Err(call.refuse(FROM_FLOAT, format!("expected at most to {high}, found {low}")));
    }
    let out = call.tensor(SELF_REF)?.slot;
    CallPlan::new(move |views, tiles| {
        let stream = source.read(views);
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
    let (mean, deviation, source) = (call.float(MEAN_FLOAT)?, deviation(call)?, RandomSource::of(call)?);
    let out = call.tensor(SELF_REF)?.slot;
    CallPlan::new(move |views, tiles| {
        let stream = source.read(views);
        random::fill(tiles, views.of(out), |i| mean + deviation * f64::from(stream.normal(i)));
        Ok(())
    })
}

fn whole(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (low, high, source) = (call.int(FROM)?, call.int(TO)?, RandomSource::of(call)?);
    if low >= high {
        return Err(call.refuse(FROM, format!("expected less than to {high}, found {low}")));
    }
    let out = call.tensor(SELF_REF)?.slot;
    CallPlan::new(move |views, tiles| {
        let stream = source.read(views);
        random::fill(tiles, views.of(out), |i| {
            low.wrapping_add_unsigned(stream.whole(i, high.abs_diff(low)))
        });
        Ok(())
    })
}

fn bernoulli(call: &OperatorCall, out: Name<CheckedTensor>) -> Result<CallPlan, Refusal> {
    let (ones, source) = (call.scalar(PROB_SCALAR)?.as_f64(), RandomSource::of(call)?);
    if !(0.0..=1.0).contains(&ones) {
        return Err(call.refuse(PROB_SCALAR, format!("expected 0 to 1, found {ones}")));
    }
    let out = call.tensor(out)?.slot;
    CallPlan::new(move |views, tiles| {
        let stream = source.read(views);
        random::fill(tiles, views.of(out), |i| i64::from(f64::from(stream.uniform(i)) < ones));
        Ok(())
    })
}

fn exponential(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (out, count, rate, source) =
        (call.tensor(SELF_REF)?, call.int(COUNT)?, call.float(LAMBDA_FLOAT)?, RandomSource::of(call)?);
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
        let stream = source.read(views);
        random::fill(tiles, views.of(out), |i| stream.exponential(i) / rate);
        Ok(())
    })
}

const CLASSES: usize = 1 << 24;

fn multinomial(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, count, source) = (call.tensor(SELF)?, call.int(NUM_SAMPLES)?, RandomSource::of(call)?);
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
        let stream = source.read(views);
        random::choices(tiles, stream, views.of(x), is_replaced, views.of(out))
            .map_err(|text| format!("self: {text}"))
    })
}

/// Counts one bit per element.
fn mask_bytes(elements: usize) -> usize {
    elements.div_ceil(128) * 16
}

fn mask(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (zeros, source, shape) = (probability(call)?, RandomSource::of(call)?, call.ints(SHAPE)?);
    let elements =
        shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(usize::try_from(dim).ok()?));
    let Some(elements) = elements else {
        return Err(call.refuse(SHAPE, format!("expected extents of at least 0, found {shape:?}")));
    };
    call.expect_shape(OUT, &[mask_bytes(elements)], "one bit per element, rounded up to 128")?;
    let out = call.tensor(OUT)?.slot;
    CallPlan::new(move |views, tiles| {
        let stream = source.read(views);
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
