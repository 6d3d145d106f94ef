//! Whole values of a program, assembled from the shards of all ranks, and their largest
//! differences.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::amplify::amplification;
use super::bound::{Roundings, cancelled, magnitude, of_parts, relative};
use super::{Difference, Verification};
use crate::base::HostData;
use crate::base::{DType, Id, Precision, Reduce, Shape};
use crate::exec::Observation;
use crate::program::interpret::blocks::{dequantised, rows_of_sequences};
use crate::program::models::{CacheBlocks, CacheGroup, CacheNames, OUT, RULE, RunShape, cache_inputs};
use crate::program::text::op_text;
use crate::program::tree::SumOrder;
use crate::program::{HostTensor, Kind, Op, Program, ValueId};
use crate::schedule::Plan;

pub(super) struct WholeValues {
    whole: BTreeMap<ValueId, HostTensor>,
    /// Partial sums of a tree; they are added here in rank order.
    in_parts: BTreeSet<ValueId>,
    /// Partial sums in any order.
    sums: BTreeMap<ValueId, SumParts>,
    /// Elements received from ranks.
    seen: BTreeMap<ValueId, usize>,
    values: usize,
    shapes: Vec<(Shape, DType)>,
}

#[derive(Clone, Debug, Default)]
struct SumParts {
    /// The largest element of each partial sum.
    largest: Vec<f64>,
    /// Elements of all partial sums.
    elems: usize,
}

impl WholeValues {
    pub(super) fn new(program: &Program) -> Self {
        let shapes = program.values.values().iter().map(|value| (value.shape.clone(), value.dtype)).collect();
        Self {
            whole: BTreeMap::new(),
            in_parts: BTreeSet::new(),
            sums: BTreeMap::new(),
            seen: BTreeMap::new(),
            values: program.values.len(),
            shapes,
        }
    }

    pub(super) fn add(&mut self, plans: &[Arc<Plan>], observation: &Observation) {
        let tap = &plans[observation.rank].taps[observation.tap];
        // Other values are shards in transit.
        if tap.value.index() >= self.values || !tap.is_first_replica {
            return;
        }
        let (shape, dtype) = &self.shapes[tap.value.index()];
        let local: Shape = tap.ranges.iter().map(std::ops::Range::len).collect();
        let part = HostTensor::from_bytes(local, *dtype, &observation.bytes);
        let whole = self.whole.entry(tap.value).or_insert_with(|| HostTensor {
            shape: shape.clone(),
            dtype: *dtype,
            data: start(*dtype, tap.partial, shape.elems()),
        });
        whole.combine(&tap.ranges, &part, tap.partial);
        *self.seen.entry(tap.value).or_default() += part.shape.elems();
        if tap.partial == Some(Reduce::Sum) {
            let parts = self.sums.entry(tap.value).or_default();
            parts.largest.push(magnitude(part.floats()));
            parts.elems += part.shape.elems();
        }
        if tap.partial == Some(Reduce::Tree) {
            self.in_parts.insert(tap.value);
        }
    }

    /// Adds the values of all processes, in rank order.
    pub(super) fn add_sent(&mut self, plans: &[Arc<Plan>], sent: &[Vec<u8>]) {
        for (rank, mut bytes) in sent.iter().map(Vec::as_slice).enumerate() {
            while let Some(observation) = take(&mut bytes, rank) {
                self.add(plans, &observation);
            }
        }
    }

    /// Returns a whole value. `None` if a fused launch did not store a shard.
    pub(super) fn whole(&self, id: ValueId) -> Option<&HostTensor> {
        let seen = self.seen.get(&id).copied().unwrap_or_default();
        self.whole.get(&id).filter(|whole| seen >= whole.shape.elems())
    }

