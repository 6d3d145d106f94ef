//! Selection of row values by order: minimum, median, k-th value, running extremes, positions.
//!
//! NaN is the greatest value, but a minimum or median with NaN is NaN, as in PyTorch. The first of
//! equal values wins, in running extremes the last.

use std::cmp::Ordering;

use crate::dtype::LaneKind;
use crate::lane::{Arithmetic, Lane, with_lane};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, ints, output};
use crate::operator::sets::{ARITHMETIC, FLOATING, INDEX64, INDEXES, NUMBER};
use crate::operator::{CallPlan, Refusal};
use crate::reduction::kernels::{self as reduce, rows};
use crate::reduction::order::compare;
use crate::reduction::rows::{dims, reduced_len, reduced_shape, refuse_empty};
use crate::reduction::statistics_rows::variance;
use crate::view::StridedView;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMinDim",
        parameters: &[
            input(SELF, ARITHMETIC, 1, 8).or_scalar(),
            output(OUT, ARITHMETIC, 0, 8),
            output(INDICES, INDEXES, 0, 8),
        ],
        limits: "dim is not empty; out has the type of self; the first of equal minima wins",
        source: "CANN 8.1 aclnn API reference, aclnnMinDim",
        plan: |call| {
            along(
                call,
                ExtremumOutputs { values: Some(OUT), places: Some(INDICES), keep: call.flag(KEEPDIM)? },
                Pick::Least,
            )
        },
    },
    Operator {
        name: "aclnnArgMin",
        parameters: &[input(SELF, NUMBER, 0, 8), output(OUT, INDEXES, 0, 8)],
        limits: "dim is not empty; the first of equal minima wins",
        source: "CANN 8.1 aclnn API reference, aclnnArgMin",
        plan: |call| {
            along(
                call,
                ExtremumOutputs { values: None, places: Some(OUT), keep: call.flag(KEEPDIM)? },
                Pick::Least,
            )
        },
    },
    Operator {
        name: "aclnnMedianDim",
        parameters: &[
            input(SELF, NUMBER, 0, 8),
            output(VALUES_OUT, NUMBER, 0, 8),
            output(INDICES_OUT, INDEX64, 0, 8),
        ],
        limits: "dim is not empty; for an even number of elements, the lower median; valuesOut has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnMedianDim",
        plan: |call| along(call, ExtremumOutputs::named(call)?, Pick::Middle),
    },
    Operator {
        name: "aclnnKthvalue",
        parameters: &[
            input(SELF, NUMBER, 0, 8),
            output(VALUES_OUT, NUMBER, 0, 8),
            output(INDICES_OUT, INDEX64, 0, 8),
        ],
        limits: "k is 1 to the extent of dim; valuesOut has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnKthvalue",
        plan: |call| {
            let x = call.tensor(SELF)?;
            let extent = x.dims.get(call.dim(DIM, x.rank())?).copied().unwrap_or(1);
            let k = call.int(K)?;
            if k < 1 || k > extent as i64 {
                return Err(call.refuse(K, format!("expected 1 to {extent}, found {k}")));
            }
            let outputs = ExtremumOutputs {
                keep: call.flag(KEEPDIM)?,
                values: Some(VALUES_OUT),
                places: Some(INDICES_OUT),
            };
            along(call, outputs, Pick::Rank(k as usize - 1))
        },
    },
    Operator {
        name: "aclnnMedian",
        parameters: &[input(SELF, NUMBER, 0, 8), output(VALUES_OUT, NUMBER, 0, 1)],
        limits: "self is not empty; for an even number of elements, the lower median; valuesOut has the type of self \
                 and one element",
        source: "CANN 8.1 aclnn API reference, aclnnMedian",
        plan: |call| median(call, VALUES_OUT, Pick::Middle),
    },
    Operator {
        name: "aclnnNanMedian",
        parameters: &[input(SELF, NUMBER, 0, 8), output(OUT, NUMBER, 0, 1)],
        limits: "self is not empty; the lower median of the elements that are no NaN, or NaN; out has the type of self and \
                 one element",
        source: "CANN 8.1 aclnn API reference, aclnnNanMedian",
        plan: |call| median(call, OUT, Pick::MiddleNumber),
    },
    Operator {
        name: "aclnnNanMedianDim",
        parameters: &[
            input(SELF, NUMBER, 0, 8),
            output(VALUES_OUT, NUMBER, 0, 8),
            output(INDICES_OUT, INDEX64, 0, 8),
        ],
        limits: "dim is not empty; the lower median of the elements that are no NaN, or NaN; valuesOut has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnNanMedianDim",
        plan: |call| along(call, ExtremumOutputs::named(call)?, Pick::MiddleNumber),
    },
    Operator {
        name: "aclnnArgsort",
        parameters: &[input(SELF, NUMBER, 0, 8), output(OUT, INDEX64, 0, 8)],
        limits: "out has the shape of self; always stable",
        source: "CANN 8.1 aclnn API reference, aclnnArgsort",
        plan: argsort,
    },
    Operator {
        name: "aclnnCummax",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            output(VALUES_OUT, ARITHMETIC, 0, 8),
            output(INDICES_OUT, INDEXES, 0, 8),
        ],
        limits: "outputs have the shape of self; valuesOut has its type; the last of equal values wins",
        source: "CANN 8.1 aclnn API reference, aclnnCummax",
        plan: |call| running(call, Ordering::Greater),
    },
    Operator {
        name: "aclnnCummin",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            output(VALUES_OUT, ARITHMETIC, 0, 8),
            output(INDICES_OUT, INDEXES, 0, 8),
        ],
        limits: "outputs have the shape of self; valuesOut has its type; the last of equal values wins",
        source: "CANN 8.1 aclnn API reference, aclnnCummin",
        plan: |call| running(call, Ordering::Less),
    },
    Operator {
        name: "aclnnCumprod",
        parameters: &[input(INPUT, ARITHMETIC, 0, 8), output(OUT, NUMBER, 0, 8)],
        limits: "out has the shape of input and the type dtype; input is converted to dtype before the product",
        source: "CANN 8.1 aclnn API reference, aclnnCumprod",
        plan: running_product,
    },
    Operator {
        name: "aclnnAminmax",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            ints(DIM_ARRAY).optional(),
            output(MIN_OUT, ARITHMETIC, 0, 8),
            output(MAX_OUT, ARITHMETIC, 0, 8),
        ],
        limits: "no dims means all; the reduced dims are not empty; outputs have the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnAminmax",
        plan: |call| ends(call, dims(call, DIM_ARRAY, call.tensor(SELF)?.rank())?, call.flag(KEEP_DIM)?),
    },
    Operator {
        name: "aclnnAminmaxDim",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            output(MIN_OUT, ARITHMETIC, 0, 8),
            output(MAX_OUT, ARITHMETIC, 0, 8),
        ],
        limits: "dim is not empty; outputs have the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnAminmaxDim",
        plan: |call| {
            let rank = call.tensor(SELF)?.rank();
            let dim = call.dim(DIM, rank)?;
            ends(call, (0..rank).filter(|&other| other == dim).collect(), call.flag(KEEP_DIM)?)
        },
    },
    Operator {
        name: "aclnnAminmaxAll",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            output(MIN_OUT, ARITHMETIC, 0, 8),
            output(MAX_OUT, ARITHMETIC, 0, 8),
        ],
        limits: "self is not empty; outputs have no dims or [1], and the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnAminmaxAll",
        plan: |call| ends(call, (0..call.tensor(SELF)?.rank()).collect(), false),
    },
    Operator {
        name: "aclnnHistc",
        parameters: &[input(SELF, NUMBER, 0, 8), output(OUT, NUMBER, 1, 1)],
        limits: "out has bins elements: the number of values in each bin of min to max; if min and max are 0, the \
                 range of self",
        source: "CANN 8.1 aclnn API reference, aclnnHistc",
        plan: histogram,
    },
    Operator {
        name: "aclnnVarMean",
        parameters: &[
            input(SELF, FLOATING, 0, 8),
            ints(DIM_ARRAY).optional(),
            output(VAR_OUT, FLOATING, 0, 8),
            output(MEAN_OUT, FLOATING, 0, 8),
        ],
        limits: "no dims means all; the divisor is the number of elements minus correction",
        source: "CANN 8.1 aclnn API reference, aclnnVarMean",
        plan: |call| moments(call, VAR_OUT, |variance| variance),
    },
    Operator {
        name: "aclnnStdMeanCorrection",
        parameters: &[
            input(SELF, FLOATING, 0, 8),
            ints(DIM_ARRAY).optional(),
            output(STD_OUT, FLOATING, 0, 8),
            output(MEAN_OUT, FLOATING, 0, 8),
        ],
        limits: "no dims means all; the divisor is the number of elements minus correction",
        source: "CANN 8.1 aclnn API reference, aclnnStdMeanCorrection",
        plan: |call| moments(call, STD_OUT, f32::sqrt),
    },
];

