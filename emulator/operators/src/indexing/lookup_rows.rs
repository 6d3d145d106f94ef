//! Searches in sorted sequences, bags of embeddings, and bounded norms of rows.

use std::collections::BTreeSet;

use crate::dtype::AclType::{self, F16, F32, F64, I8, I16, I32, I64, U8};
use crate::lane::{Lane, with_lane};
use crate::operator::argument::Scalar;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::{FLOATING, INDEX64, INDEXES};
use crate::operator::{CallPlan, Refusal, ViewIndex};
use crate::reduction::order::compare;

const SEARCHED: &[AclType] = &[F16, F32, I16, I8, U8, I32, I64, F64];
const SMALL_INDEXES: &[AclType] = &[I64, I32, I16, I8, U8];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnSearchSorted",
        parameters: &[
            input(SORTED_SEQUENCE, SEARCHED, 1, 8),
            input(SELF, SEARCHED, 0, 8),
            input(SORTER, INDEX64, 1, 8).optional(),
            output(OUT, INDEXES, 0, 8),
        ],
        limits: "sortedSequence has one dim, or the dims of self except the last; compared in the common type; sorter has \
                 the shape of sortedSequence; out has the shape of self, INT32 if outInt32 is true, otherwise INT64",
        source: "ops-math math/searchsorted, aclnnSearchSorted (host code)",
        plan: |call| search(call, None),
    },
    Operator {
        name: "aclnnSearchSorteds",
        parameters: &[
            input(SORTED_SEQUENCE, SEARCHED, 1, 1),
            input(SORTER, INDEX64, 1, 1).optional(),
            output(OUT, INDEXES, 0, 1),
        ],
        limits: "self is rounded to FLOAT and converted to the type of sortedSequence; out has one element, INT32 if \
                 outInt32 is true, otherwise INT64",
        source: "ops-math math/searchsorted, aclnnSearchSorteds (host code)",
        plan: |call| search(call, Some(call.scalar(SELF_SCALAR)?)),
    },
    Operator {
        name: "aclnnEmbeddingBag",
        parameters: &[
            input(WEIGHT, FLOATING, 2, 2),
            input(INDICES, SMALL_INDEXES, 0, 1).or_scalar(),
            input(OFFSETS, SMALL_INDEXES, 0, 1).or_scalar(),
            input(PER_SAMPLE_WEIGHTS, FLOATING, 1, 1).optional(),
            output(OUTPUT, FLOATING, 2, 2),
            output(OFFSET2BAG, INDEXES, 0, 1).or_scalar(),
            output(BAG_SIZE, INDEXES, 0, 1).or_scalar(),
            output(MAX_INDICES, INDEXES, 0, 2).or_scalar(),
        ],
        limits: "mode 0 sums, 1 averages, others take the maximum; offsets ascend from 0; with includeLastOffset the last is \
                 the number of indices; indices in 0..rows; paddingIdx is not read, and negative for none; \
                 perSampleWeights for mode 0 alone; output [bags, columns]; offset2bag one number per index or empty; \
                 bagSize [bags]; maxIndices [bags, columns] for the maximum, otherwise [bags] of zeros",
        source: "ops-nn index/embedding_bag/docs/aclnnEmbeddingBag.md (host code: indices and offsets of any integers)",
        plan: bags,
    },
    Operator {
        name: "aclnnEmbeddingRenorm",
        parameters: &[in_place(SELF_REF, FLOATING, 2, 2), input(INDICES, INDEXES, 0, 8)],
        limits: "maxNorm at least 0, normType more than 0; each row that indices name is scaled by maxNorm / (norm + 1e-7) \
                 if its norm is larger; indices in 0..rows",
        source: "CANN 8.1 aclnn API reference, aclnnEmbeddingRenorm",
        plan: renorm_rows,
    },
    Operator {
        name: "aclnnRenorm",
        parameters: &[input(SELF, FLOATING, 2, 8), output(OUT, FLOATING, 2, 8)],
        limits: "maxNorm at least 0, p more than 0; each slice along dim is scaled by maxNorm / (norm + 1e-7) if its norm is \
                 larger; out has the type and shape of self",
        source: "CANN 8.1 aclnn API reference, aclnnRenorm",
        plan: renorm,
    },
];