    /// Returns the share of a sum over cards in [`Roundings::sums`]; 0 for other values.
    pub(super) fn roundings_of_sum(&self, id: ValueId) -> f64 {
        let (Some(parts), Some(whole)) = (self.sums.get(&id), self.whole(id)) else { return 0.0 };
        let largest = magnitude(whole.floats());
        if largest == 0.0 {
            return 0.0;
        }
        let sizes: Vec<f64> = parts.largest.iter().map(|part| part / largest).collect();
        of_parts(&sizes, parts.elems as f64 / whole.shape.elems().max(1) as f64)
    }

    /// Returns the roundings of each op's results, with sums from `many` and attention from `self`.
    pub(super) fn roundings(&self, program: &Program, precision: Precision, many: &Self) -> Vec<Roundings> {
        let mut now = Roundings::default();
        let each = program.ops.values().iter().enumerate().map(|(index, op)| {
            now = now.after(program, precision, index + 1);
            now.sums += op.results.iter().map(|id| many.roundings_of_sum(*id)).sum::<f64>();
            now = self.behind(program, op, now);
            let own = now;
            if program.values[op.result()].name.ends_with(OUT) {
                now.smallest_row = 0.0;
            }
            own
        });
        each.collect()
    }

    /// Adds the amplification of an attention op, and of the norm behind the gated delta rule.
    pub(super) fn behind(&self, program: &Program, op: &Op, before: Roundings) -> Roundings {
        if let Kind::RmsNorm { epsilon } = op.kind
            && program.values[op.operands[0]].name.ends_with(RULE)
            && let Some(x) = self.whole(op.operands[0])
        {
            let width = x.shape.last().copied().unwrap_or_default();
            return before.cancelled_by(cancelled(x.floats(), width, epsilon));
        }
        // The slope of a cap is at most 1.
        let (Kind::BlockAttention { scale, pools, .. } | Kind::QuantBlockAttention { scale, pools, .. }) =
            op.kind
        else {
            return before;
        };
        let operands = op.operands.iter().map(|operand| self.whole(*operand));
        let (q, numbers, steps) = match operands.collect::<Vec<_>>()[..] {
            [Some(q), Some(keys), Some(values), _, _, _] => (q, [keys.clone(), values.clone()], None),
            [Some(q), Some(keys), Some(of_keys), Some(values), Some(of_values), _, _, _] => {
                let caches = [(keys, of_keys), (values, of_values)];
                let step = |(cache, scales): (&HostTensor, &HostTensor)| {
                    let one =
                        HostTensor::int(cache.shape.with(3, 1), DType::I8, vec![1; scales.shape.elems()]);
                    dequantised(&one, scales, DType::F32)
                };
                let numbers = caches.map(|(cache, scales)| dequantised(cache, scales, q.dtype));
                (q, numbers, Some(caches.map(step)))
            }
            _ => return before,
        };
        let keys = &numbers[0];
        let blocks = CacheBlocks { count: keys.shape[0], rows: keys.shape[1], pools };
        let (batch, sequence) = (q.shape[0], q.shape[1]);
        // Rows start at position 0, so a window hides no block before them.
        let caches = CacheGroup { window: None, table: sequence.div_ceil(blocks.rows), blocks };
        let run = RunShape { batch, sequence, caches, windowed: None, states: None };
        let inputs = cache_inputs(run, &vec![0..sequence; batch]);
        let Some((_, table)) = inputs.iter().find(|(name, _)| *name == CacheNames::ALL.table) else {
            return before;
        };
        let rows = |cache: &HostTensor| rows_of_sequences(cache, table, pools);
        let [keys, values] = numbers.each_ref().map(rows);
        let steps = steps.as_ref().map(|steps| steps.each_ref().map(rows));
        let steps = steps.as_ref().map(<[HostTensor; 2]>::each_ref);
        before.amplified_by(amplification(scale, [q, &keys, &values], steps))
    }

