//! Rows of lookups and scatters. An index out of range fails the stream.

use crate::dtype::AclType::{self, BF16, F16, F32, I8, I32};
use crate::elementwise::kernels as elementwise;
use crate::indexing::kernels::{self as index, Negative};
use crate::lane::{Arithmetic, with_lane};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::{ADDABLE, ANY, ARITHMETIC, INDEXES};
use crate::operator::{CallPlan, Refusal};
use crate::view::StridedView;

const UPDATABLE: &[AclType] = &[F32, F16, BF16, I8, I32];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnEmbedding",
        parameters: &[
            input(WEIGHT, ARITHMETIC, 2, 2),
            input(INDICES, INDEXES, 0, 7),
            output(OUT, ARITHMETIC, 1, 8),
        ],
        limits: "out has the type of weight, and the dims of indices and then the columns of weight; indices in \
                 0..rows",
        source: "ops-nn index/gather_v2/docs/aclnnEmbedding.md",
        plan: embedding,
    },
    Operator {
        name: "aclnnIndexSelect",
        parameters: &[
            input(SELF, ARITHMETIC, 1, 8).or_scalar(),
            input(INDEX, INDEXES, 0, 1),
            output(OUT, ARITHMETIC, 1, 8).or_scalar(),
        ],
        limits: "out has the type and dims of self, with the extent of index along dim; indices in 0..extent",
        source: "ops-nn index/gather_v2/docs/aclnnIndexSelect.md",
        plan: index_select,
    },
    Operator {
        name: "aclnnGatherV2",
        parameters: &[
            input(SELF, ARITHMETIC, 1, 8),
            input(INDEX, INDEXES, 0, 8),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "out has the type and dims of self, with the dims of index in place of dim; indices in -extent..extent",
        source: "ops-nn index/gather_v2/docs/aclnnGatherV2.md",
        plan: gather_v2,
    },
    Operator {
        name: "aclnnGather",
        parameters: &[input(SELF, ANY, 0, 8), input(INDEX, INDEXES, 0, 8), output(OUT, ANY, 0, 8)],
        limits: "index has the rank of self and, except along dim, no larger extents; out has the shape of index and \
                 the type of self; indices in -extent..extent",
        source: "ops-nn index/gather_elements_v2/docs/aclnnGather.md",
        plan: gather,
    },
    Operator {
        name: "aclnnInplaceIndexCopy",
        parameters: &[
            in_place(SELF_REF, ARITHMETIC, 0, 8),
            input(INDEX, INDEXES, 0, 1),
            input(SOURCE, ARITHMETIC, 0, 8),
        ],
        limits: "source has the type and dims of selfRef, with the length of index along dim; indices in 0..extent",
        source: "ops-nn index/scatter_update/docs/aclnnIndexCopy&aclnnInplaceIndexCopy.md",
        plan: index_copy,
    },
    Operator {
        name: "aclnnIndexCopy",
        parameters: &[
            input(SELF_REF, ARITHMETIC, 0, 8),
            input(INDEX, INDEXES, 0, 1),
            input(SOURCE, ARITHMETIC, 0, 8),
            output(OUT_REF, ARITHMETIC, 0, 8),
        ],
        limits: "as aclnnInplaceIndexCopy; outRef has the type and shape of selfRef",
        source: "ops-nn index/scatter_update/docs/aclnnIndexCopy&aclnnInplaceIndexCopy.md",
        plan: index_copy,
    },
    Operator {
        name: "aclnnScatterAdd",
        parameters: &[
            input(SELF, ADDABLE, 1, 8).or_scalar(),
            input(INDEX, INDEXES, 1, 8).or_scalar(),
            input(SRC, ADDABLE, 1, 8).or_scalar(),
            output(OUT, ADDABLE, 1, 8).or_scalar(),
        ],
        limits: "index within src and, except along dim, within self; one element type; indices in 0..extent",
        source: "CANN 8.1 aclnn API reference, aclnnScatterAdd",
        plan: scatter_add,
    },
    Operator {
        name: "aclnnInplaceScatterUpdate",
        parameters: &[
            in_place(DATA, UPDATABLE, 2, 8),
            input(INDICES, INDEXES, 1, 1),
            input(UPDATES, UPDATABLE, 2, 8),
        ],
        limits: "data[i, .., indices[i] + k, ..] = updates[i, .., k, ..] along axis, which is not 0; no empty tensors; one \
                 element type; indices[i] + updates' extent within data",
        source: "ops-nn index/scatter/docs/aclnnInplaceScatterUpdate.md (indices of one dim)",
        plan: scatter_update,
    },
    Operator {
        name: "aclnnIndexAdd",
        parameters: &[
            input(SELF, ADDABLE, 1, 8).or_scalar(),
            input(INDEX, INDEXES, 1, 1).or_scalar(),
            input(SOURCE, ADDABLE, 1, 8).or_scalar(),
            output(OUT, ADDABLE, 1, 8).or_scalar(),
        ],
        limits: "source is self with the length of index along dim; one element type; indices in 0..extent",
        source: "ops-nn index/inplace_scatter_add/docs/aclnnIndexAdd.md",
        plan: index_add,
    },
    Operator {
        name: "aclnnIndexAddV2",
        parameters: &[
            input(SELF, ADDABLE, 1, 8).or_scalar(),
            input(INDEX, INDEXES, 1, 1).or_scalar(),
            input(SOURCE, ADDABLE, 1, 8).or_scalar(),
            output(OUT, ADDABLE, 1, 8).or_scalar(),
        ],
        limits: "as aclnnIndexAdd; mode 0 (fast) or 1 (precise) changes no bits",
        source: "ops-nn index/inplace_scatter_add/docs/aclnnIndexAddV2.md",
        plan: |call| call.int_in(MODE, 0..=1).and_then(|_| index_add(call)),
    },
    Operator {
        name: "aclnnOneHot",
        parameters: &[
            input(SELF, INDEXES, 0, 7),
            input(ON_VALUE, &[F32, F16, I32, AclType::I64], 0, 1),
            input(OFF_VALUE, &[F32, F16, I32, AclType::I64], 0, 1),
            output(OUT, &[F32, F16, I32, AclType::I64], 1, 8),
        ],
        limits: "onValue and offValue have one element; one type for them and out; out is self with numClasses inserted at \
                 axis (-1 = last); an index outside 0..numClasses gives a row of offValue",
        source: "CANN 8.1 aclnn API reference, aclnnOneHot",
        plan: one_hot,
    },
];

