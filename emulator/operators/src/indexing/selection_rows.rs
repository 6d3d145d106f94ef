//! Selection with one index tensor per dim, and tensor stacks.
//!
//! An index out of range fails the stream. As in PyTorch, the index dims replace adjacent indexed
//! dims; otherwise they come first.

use crate::dtype::list_names;
use crate::elementwise::kernels as elementwise;
use crate::indexing::kernels::{self as index, Update};
use crate::lane::with_lane;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, inputs, output};
use crate::operator::sets::{ADDABLE, ANY, INDEXES};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};
use crate::view::StridedView;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnIndex",
        parameters: &[input(SELF, ANY, 1, 8), inputs(INDICES_LIST, ANY, 0, 8), output(OUT, ANY, 0, 8)],
        limits: "one index of INT32 or INT64 per dim from the first on; an index without elements, of any type, \
                 selects the whole dim; the indices broadcast; in out, the broadcast dims replace the indexed dims, \
                 and an empty out computes nothing; indices in -extent..extent",
        source: "CANN 8.1 aclnn API reference, aclnnIndex (indices of integers)",
        plan: index,
    },
    Operator {
        name: "aclnnIndexPutImpl",
        parameters: &[
            in_place(SELF_REF, ANY, 1, 8),
            inputs(INDICES_LIST, ANY, 0, 8),
            input(VALUES, ANY, 0, 8),
        ],
        limits: "as aclnnIndex, but if no index has elements, nothing is written; values broadcast to the indexed \
                 shape and have the type of selfRef; values are added if accumulate is true, otherwise the last value \
                 of a position stays",
        source: "CANN 8.1 aclnn API reference, aclnnIndexPutImpl (indices of integers)",
        plan: index_put,
    },
    Operator {
        name: "aclnnStack",
        parameters: &[inputs(TENSORS, ANY, 0, 7), output(OUT, ANY, 1, 8)],
        limits: "one shape and one element type; out has their number inserted at dim",
        source: "CANN 8.1 aclnn API reference, aclnnStack",
        plan: stack,
    },
];

struct Indexed {
    /// In order, with their index tensors.
    dims: Vec<(usize, ViewIndex)>,
    /// Broadcast shape of the indices.
    shape: Vec<usize>,
    /// Extents of the other dims.
    rest: Vec<usize>,
    /// Number of `rest` dims before `shape` in the result.
    before: usize,
}

impl Indexed {
    fn of(call: &OperatorCall, x: &CheckedTensor) -> Result<Self, Refusal> {
        let indices = call.tensors(INDICES_LIST)?;
        if indices.len() > x.rank() {
            let text = format!(
                "expected at most {} tensors for dims {:?}, found {}",
                x.rank(),
                x.dims,
                indices.len()
            );
            return Err(call.refuse(INDICES_LIST, text));
        }
        let mut shape = Vec::new();
        let mut dims = Vec::new();
        for (dim, index) in indices.iter().enumerate().filter(|(_, index)| !index.is_empty()) {
            if !INDEXES.contains(&index.dtype) {
                let text = format!(
                    "tensor {dim}: expected an element type of {}, found {}",
                    list_names(INDEXES),
                    index.dtype
                );
                return Err(call.refuse(INDICES_LIST, text));
            }
            shape = crate::operator::call::broadcast(&shape, &index.dims).ok_or_else(|| {
                call.refuse(
                    INDICES_LIST,
                    format!("{:?} of tensor {dim} does not broadcast with {shape:?}", index.dims),
                )
            })?;
            dims.push((dim, index.slot));
        }
        let Some(&(first, _)) = dims.first() else {
            return Err(call.refuse(INDICES_LIST, "expected at least one tensor with elements"));
        };
        let side_by_side = dims.iter().enumerate().all(|(i, (dim, _))| *dim == first + i);
        let is_indexed = |dim: usize| dims.iter().any(|(indexed, _)| *indexed == dim);
        let rest = (0..x.rank()).filter(|&dim| !is_indexed(dim)).map(|dim| x.dims[dim]).collect();
        Ok(Self { before: if side_by_side { first } else { 0 }, dims, shape, rest })
    }

    fn result(&self) -> Vec<usize> {
        [&self.rest[..self.before], &self.shape, &self.rest[self.before..]].concat()
    }

    fn indexed_first(&self, view: &StridedView) -> StridedView {
        let dims: Vec<usize> = self.dims.iter().map(|(dim, _)| *dim).collect();
        let rest = (0..view.rank()).filter(|dim| !dims.contains(dim));
        view.permute(&dims.iter().copied().chain(rest).collect::<Vec<_>>())
    }