    /// Compares values of one card with `many`. With [`SumOrder::Tree`] all but partial sums must
    /// have the same bits.
    pub(super) fn compare(
        &self,
        program: &Program,
        many: &Self,
        precision: Precision,
        order: SumOrder,
        verification: &mut Verification,
    ) {
        let roundings = self.roundings(program, precision, many);
        let made = program.ops.values().iter().enumerate();
        for (index, op, result) in
            made.flat_map(|(index, op)| op.results.iter().map(move |id| (index, op, id)))
        {
            let (Some(expected), Some(tensor)) = (self.whole(*result), many.whole(*result)) else {
                continue;
            };
            // Integers depend on the side of a rounding edge; `alone` compares them on the same
            // operands.
            if !expected.dtype.is_float() {
                continue;
            }
            verification.values += 1;
            verification.same_bits += usize::from(has_same_bits(&expected.data, &tensor.data));
            let bound = match order {
                SumOrder::Tree if !many.in_parts.contains(result) => 0.0,
                _ => relative(program, precision, roundings[index]) * magnitude(expected.floats()),
            };
            let Some(difference) = worst(&op_text(program, op), tensor, expected.floats(), bound) else {
                continue;
            };
            if verification.first_difference.is_none() && !difference.is_within() {
                verification.first_difference = Some(difference.clone());
            }
            keep_worse(&mut verification.closest, difference);
        }
    }
}

fn has_same_bits(expected: &HostData, found: &HostData) -> bool {
    let bits = |floats: &[f32]| floats.iter().map(|float| float.to_bits()).collect::<Vec<u32>>();
    match (expected, found) {
        (HostData::Float(expected), HostData::Float(found)) => bits(expected) == bits(found),
        (HostData::Int(expected), HostData::Int(found)) => expected == found,
        _ => false,
    }
}

pub(super) fn put(to: &mut Vec<u8>, observation: &Observation) {
    to.extend((observation.tap as u64).to_le_bytes());
    to.extend((observation.bytes.len() as u64).to_le_bytes());
    to.extend(&observation.bytes);
}

fn take(from: &mut &[u8], rank: usize) -> Option<Observation> {
    let (tap, rest) = from.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let (bytes, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    *from = rest;
    Some(Observation { rank, tap: usize::try_from(u64::from_le_bytes(*tap)).ok()?, bytes: bytes.to_vec() })
}

fn start(dtype: DType, partial: Option<Reduce>, elems: usize) -> HostData {
    match (dtype.is_float(), partial) {
        (true, Some(Reduce::Max)) => HostData::Float(vec![f32::NEG_INFINITY; elems]),
        (true, Some(Reduce::Min)) => HostData::Float(vec![f32::INFINITY; elems]),
        (true, _) => HostData::Float(vec![0.0; elems]),
        (false, Some(Reduce::Max)) => HostData::Int(vec![i64::MIN; elems]),
        (false, Some(Reduce::Min)) => HostData::Int(vec![i64::MAX; elems]),
        (false, _) => HostData::Int(vec![0; elems]),
    }
}

/// Returns the element that differs most. NaN differs most of all.
pub(super) fn worst(place: &str, tensor: &HostTensor, expected: &[f32], bound: f64) -> Option<Difference> {
    let error = |(expected, found): (&f32, &f32)| {
        let error = (f64::from(*expected) - f64::from(*found)).abs();
        if error.is_nan() { f64::INFINITY } else { error }
    };
    let errors = expected.iter().zip(tensor.floats()).map(error).enumerate();
    let (at, _) = errors.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let strides = tensor.shape.strides();
    let index = strides.iter().zip(tensor.shape.iter()).map(|(stride, size)| at / stride % size).collect();
    let (expected, found) = (f64::from(expected[at]), f64::from(tensor.floats()[at]));
    Some(Difference { place: place.to_owned(), index, expected, found, bound })
}

/// Keeps the difference that is larger relative to its bound.
pub(super) fn keep_worse(kept: &mut Option<Difference>, other: Difference) {
    // NaN counts as the worst.
    let share = |d: &Difference| {
        let share = (d.expected - d.found).abs() / d.bound.max(f64::MIN_POSITIVE);
        if share.is_nan() { f64::INFINITY } else { share }
    };
    if kept.as_ref().is_none_or(|kept| share(&other) > share(kept)) {
        *kept = Some(other);
    }
}