fn search(call: &OperatorCall, value: Option<Scalar>) -> Result<CallPlan, Refusal> {
    let sorted = call.tensor(SORTED_SEQUENCE)?;
    let x = if value.is_none() { Some(call.tensor(SELF)?) } else { None };
    let expected = if call.flag(OUT_INT32)? { I32 } else { I64 };
    call.expect_dtype(OUT, expected, "by outInt32")?;
    if call.tensor_if_given(SORTER)?.is_some() {
        call.expect_shape(SORTER, &sorted.dims, "of sortedSequence")?;
    }
    let (len, last) = (sorted.dims[sorted.rank() - 1], sorted.rank() - 1);
    let computed = match x {
        Some(x) => {
            call.expect_shape(OUT, &x.dims, "of self")?;
            let matches = x.rank() == sorted.rank() && x.dims[..last] == sorted.dims[..last] && x.dims != [1];
            if sorted.rank() > 1 && !matches {
                let text = format!(
                    "expected the dims of sortedSequence {:?} except the last, found {:?}",
                    sorted.dims, x.dims
                );
                return Err(call.refuse(SELF, text));
            }
            call.promote(SORTED_SEQUENCE, SELF)?
        }
        None => {
            call.expect_shape_or_one(OUT, &[1], "of one value")?;
            sorted.dtype
        }
    };
    let (is_one_sequence, width) = (last == 0, x.map_or(1, |x| x.dims.last().copied().unwrap_or(1)));
    let (sorted, x, out) = (sorted.slot, x.map(|x| x.slot), call.slot(OUT)?);
    let (sorter, is_right) = (call.slot_if_given(SORTER)?, call.flag(RIGHT)?);
    let value = value.map(|value| Scalar::Float(f64::from(value.as_f64() as f32), F32));
    CallPlan::new(move |views, _| {
        with_lane!(computed, L => {
            let round = |values: Vec<L>| values.into_iter().map(|value| value.rounded(computed)).collect::<Vec<L>>();
            let (sequences, order) = (round(views.read(sorted)), views.read_given::<i64>(sorter));
            let wanted = x.map_or_else(|| round(vec![value.map_or(L::default(), Scalar::lane)]), |x| round(views.read(x)));
            let mut found = Vec::with_capacity(wanted.len());
            for (at, wanted) in wanted.iter().enumerate() {
                let first = if is_one_sequence { 0 } else { at / width.max(1) * len };
                let mut before = 0;
                let (mut low, mut high) = (0, len);
                while low < high {
                    let middle = usize::midpoint(low, high);
                    let place = order.as_ref().map_or(Ok(middle), |order| place_of(order[first + middle], len))?;
                    let found = compare(sequences[first + place], *wanted);
                    if found.is_lt() || is_right && found.is_eq() { low = middle + 1; } else { high = middle; }
                    before = low;
                }
                found.push(before as i64);
            }
            views.write(out, &found);
        });
        Ok(())
    })
}