fn expect_same_dtype(
    call: &OperatorCall,
    of: Name<CheckedTensor>,
    names: &[Name<CheckedTensor>],
) -> Result<(), Refusal> {
    let dtype = call.tensor(of)?.dtype;
    names.iter().try_for_each(|&name| call.expect_dtype(name, dtype, &format!("the type of {of}")))
}

/// The dims of the index replace `dim`.
fn select(
    call: &OperatorCall,
    data: Name<CheckedTensor>,
    dim: usize,
    index: Name<CheckedTensor>,
    negative: Negative,
) -> Result<CallPlan, Refusal> {
    let (x, places) = (call.tensor(data)?, call.tensor(index)?);
    let expected = [&x.dims[..dim], &places.dims, &x.dims[dim + 1..]].concat();
    call.expect_shape(
        OUT,
        &expected,
        &format!("of {data} with the dims of {index} in the place of dim {dim}"),
    )?;
    expect_same_dtype(call, data, &[OUT])?;
    let (x, places, out) = (x.slot, places.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        index::select(tiles, views.of(x), dim, views.of(places), negative, views.of(out))
            .map_err(|text| format!("{index}: {text}"))
    })
}

fn embedding(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    select(call, WEIGHT, 0, INDICES, Negative::Refused)
}

fn gather_v2(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    select(call, SELF, call.dim(DIM, call.tensor(SELF)?.rank())?, INDEX, Negative::FromTheEnd)
}

fn index_select(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, places) = (call.tensor(SELF)?, call.tensor(INDEX)?);
    let dim = call.dim(DIM, x.rank())?;
    if places.rank() == 1 {
        return select(call, SELF, dim, INDEX, Negative::Refused);
    }
    // A single index keeps the dim with extent 1.
    let mut expected = x.dims.clone();
    expected[dim] = 1;
    call.expect_shape(OUT, &expected, "of self with one element along dim")?;
    expect_same_dtype(call, SELF, &[OUT])?;
    let (x, places, out) = (x.slot, places.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        index::select(tiles, views.of(x), dim, views.of(places), Negative::Refused, views.of(out))
            .map_err(|text| format!("index: {text}"))
    })
}