    fn results_first(&self, view: &StridedView) -> StridedView {
        let own = self.before..self.before + self.shape.len();
        let rest = (0..view.rank()).filter(|dim| !own.contains(dim));
        view.permute(&own.clone().chain(rest).collect::<Vec<_>>())
    }

    /// Returns the position of each element within the indexed dims.
    fn places(&self, views: &StridedViews<'_>, x: &StridedView) -> Result<Vec<usize>, String> {
        let mut places = vec![0; self.shape.iter().product()];
        for &(dim, slot) in &self.dims {
            let index = views.of(slot).broadcast_to(&self.shape);
            let extent = x.dims()[dim];
            let own = index::positions(&index, extent, index::Negative::FromTheEnd)
                .map_err(|text| format!("indices: tensor {dim}: {text}"))?;
            places.iter_mut().zip(own).for_each(|(place, own)| *place = *place * extent + own);
        }
        Ok(places)
    }
}

fn index(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    // Boolean indices that select nothing have no elements.
    if call.tensor(OUT)?.is_empty() && call.tensors(INDICES_LIST)?.iter().any(|index| index.is_empty()) {
        return CallPlan::new(|_, _| Ok(()));
    }
    let indexed = Indexed::of(call, x)?;
    call.expect_shape(
        OUT,
        &indexed.result(),
        "of self with the dims of the indices in place of the indexed dims",
    )?;
    let (x, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let places = indexed.places(views, views.of(x))?;
        index::take_rows(
            tiles,
            &indexed.indexed_first(views.of(x)),
            &places,
            &indexed.results_first(views.of(out)),
        );
        Ok(())
    })
}

fn index_put(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, values) = (call.tensor(SELF_REF)?, call.tensor(VALUES)?);
    call.expect_dtype(VALUES, x.dtype, "the type of selfRef")?;
    // As above.
    if call.tensors(INDICES_LIST)?.iter().all(|index| index.is_empty()) {
        return CallPlan::new(|_, _| Ok(()));
    }
    let indexed = Indexed::of(call, x)?;
    let result = indexed.result();
    if crate::operator::call::broadcast(&result, &values.dims).as_ref() != Some(&result) {
        return Err(call.refuse(
            VALUES,
            format!("{:?} does not broadcast to {result:?}, which is indexed", values.dims),
        ));
    }
    let update = if call.flag(ACCUMULATE)? { Update::Add } else { Update::Replace };
    if update == Update::Add && !ADDABLE.contains(&x.dtype) {
        return Err(call.refuse(SELF_REF, format!("{} cannot be added to", x.dtype)));
    }
    let (x, dtype, values) = (x.slot, x.dtype, values.slot);
    CallPlan::new(move |views, _| {
        let places = indexed.places(views, views.of(x))?;
        let values = indexed.results_first(&views.of(values).broadcast_to(&result));
        with_lane!(dtype, L => index::put_rows::<L>(&indexed.indexed_first(views.of(x)), &places, &values, update));
        Ok(())
    })
}

fn stack(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let tensors = call.tensors(TENSORS)?;
    let Some(first) = tensors.first() else {
        return Err(call.refuse(TENSORS, "expected at least one tensor, found an empty list"));
    };
    let dim = call.dim(DIM, first.rank() + 1)?;
    if let Some((i, other)) =
        tensors.iter().enumerate().find(|(_, other)| other.dims != first.dims || other.dtype != first.dtype)
    {
        let text = format!(
            "tensor {i} is {} {:?}, tensor 0 is {} {:?}: all must match",
            other.dtype, other.dims, first.dtype, first.dims
        );
        return Err(call.refuse(TENSORS, text));
    }
    let mut expected = first.dims.clone();
    expected.insert(dim, tensors.len());
    call.expect_shape(OUT, &expected, "of a tensor with their number inserted at dim")?;
    call.expect_dtype(OUT, first.dtype, "the type of the tensors")?;
    let parts: Vec<ViewIndex> = tensors.iter().map(|tensor| tensor.slot).collect();
    let out = call.tensor(OUT)?.slot;
    CallPlan::new(move |views, tiles| {
        for (i, &part) in parts.iter().enumerate() {
            elementwise::copy(tiles, views.of(part), &views.of(out).at(dim, i));
        }
        Ok(())
    })
}