#[derive(Clone, Copy, Debug)]
enum Pick {
    Least,
    /// Lower median, or NaN.
    Middle,
    /// Lower median of the elements that are no NaN.
    MiddleNumber,
    Rank(usize),
}

impl Pick {
    fn of<L: Lane>(self, row: &[L]) -> usize {
        let first_nan = row.iter().position(|value| value.is_nan());
        let rank = match (self, first_nan) {
            (Self::Least | Self::Middle, Some(nan)) => return nan,
            (Self::Least, None) => 0,
            (Self::Middle, None) => (row.len() - 1) / 2,
            (Self::MiddleNumber, _) => {
                row.iter().filter(|value| !value.is_nan()).count().saturating_sub(1) / 2
            }
            (Self::Rank(rank), _) => rank,
        };
        let mut places: Vec<usize> = (0..row.len()).collect();
        *places.select_nth_unstable_by(rank, |&a, &b| compare(row[a], row[b]).then(a.cmp(&b))).1
    }
}

#[derive(Clone, Copy)]
struct ExtremumOutputs {
    values: Option<Name<CheckedTensor>>,
    places: Option<Name<CheckedTensor>>,
    keep: bool,
}

impl ExtremumOutputs {
    fn named(call: &OperatorCall) -> Result<Self, Refusal> {
        Ok(Self { values: Some(VALUES_OUT), places: Some(INDICES_OUT), keep: call.flag(KEEP_DIM)? })
    }
}