/// Rejects an index larger than `within` in dims other than `free`.
fn expect_within(
    call: &OperatorCall,
    index: Name<CheckedTensor>,
    within: Name<CheckedTensor>,
    free: Option<usize>,
) -> Result<(), Refusal> {
    let (places, x) = (call.tensor(index)?, call.tensor(within)?);
    let exceeds = |i: usize| Some(i) != free && places.dims[i] > x.dims[i];
    if places.rank() != x.rank() || (0..x.rank()).any(exceeds) {
        let text =
            format!("{:?} must have the rank of {within} {:?} and no greater extents", places.dims, x.dims);
        return Err(call.refuse(index, text));
    }
    Ok(())
}

fn gather(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, places) = (call.tensor(SELF)?, call.tensor(INDEX)?);
    let dim = call.dim(DIM, x.rank())?;
    expect_within(call, INDEX, SELF, Some(dim))?;
    call.expect_shape(OUT, &places.dims, "of index")?;
    expect_same_dtype(call, SELF, &[OUT])?;
    if x.dims.get(dim) == Some(&0) && !places.is_empty() {
        return Err(call.refuse(SELF, format!("dim {dim} is empty but index has {} elements", places.len())));
    }
    let (x, places, out) = (x.slot, places.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        index::gather(tiles, views.of(x), dim, views.of(places), views.of(out))
            .map_err(|text| format!("index: {text}"))
    })
}

fn index_copy(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, places) = (call.tensor(SELF_REF)?, call.tensor(INDEX)?);
    let dim = call.dim(DIM, x.rank())?;
    expect_same_dtype(call, SELF_REF, &[SOURCE])?;
    let mut expected = x.dims.clone();
    if let Some(extent) = expected.get_mut(dim) {
        *extent = places.len();
    } else if places.len() != 1 {
        return Err(call
            .refuse(INDEX, format!("expected 1 element for a tensor without dims, found {}", places.len())));
    }
    call.expect_shape(SOURCE, &expected, "of selfRef with the length of index along dim")?;
    let target = if call.has(OUT_REF) {
        expect_same_dtype(call, SELF_REF, &[OUT_REF])?;
        call.expect_shape(OUT_REF, &x.dims, "of selfRef")?;
        call.slot(OUT_REF)?
    } else {
        x.slot
    };
    let (x, places, source) = (x.slot, places.slot, call.tensor(SOURCE)?.slot);
    CallPlan::new(move |views, tiles| {
        if target != x {
            elementwise::copy(tiles, views.of(x), views.of(target));
        }
        index::copy_at(tiles, views.of(target), dim, views.of(places), Negative::Refused, views.of(source))
            .map_err(|text| format!("index: {text}"))
    })
}

fn scatter_add(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dim = call.dim(DIM, x.rank())?;
    expect_same_dtype(call, SELF, &[SRC, OUT])?;
    expect_within(call, INDEX, SELF, Some(dim))?;
    expect_within(call, INDEX, SRC, None)?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    let (x, dtype, places) = (x.slot, x.dtype, call.tensor(INDEX)?.slot);
    let (src, out) = (call.tensor(SRC)?.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        elementwise::copy(tiles, views.of(x), views.of(out));
        with_lane!(dtype, L => index::scatter_add::<L>(views.of(out), dim, views.of(places), views.of(src)))
            .map_err(|text| format!("index: {text}"))
    })
}

