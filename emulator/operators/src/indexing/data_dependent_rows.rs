//! Rows of operators with data-dependent output shapes.
//!
//! The caller provides capacity for the largest result. A run writes the result row-major from the
//! first element; aclGetViewShape returns its shape after stream synchronization.

use crate::dtype::AclType::{self, BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32};
use crate::indexing::distinct_kernels::{self as distinct, Distinct, Grouping};
use crate::lane::{Lane, with_lane};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{CONDITIONS, INDEX64};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};

const SELECTABLE: &[AclType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, Bool];
const SORTABLE: &[AclType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, U16, U32, Bool];

/// This `dim` in aclnnUniqueConsecutive flattens the tensor.
const NO_DIM: i64 = 1000;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnNonzero",
        parameters: &[input(SELF, SELECTABLE, 0, 8), output(OUT, INDEX64, 2, 2).contiguous()],
        limits: "out has capacity for [elements of self, rank of self]; the final shape is [N, rank of self]",
        source: "ops-nn index/non_zero/docs/aclnnNonzero.md",
        plan: |call| nonzero(call, CoordinateOrder::Rows),
    },
    Operator {
        name: "aclnnNonzeroV2",
        parameters: &[input(SELF, SELECTABLE, 0, 8), output(OUT, INDEX64, 2, 2).contiguous()],
        limits: "out has capacity for [rank of self, elements of self]; the final shape is [rank of self, N]; a self \
                 without dims counts as [1]",
        source: "ops-nn index/non_zero/docs/aclnnNonzeroV2.md",
        plan: |call| nonzero(call, CoordinateOrder::Columns),
    },
    Operator {
        name: "aclnnMaskedSelect",
        parameters: &[
            input(SELF, SELECTABLE, 0, 8),
            input(MASK, CONDITIONS, 0, 8),
            output(OUT, SELECTABLE, 1, 1).contiguous(),
        ],
        limits: "self and mask broadcast; out has the type of self and capacity for the broadcast elements; the final \
                 shape is [N]",
        source: "ops-nn index/masked_select_v3/docs/aclnnMaskedSelect.md",
        plan: masked_select,
    },
    Operator {
        name: "aclnnUnique",
        parameters: &[
            input(SELF, SORTABLE, 0, 8),
            output(VALUE_OUT, SORTABLE, 1, 1).contiguous(),
            output(INVERSE_OUT, INDEX64, 0, 8).contiguous(),
        ],
        limits: "valueOut has the type of self and capacity for its elements; the final shape is [N], always sorted; \
                 inverseOut has the shape of self if returnInverse is true",
        source: "ops-math math/unique/docs/aclnnUnique.md (UINT64 is not modelled)",
        plan: unique,
    },
    Operator {
        name: "aclnnUnique2",
        parameters: &[
            input(SELF, SORTABLE, 0, 8),
            output(VALUE_OUT, SORTABLE, 1, 1).contiguous(),
            output(INVERSE_OUT, INDEX64, 0, 8).contiguous(),
            output(COUNTS_OUT, INDEX64, 0, 8).contiguous(),
        ],
        limits: "as aclnnUnique; countsOut has capacity for the elements of self and the final shape [N] if \
                 returnCounts is true",
        source: "ops-math math/unique_with_counts_and_sorting/docs/aclnnUnique2.md (UINT64 is not modelled)",
        plan: unique2,
    },
    Operator {
        name: "aclnnUniqueDim",
        parameters: &[
            input(SELF, SORTABLE, 1, 8),
            output(VALUE_OUT, SORTABLE, 1, 8).contiguous(),
            output(INVERSE_OUT, INDEX64, 1, 1).contiguous(),
            output(COUNTS_OUT, INDEX64, 1, 1).contiguous(),
        ],
        limits: "valueOut has the capacity and type of self; the final shape is self with N along dim, always sorted; \
                 inverseOut and countsOut have the extent of dim; the final shape of countsOut is [N]",
        source: "ops-math math/unique_dim/docs/aclnnUniqueDim.md (UINT64 is not modelled)",
        plan: unique_dim,
    },
    Operator {
        name: "aclnnUniqueConsecutive",
        parameters: &[
            input(SELF, SORTABLE, 0, 8),
            output(VALUE_OUT, SORTABLE, 1, 8).contiguous(),
            output(INVERSE_OUT, INDEX64, 0, 8).contiguous(),
            output(COUNTS_OUT, INDEX64, 0, 8).contiguous(),
        ],
        limits: "valueOut has the capacity and type of self; the final shape is self with N along dim, or [N] if dim \
                 is 1000; inverseOut and countsOut as in aclnnUnique2 or, with a dim, in aclnnUniqueDim",
        source: "ops-math math/unique_consecutive/docs/aclnnUniqueConsecutive.md",
        plan: unique_consecutive,
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoordinateOrder {
    Rows,
    Columns,
}

fn nonzero(call: &OperatorCall, places: CoordinateOrder) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dims = if places == CoordinateOrder::Columns && x.rank() == 0 { vec![1] } else { x.dims.clone() };
    let (room, why) = match places {
        CoordinateOrder::Rows => {
            ([x.len(), dims.len()], "[elements of self, rank of self], the largest result")
        }
        CoordinateOrder::Columns => {
            ([dims.len(), x.len()], "[rank of self, elements of self], the largest result")
        }
    };
    call.expect_shape(OUT, &room, why)?;
    let (x, dtype, out) = (x.slot, x.dtype, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, _| {
        let found = with_lane!(dtype, L => distinct::nonzero::<L>(views.of(x)));
        let along = |dim: usize| {
            let inner: usize = dims[dim + 1..].iter().product();
            let extent = dims[dim];
            move |place: &usize| (place / inner % extent) as i64
        };
        let coordinates: Vec<i64> = match places {
            CoordinateOrder::Rows => {
                found.iter().flat_map(|place| (0..dims.len()).map(move |dim| along(dim)(place))).collect()
            }
            CoordinateOrder::Columns => {
                (0..dims.len()).flat_map(|dim| found.iter().map(along(dim))).collect()
            }
        };
        i64::store(&views.of(out).collapsed(), 0, &coordinates);
        let decided = if places == CoordinateOrder::Rows {
            [found.len(), dims.len()]
        } else {
            [dims.len(), found.len()]
        };
        views.decide(out, decided.to_vec());
        Ok(())
    })
}

