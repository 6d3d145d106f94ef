//! Row of the operator that writes new keys and values at slots of a cache in blocks.
//!
//! Not supported: `FRACTAL_NZ` caches, compressed caches and strides in an attribute.

use crate::Tiles;
use crate::dtype::AclType::{self, BF16, F16, I8};
use crate::indexing::kernels::{self as index, Negative};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, ints, text};
use crate::operator::sets::INDEXES;
use crate::operator::{CallPlan, Refusal, ViewIndex};
use crate::view::StridedView;

const CACHED: &[AclType] = &[F16, BF16, I8];

pub(crate) const OPERATORS: &[Operator] = &[Operator {
    name: "aclnnScatterPaKvCache",
    parameters: &[
        input(KEY, CACHED, 3, 3).contiguous(),
        in_place(KEY_CACHE_REF, CACHED, 4, 4).contiguous(),
        input(SLOT_MAPPING, INDEXES, 1, 1).contiguous(),
        input(VALUE, CACHED, 3, 3).contiguous().optional(),
        in_place(VALUE_CACHE_REF, CACHED, 4, 4).contiguous().optional(),
        text(CACHE_MODE_OPTIONAL),
        text(SCATTER_MODE_OPTIONAL),
        ints(STRIDES_OPTIONAL).optional(),
        ints(OFFSETS_OPTIONAL).optional(),
    ],
    limits: "key [tokens, heads, Dk] and value [tokens, heads, Dv], caches [blocks, block, heads, D], one element type; \
             value and valueCacheRef may both be NULL; cacheMode NULL or Norm, scatterMode NULL, empty or None, with \
             which strides and offsets are ignored; one slot per token in 0..blocks x block, none twice",
    source: "ops-transformer attention/scatter_pa_kv_cache/docs/aclnnScatterPaKvCache.md (scenarios 2 and 6)",
    plan: scatter,
}];

#[derive(Clone, Copy, Debug)]
struct CacheWrite {
    rows: ViewIndex,
    cache: ViewIndex,
    /// Number of slots, and elements of a slot.
    slots: usize,
    width: usize,
}

impl CacheWrite {
    fn of(
        call: &OperatorCall,
        rows: Name<CheckedTensor>,
        cache: Name<CheckedTensor>,
    ) -> Result<Self, Refusal> {
        let (new, all) = (call.tensor(rows)?, call.tensor(cache)?);
        call.expect_dtype(rows, call.tensor(KEY)?.dtype, "the type of key")?;
        call.expect_dtype(cache, new.dtype, &format!("the type of {rows}"))?;
        let tokens = call.tensor(SLOT_MAPPING)?.len();
        let expected = [tokens, call.tensor(KEY)?.dims[1], new.dims[2]];
        call.expect_shape(rows, &expected, "one token per slot, with the heads of key")?;
        let expected = [all.dims[0], all.dims[1], new.dims[1], new.dims[2]];
        call.expect_shape(cache, &expected, &format!("blocks of the heads of {rows}"))?;
        let (slots, width) = (all.dims[0] * all.dims[1], new.dims[1] * new.dims[2]);
        Ok(Self { rows: new.slot, cache: all.slot, slots, width })
    }

    fn write(
        &self,
        tiles: &dyn Tiles,
        cache: &StridedView,
        slots: &StridedView,
        rows: &StridedView,
    ) -> Result<(), String> {
        let lines = cache.collapsed().split(0, self.slots, self.width);
        index::copy_at(tiles, &lines, 0, slots, Negative::Refused, rows)
    }
}

fn scatter(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let modes: [(Name<str>, &[&str]); 2] =
        [(CACHE_MODE_OPTIONAL, &["Norm"]), (SCATTER_MODE_OPTIONAL, &["", "None"])];
    for (name, legal) in modes {
        if let Some(mode) = call.text_if_given(name)?.filter(|mode| !legal.contains(mode)) {
            return Err(call.refuse(name, format!("expected NULL or one of {legal:?}, found {mode:?}")));
        }
    }
    let key = CacheWrite::of(call, KEY, KEY_CACHE_REF)?;
    let value = match (call.tensor_if_given(VALUE)?, call.tensor_if_given(VALUE_CACHE_REF)?) {
        (None, None) => None,
        (Some(_), Some(_)) => Some(CacheWrite::of(call, VALUE, VALUE_CACHE_REF)?),
        _ => return Err(call.refuse(VALUE, "expected value and valueCacheRef, or NULL for both")),
    };
    let slots = call.tensor(SLOT_MAPPING)?.slot;
    CallPlan::new(move |views, tiles| {
        let writes = || std::iter::once(key).chain(value);
        let least = writes().map(|write| write.slots).min().unwrap_or(0);
        check_slots(views.of(slots), least).map_err(|text| format!("slotMapping: {text}"))?;
        writes().filter(|write| !views.of(write.rows).is_empty()).try_for_each(|write| {
            write.write(tiles, views.of(write.cache), views.of(slots), views.of(write.rows))
        })
    })
}

/// With a slot twice, the result depends on the order of a card's cores.
fn check_slots(slots: &StridedView, count: usize) -> Result<(), String> {
    let mut found = index::positions(slots, count, Negative::Refused)?;
    found.sort_unstable();
    match found.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("slot {} is given twice, but slots must be unique", pair[0])),
        None => Ok(()),
    }
}