fn along(call: &OperatorCall, outputs: ExtremumOutputs, pick: Pick) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dim = call.dim(DIM, x.rank())?;
    let over: Vec<usize> = (0..x.rank()).filter(|&other| other == dim).collect();
    refuse_empty(call, x, &over)?;
    let shape = reduced_shape(&x.dims, &over, outputs.keep);
    if let Some(values) = outputs.values {
        call.expect_dtype(values, x.dtype, "the type of self")?;
    }
    for name in outputs.values.into_iter().chain(outputs.places) {
        call.expect_shape_or_one(name, &shape, "of self without dim, or with 1 there if it is kept")?;
    }
    let slot_of = |name: Option<Name<CheckedTensor>>| {
        name.map(|name| call.tensor(name).map(|tensor| tensor.slot)).transpose()
    };
    let (values, places) = (slot_of(outputs.values)?, slot_of(outputs.places)?);
    let (slot, dtype, count) = (x.slot, x.dtype, reduced_len(&x.dims, &over));
    CallPlan::new(move |views, tiles| {
        let x = reduce::with_trailing(views.of(slot), &over).collapsed();
        let [values, places] = [values, places].map(|slot| slot.map(|slot| views.of(slot).collapsed()));
        with_lane!(dtype, L => rows(tiles, x.len() / count, count, &|at| {
            let mut row = vec![L::default(); count];
            L::load(&x, at * count, &mut row);
            let place = pick.of(&row);
            if let Some(values) = &values {
                L::store(values, at, &[row[place]]);
            }
            if let Some(places) = &places {
                i64::store(places, at, &[place as i64]);
            }
        }));
        Ok(())
    })
}