fn scatter_update(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (data, indices, updates) = (call.tensor(DATA)?, call.tensor(INDICES)?, call.tensor(UPDATES)?);
    expect_same_dtype(call, DATA, &[UPDATES])?;
    let axis = call.dim(AXIS, data.rank())?;
    if axis == 0 {
        return Err(call.refuse(AXIS, "expected a dim other than 0, the batch dim of the indices"));
    }
    for (name, tensor) in [(DATA, data), (INDICES, indices), (UPDATES, updates)] {
        if tensor.is_empty() {
            return Err(
                call.refuse(name, format!("expected a tensor with elements, found {:?}", tensor.dims))
            );
        }
    }
    let mut expected = data.dims.clone();
    expected[axis] = updates.dims.get(axis).copied().unwrap_or(0).min(data.dims[axis]);
    call.expect_shape(UPDATES, &expected, "of data, along axis at most its extent")?;
    call.expect_shape(INDICES, &[data.dims[0]], "one index per batch")?;
    // Number of legal start positions.
    let starts = data.dims[axis] - expected[axis] + 1;
    let (data, indices, updates, len) = (data.slot, indices.slot, updates.slot, expected[axis]);
    CallPlan::new(move |views, tiles| {
        let starts = index::positions(views.of(indices), starts, Negative::Refused)
            .map_err(|text| format!("indices: {text} (the updates are {len} long)"))?;
        tiles.run(starts.len(), &|batch| {
            let target = views.of(data).at(0, batch).slice(axis - 1, starts[batch], len, 1);
            elementwise::copy(&crate::Serial, &views.of(updates).at(0, batch), &target);
        });
        Ok(())
    })
}

fn index_add(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, places) = (call.tensor(SELF)?, call.tensor(INDEX)?);
    let dim = call.dim(DIM, x.rank())?;
    expect_same_dtype(call, SELF, &[SOURCE, OUT])?;
    let mut expected = x.dims.clone();
    expected[dim] = places.len();
    call.expect_shape(SOURCE, &expected, "of self with the length of index along dim")?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    let alpha = call.scalar(ALPHA)?;
    let (x, dtype, places) = (x.slot, x.dtype, places.slot);
    if !alpha.dtype().can_cast(dtype) {
        return Err(call.refuse(ALPHA, format!("a factor of type {} cannot scale {dtype}", alpha.dtype())));
    }
    let (source, out) = (call.tensor(SOURCE)?.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        elementwise::copy(tiles, views.of(x), views.of(out));
        with_lane!(dtype, L => {
            let alpha = alpha.lane::<L>();
            let scale = |value: L| value.times(alpha);
            index::add_at::<L>(tiles, views.of(out), dim, views.of(places), views.of(source), scale)
        })
        .map_err(|text| format!("index: {text}"))
    })
}

fn one_hot(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let classes = call.int(NUM_CLASSES)?;
    let Ok(extent) = usize::try_from(classes) else {
        return Err(call.refuse(NUM_CLASSES, format!("expected at least 0, found {classes}")));
    };
    for name in [ON_VALUE, OFF_VALUE] {
        if call.tensor(name)?.len() != 1 {
            return Err(
                call.refuse(name, format!("expected one element, found {:?}", call.tensor(name)?.dims))
            );
        }
    }
    expect_same_dtype(call, ON_VALUE, &[OFF_VALUE, OUT])?;
    let axis = match call.int(AXIS)? {
        -1 => x.rank(),
        axis if (0..=x.rank() as i64).contains(&axis) => axis as usize,
        axis => return Err(call.refuse(AXIS, format!("expected -1 to {}, found {axis}", x.rank()))),
    };
    let mut expected = x.dims.clone();
    expected.insert(axis, extent);
    call.expect_shape(OUT, &expected, "of self with numClasses inserted at axis")?;
    let (x, on, off) = (x.slot, call.tensor(ON_VALUE)?.slot, call.tensor(OFF_VALUE)?.slot);
    let out = call.tensor(OUT)?.slot;
    CallPlan::new(move |views, tiles| {
        let out = views.of(out);
        let scalar = |view: &StridedView| if view.rank() == 0 { view.clone() } else { view.at(0, 0) };
        elementwise::copy(tiles, &scalar(views.of(off)), out);
        // With the classes last, the hot element of position i is i * classes + index.
        let rows = out.with_last(axis).collapsed();
        let mut hot = vec![0i64; views.of(x).len()];
        <i64 as crate::lane::Lane>::load(&views.of(x).collapsed(), 0, &mut hot);
        let mut value = [0f64];
        <f64 as crate::lane::Lane>::load(&scalar(views.of(on)), 0, &mut value);
        for (i, &class) in hot.iter().enumerate() {
            if (0..classes).contains(&class) {
                <f64 as crate::lane::Lane>::store(&rows, i * extent + class as usize, &value);
            }
        }
        Ok(())
    })
}