fn place_of(index: i64, len: usize) -> Result<usize, String> {
    let place = usize::try_from(index).ok().filter(|&place| place < len);
    place.ok_or_else(|| format!("sorter: expected 0 to {}, found {index}", len as i64 - 1))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BagMode {
    Sum,
    Mean,
    Max,
}

fn bags(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (weight, indices, offsets) = (call.tensor(WEIGHT)?, call.tensor(INDICES)?, call.tensor(OFFSETS)?);
    call.expect_type_of(WEIGHT, &[PER_SAMPLE_WEIGHTS, OUTPUT])?;
    let mode = match call.int(MODE)? {
        0 => BagMode::Sum,
        1 => BagMode::Mean,
        _ => BagMode::Max,
    };
    if let Some(factors) = call.tensor_if_given(PER_SAMPLE_WEIGHTS)? {
        if mode != BagMode::Sum {
            return Err(call.refuse(PER_SAMPLE_WEIGHTS, "is given, but only mode 0 has weights: pass NULL"));
        }
        if factors.len() != indices.len() {
            let text =
                format!("expected one weight per index of {:?}, found {:?}", indices.dims, factors.dims);
            return Err(call.refuse(PER_SAMPLE_WEIGHTS, text));
        }
    }
    let is_last_given = call.flag(INCLUDE_LAST_OFFSET)?;
    let Some(count) = offsets.len().checked_sub(usize::from(is_last_given)) else {
        return Err(call.refuse(OFFSETS, "expected the end of the last bag, found no elements"));
    };
    let (rows, columns) = (weight.dims[0], weight.dims[1]);
    call.expect_shape(OUTPUT, &[count, columns], "bags and columns of weight")?;
    if ![0, indices.len()].contains(&call.tensor(OFFSET2BAG)?.len()) {
        call.expect_shape(OFFSET2BAG, &[indices.len()], "one number per index")?;
    }
    call.expect_shape_or_one(BAG_SIZE, &[count], "one number per bag")?;
    if mode == BagMode::Max {
        call.expect_shape(MAX_INDICES, &[count, columns], "of output")?;
    } else {
        call.expect_shape_or_one(MAX_INDICES, &[count], "one number per bag")?;
    }
    let padding = call.int(PADDING_IDX)?;
    let (indices, offsets) = (indices.slot, offsets.slot);
    let [weight, output, of_bag, sizes, greatest] =
        call.slots_of([WEIGHT, OUTPUT, OFFSET2BAG, BAG_SIZE, MAX_INDICES])?;
    let factors = call.slot_if_given(PER_SAMPLE_WEIGHTS)?;
    CallPlan::new(move |views, _| {
        let (table, indices) = (views.read::<f64>(weight), views.read::<i64>(indices));
        let factors = views.read_given::<f64>(factors);
        let ends = ends_of_bags(&views.read(offsets), indices.len(), is_last_given)?;
        let (mut out, mut counts) = (vec![0f64; count * columns], vec![0i64; count]);
        let (mut bag_of, mut best) = (vec![0i64; indices.len()], vec![0i64; count * columns]);
        for (bag, [start, end]) in ends.into_iter().enumerate() {
            for at in start..end {
                bag_of[at] = bag as i64;
                let index = indices[at];
                if index == padding {
                    continue;
                }
                let row = usize::try_from(index).ok().filter(|&row| row < rows);
                let row =
                    row.ok_or_else(|| format!("indices: expected 0 to {}, found {index}", rows as i64 - 1))?;
                let factor = factors.as_ref().map_or(1.0, |factors| factors[at]);
                for column in 0..columns {
                    let (value, own) = (factor * table[row * columns + column], bag * columns + column);
                    if mode != BagMode::Max {
                        out[own] += value;
                    } else if counts[bag] == 0 || value > out[own] {
                        (out[own], best[own]) = (value, index);
                    }
                }
                counts[bag] += 1;
            }
            if mode == BagMode::Mean && counts[bag] > 0 {
                out[bag * columns..(bag + 1) * columns].iter_mut().for_each(|sum| *sum /= counts[bag] as f64);
            }
        }
        views.write(output, &out);
        if !views.of(of_bag).is_empty() {
            views.write(of_bag, &bag_of);
        }
        views.write(sizes, &counts);
        views.write(greatest, &best[..views.of(greatest).len()]);
        Ok(())
    })
}

/// Returns the range of each bag.
fn ends_of_bags(offsets: &[i64], indices: usize, is_last_given: bool) -> Result<Vec<[usize; 2]>, String> {
    let mut ends = offsets.to_vec();
    if !is_last_given {
        ends.push(indices as i64);
    }
    let fits = ends.first() == Some(&0) && ends.is_sorted() && ends.last() == Some(&(indices as i64));
    if !fits && ends.len() > 1 {
        return Err(format!("offsets: expected numbers that ascend from 0 to {indices}, found {offsets:?}"));
    }
    Ok(ends.windows(2).map(|pair| [pair[0] as usize, pair[1] as usize]).collect())
}

/// Keeps norms finite.
const LEAST: f64 = 1e-7;

fn bounded(slice: &[f64], degree: f64, most: f64) -> f64 {
    let norm = if degree.is_infinite() {
        slice.iter().fold(0.0, |most: f64, value| most.max(value.abs()))
    } else {
        slice.iter().map(|value| value.abs().powf(degree)).sum::<f64>().powf(1.0 / degree)
    };
    if norm > most { most / (norm + LEAST) } else { 1.0 }
}

fn renorm_rows(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (degree, most) = (call.float(NORM_TYPE)?, call.float(MAX_NORM)?);
    call.expect_that(degree > 0.0, NORM_TYPE, "more than 0", degree)?;
    call.expect_that(most >= 0.0, MAX_NORM, "at least 0", most)?;
    let (table, indices) = (call.tensor(SELF_REF)?, call.slot(INDICES)?);
    let (rows, columns, table) = (table.dims[0], table.dims[1], table.slot);
    CallPlan::new(move |views, _| {
        let mut values = views.read::<f64>(table);
        let named: BTreeSet<i64> = views.read(indices).into_iter().collect();
        for index in named {
            let row = usize::try_from(index).ok().filter(|&row| row < rows);
            let row =
                row.ok_or_else(|| format!("indices: expected 0 to {}, found {index}", rows as i64 - 1))?;
            let row = &mut values[row * columns..(row + 1) * columns];
            let factor = bounded(row, degree, most);
            row.iter_mut().for_each(|value| *value *= factor);
        }
        views.write(table, &values);
        Ok(())
    })
}

fn renorm(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (degree, most) = (call.scalar(P_EXPONENT)?.as_f64(), call.scalar(MAX_NORM_SCALAR)?.as_f64());
    call.expect_that(degree > 0.0, P_EXPONENT, "more than 0", degree)?;
    call.expect_that(most >= 0.0, MAX_NORM_SCALAR, "at least 0", most)?;
    let x = call.tensor(SELF)?;
    call.expect_type_of(SELF, &[OUT])?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    let dim = call.dim(DIM, x.rank())?;
    let (x, out): (ViewIndex, ViewIndex) = (x.slot, call.slot(OUT)?);
    CallPlan::new(move |views, _| {
        for slice in 0..views.of(x).dims()[dim] {
            let (from, into) =
                (views.of(x).at(dim, slice).collapsed(), views.of(out).at(dim, slice).collapsed());
            let mut values = vec![0f64; from.len()];
            f64::load(&from, 0, &mut values);
            let factor = bounded(&values, degree, most);
            values.iter_mut().for_each(|value| *value *= factor);
            f64::store(&into, 0, &values);
        }
        Ok(())
    })
}