fn median(call: &OperatorCall, out_name: Name<CheckedTensor>, pick: Pick) -> Result<CallPlan, Refusal> {
    let (x, out) = (call.tensor(SELF)?, call.tensor(out_name)?);
    refuse_empty(call, x, &(0..x.rank()).collect::<Vec<_>>())?;
    call.expect_dtype(out_name, x.dtype, "the type of self")?;
    if out.len() != 1 {
        return Err(call.refuse(out_name, format!("expected one element, found {:?}", out.dims)));
    }
    let (slot, dtype, out) = (x.slot, x.dtype, out.slot);
    CallPlan::new(move |views, tiles| {
        let x = views.of(slot);
        with_lane!(dtype, L => reduce::each_row::<L>(tiles, x, x.len(), views.of(out), |row| row[pick.of(row)]));
        Ok(())
    })
}

/// Returns the row length, and a function that moves `dim` to the end.
fn rows_along(
    x: &CheckedTensor,
    dim: usize,
) -> (usize, impl Fn(&StridedView) -> StridedView + Send + Sync + 'static) {
    let rank = x.rank();
    let len = x.dims.get(dim).copied().unwrap_or(1);
    (
        len,
        move |view: &StridedView| if rank == 0 { view.collapsed() } else { view.with_last(dim).collapsed() },
    )
}

fn argsort(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let (len, last) = rows_along(x, call.dim(DIM, x.rank())?);
    call.expect_shape(OUT, &x.dims, "of self")?;
    let (slot, dtype, out, descending) = (x.slot, x.dtype, call.tensor(OUT)?.slot, call.flag(DESCENDING)?);
    CallPlan::new(move |views, tiles| {
        let (x, out) = (last(views.of(slot)), last(views.of(out)));
        with_lane!(dtype, L => rows(tiles, x.len().checked_div(len).unwrap_or(0), len, &|at| {
            let mut row = vec![L::default(); len];
            L::load(&x, at * len, &mut row);
            let mut places: Vec<i64> = (0..len as i64).collect();
            places.sort_by(|&a, &b| {
                let order = compare(row[a as usize], row[b as usize]);
                if descending { order.reverse() } else { order }
            });
            i64::store(&out, at * len, &places);
        }));
        Ok(())
    })
}

/// A value replaces an equal one, or one to which it compares as `better`.
fn running(call: &OperatorCall, better: Ordering) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let (len, last) = rows_along(x, call.dim(DIM, x.rank())?);
    call.expect_dtype(VALUES_OUT, x.dtype, "the type of self")?;
    for name in [VALUES_OUT, INDICES_OUT] {
        call.expect_shape(name, &x.dims, "of self")?;
    }
    let (slot, dtype) = (x.slot, x.dtype);
    let (values, places) = (call.tensor(VALUES_OUT)?.slot, call.tensor(INDICES_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let [x, values, places] = [slot, values, places].map(|slot| last(views.of(slot)));
        with_lane!(dtype, L => rows(tiles, x.len().checked_div(len).unwrap_or(0), len, &|at| {
            let (mut row, mut found) = (vec![L::default(); len], vec![0i64; len]);
            L::load(&x, at * len, &mut row);
            for i in 1..len {
                let (value, best) = (row[i], row[i - 1]);
                let wins = value.is_nan() || !best.is_nan() && compare(value, best) != better.reverse();
                (row[i], found[i]) = if wins { (value, i as i64) } else { (best, found[i - 1]) };
            }
            L::store(&values, at * len, &row);
            i64::store(&places, at * len, &found);
        }));
        Ok(())
    })
}

fn running_product(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, computed) = (call.tensor(INPUT)?, call.data_type(DTYPE)?);
    let dim = call.dim_of(DIM_SCALAR, call.scalar(DIM_SCALAR)?.as_i64(), x.rank())?;
    call.expect_dtype(OUT, computed, "the attribute dtype")?;
    call.expect_shape(OUT, &x.dims, "of input")?;
    if x.dtype.is_float() && !computed.is_float() {
        return Err(call.refuse(DTYPE, format!("{computed} cannot hold a product of {}", x.dtype)));
    }
    let (len, last) = rows_along(x, dim);
    let (slot, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let (x, out) = (last(views.of(slot)), last(views.of(out)));
        with_lane!(computed, L => rows(tiles, x.len().checked_div(len).unwrap_or(0), len, &|at| {
            let mut row = vec![L::default(); len];
            L::load(&x, at * len, &mut row);
            let mut product = L::from_i64(1);
            for value in &mut row {
                product = product.times(*value);
                *value = product;
            }
            L::store(&out, at * len, &row);
        }));
        Ok(())
    })
}