fn masked_select(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, mask) = (call.tensor(SELF)?, call.tensor(MASK)?);
    let shape = call.broadcast(SELF, MASK)?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    call.expect_shape(OUT, &[shape.iter().product()], "the elements of self and mask, broadcast")?;
    let (x, mask, out) = (x.slot, mask.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, _| {
        let places = distinct::nonzero::<i64>(&views.of(mask).broadcast_to(&shape));
        distinct::compact(&views.of(x).broadcast_to(&shape), &places, views.of(out));
        views.decide(out, vec![places.len()]);
        Ok(())
    })
}

#[derive(Clone, Copy)]
struct GroupedResults {
    x: ViewIndex,
    dtype: AclType,
    /// `None` flattens the operand.
    dim: Option<usize>,
    grouping: Grouping,
    values: ViewIndex,
    inverse: Option<ViewIndex>,
    counts: Option<ViewIndex>,
}

impl GroupedResults {
    /// `inverse` and `counts` are optional.
    fn new(
        call: &OperatorCall,
        dim: Option<usize>,
        grouping: Grouping,
        inverse: Option<Name<CheckedTensor>>,
        counts: Option<Name<CheckedTensor>>,
    ) -> Result<Self, Refusal> {
        let x = call.tensor(SELF)?;
        let rows = dim.map_or(x.len(), |dim| x.dims[dim]);
        if x.is_empty() && rows > 0 {
            return Err(call.refuse(SELF, format!("expected rows with elements, found {:?}", x.dims)));
        }
        call.expect_dtype(VALUE_OUT, x.dtype, "the type of self")?;
        let (room, places) =
            if dim.is_some() { (x.dims.clone(), vec![rows]) } else { (vec![rows], x.dims.clone()) };
        if call.tensor(VALUE_OUT)?.len() != x.len() {
            call.expect_shape(VALUE_OUT, &room, "the capacity for self")?;
        }
        if let Some(inverse) = inverse {
            call.expect_shape(inverse, &places, "one index per value of self")?;
        }
        if let Some(counts) = counts {
            call.expect_shape(counts, &[rows], "one count per value of self")?;
        }
        let slot = |name: Option<Name<CheckedTensor>>| {
            name.map(|name| call.tensor(name).map(|tensor| tensor.slot)).transpose()
        };
        let values = call.tensor(VALUE_OUT)?.slot;
        let (inverse, counts) = (slot(inverse)?, slot(counts)?);
        Ok(Self { x: x.slot, dtype: x.dtype, dim, grouping, values, inverse, counts })
    }

    fn give(&self, views: &StridedViews<'_>) {
        let x = views.of(self.x);
        let found: Distinct =
            with_lane!(self.dtype, L => distinct::distinct::<L>(x, self.dim, self.grouping));
        views.decide(self.values, distinct::take_first(x, self.dim, &found, views.of(self.values)));
        if let Some(inverse) = self.inverse {
            i64::store(&views.of(inverse).collapsed(), 0, &found.inverse);
        }
        if let Some(counts) = self.counts {
            i64::store(&views.of(counts).collapsed(), 0, &found.counts);
            views.decide(counts, vec![found.counts.len()]);
        }
    }

    fn plan(self) -> Result<CallPlan, Refusal> {
        CallPlan::new(move |views, _| {
            self.give(views);
            Ok(())
        })
    }
}

fn unique(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let inverse = call.flag(RETURN_INVERSE)?.then_some(INVERSE_OUT);
    GroupedResults::new(call, None, Grouping::Sorted, inverse, None)?.plan()
}

fn unique2(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let inverse = call.flag(RETURN_INVERSE)?.then_some(INVERSE_OUT);
    let counts = call.flag(RETURN_COUNTS)?.then_some(COUNTS_OUT);
    GroupedResults::new(call, None, Grouping::Sorted, inverse, counts)?.plan()
}

fn unique_dim(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let dim = call.dim(DIM, call.tensor(SELF)?.rank())?;
    GroupedResults::new(call, Some(dim), Grouping::Sorted, Some(INVERSE_OUT), Some(COUNTS_OUT))?.plan()
}

fn unique_consecutive(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let rank = call.tensor(SELF)?.rank();
    let dim = if call.int(DIM)? == NO_DIM || rank == 0 { None } else { Some(call.dim(DIM, rank)?) };
    let inverse = call.flag(RETURN_INVERSE)?.then_some(INVERSE_OUT);
    let counts = call.flag(RETURN_COUNTS)?.then_some(COUNTS_OUT);
    GroupedResults::new(call, dim, Grouping::Consecutive, inverse, counts)?.plan()
}
