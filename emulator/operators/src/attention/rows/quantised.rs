//! Scales of caches of 8-bit integers.
//!
//! The only mode with scales in cache blocks that a 910B supports for whole heads: one scale per
//! token and head, and a single query position.

use crate::attention::rows::keys::KeyRows;
use crate::attention::rows::request::{AttentionRequest, CacheScales, positions};
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::{Refusal, ViewIndex};

/// `keyAntiquantMode`: one scale per token and head, in blocks like the caches.
const BY_TOKEN_AND_HEAD: i64 = 5;
/// Bytes of a unit that the cube units read from a row of 8-bit integers.
const UNIT: usize = 32;

/// Returns the scales of a call. Without scales, the modes must be 0.
pub(super) fn scales(call: &OperatorCall) -> Result<Option<CacheScales<'_>>, Refusal> {
    let given = [KEY_ANTIQUANT_SCALE_OPTIONAL, VALUE_ANTIQUANT_SCALE_OPTIONAL];
    let [key, value] = given.map(|name| call.tensor_if_given(name));
    let (key, value) = (key?, value?);
    let expected = if key.is_some() { BY_TOKEN_AND_HEAD } else { 0 };
    for name in [KEY_ANTIQUANT_MODE, VALUE_ANTIQUANT_MODE] {
        let found = call.int(name)?;
        if found != expected {
            let text = match key {
                Some(_) => format!(
                    "expected {BY_TOKEN_AND_HEAD} with scales, other modes are not modelled; found {found}"
                ),
                None => format!("expected 0 without scales, found {found}"),
            };
            return Err(call.refuse(name, text));
        }
    }
    match (key, value) {
        (Some(key), Some(value)) => Ok(Some(CacheScales { key, value })),
        (None, None) => Ok(None),
        _ => Err(call.refuse(
            VALUE_ANTIQUANT_SCALE_OPTIONAL,
            "expected scales of keys and of values, or neither; found one of them",
        )),
    }
}

impl CacheScales<'_> {
    /// Checks the scales against the caches.
    pub(super) fn checked(
        &self,
        call: &OperatorCall,
        request: &AttentionRequest<'_>,
        keys: &KeyRows,
    ) -> Result<[ViewIndex; 2], Refusal> {
        if request.table.is_none() {
            return Err(call.refuse(request.table_name, "scales in blocks need a block table, found NULL"));
        }
        let found = positions(call)?;
        if found != Some(1) {
            let text = "caches of INT8 in blocks need one query position in BSH, BSND or BNSD";
            return Err(call.refuse(QUERY, text));
        }
        let [blocks, heads, block, depth] = keys.cache_sizes();
        for (name, found) in [("blockSize", block), ("head size", depth), ("head size", keys.value_depth)] {
            if !found.is_multiple_of(UNIT) {
                let text = format!("INT8 needs a {name} that is a multiple of {UNIT}, found {found}");
                return Err(call.refuse(KEY, text));
            }
        }
        let names = [KEY_ANTIQUANT_SCALE_OPTIONAL, VALUE_ANTIQUANT_SCALE_OPTIONAL];
        for name in names {
            call.expect_shape(name, &[blocks, heads, block], "blocks, heads and tokens of the caches")?;
        }
        Ok([self.key.slot, self.value.slot])
    }
}