fn ends(call: &OperatorCall, over: Vec<usize>, keep: bool) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    refuse_empty(call, x, &over)?;
    let shape = reduced_shape(&x.dims, &over, keep);
    for name in [MIN_OUT, MAX_OUT] {
        call.expect_dtype(name, x.dtype, "the type of self")?;
        call.expect_shape_or_one(name, &shape, "of self without the reduced dims")?;
    }
    let (slot, dtype, count) = (x.slot, x.dtype, reduced_len(&x.dims, &over));
    let (low, high) = (call.tensor(MIN_OUT)?.slot, call.tensor(MAX_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let rows = reduce::with_trailing(views.of(slot), &over);
        with_lane!(dtype, L => {
            reduce::each_row::<L>(tiles, &rows, count, views.of(low), |row| row[Pick::Least.of(row)]);
            reduce::max::<L>(tiles, &rows, count, Some(views.of(high)), None);
        });
        Ok(())
    })
}

fn histogram(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, out, bins) = (call.tensor(SELF)?, call.tensor(OUT)?, call.int(BINS)?);
    if bins < 1 || out.dims != [bins as usize] {
        return Err(
            call.refuse(OUT, format!("expected [bins], at least one, found {:?} for {bins} bins", out.dims))
        );
    }
    let (low, high) = (call.scalar(MIN_SCALAR)?.as_f64(), call.scalar(MAX_SCALAR)?.as_f64());
    if low > high || !low.is_finite() || !high.is_finite() {
        return Err(
            call.refuse(MAX_SCALAR, format!("expected finite bounds in order, found {low} to {high}"))
        );
    }
    let (slot, out, dtype) = (x.slot, out.slot, x.dtype);
    CallPlan::new(move |views, _| {
        let x = views.of(slot);
        let mut values = vec![0f64; x.len()];
        f64::load(&x.collapsed(), 0, &mut values);
        let (mut low, mut high) = (low, high);
        if low == high && !values.is_empty() {
            low = values.iter().copied().fold(f64::INFINITY, f64::min);
            high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        }
        if low == high {
            (low, high) = (low - 1.0, high + 1.0);
        }
        if !low.is_finite() || !high.is_finite() {
            return Err(format!(
                "self: expected finite values where min and max are equal, found {low} to {high}"
            ));
        }
        let mut counts = vec![0i64; bins as usize];
        for value in values.into_iter().filter(|value| (low..=high).contains(value)) {
            // As in PyTorch: in the value type, an edge value may fall on either side.
            let place = if dtype.lane() == LaneKind::Single {
                let [value, low, high] = [value, low, high].map(|number| number as f32);
                ((value - low) * bins as f32 / (high - low)) as usize
            } else {
                ((value - low) * bins as f64 / (high - low)) as usize
            };
            counts[place.min(bins as usize - 1)] += 1;
        }
        i64::store(&views.of(out).collapsed(), 0, &counts);
        Ok(())
    })
}

fn moments(
    call: &OperatorCall,
    spread: Name<CheckedTensor>,
    finish: fn(f32) -> f32,
) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let over = dims(call, DIM_ARRAY, x.rank())?;
    let shape = reduced_shape(&x.dims, &over, call.flag(KEEPDIM)?);
    for name in [spread, MEAN_OUT] {
        call.expect_shape(name, &shape, "of self without the reduced dims")?;
    }
    let (slot, count, correction) = (x.slot, reduced_len(&x.dims, &over), call.int(CORRECTION)?);
    let (spread, mean) = (call.tensor(spread)?.slot, call.tensor(MEAN_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let rows = reduce::with_trailing(views.of(slot), &over);
        reduce::each_row::<f32>(tiles, &rows, count, views.of(spread), |row| {
            finish(variance(row, correction))
        });
        reduce::sum::<f32>(tiles, &rows, count, views.of(mean), |total| total / count as f32);
        Ok(())
    })
}
