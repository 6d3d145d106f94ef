//! Rows that pack and unpack signs as bits.

use crate::compression::sign_kernels as signs;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{HALF_OR_SINGLE, OCTETS};
use crate::operator::{CallPlan, Refusal};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnSignBitsPack",
        parameters: &[input(SELF, HALF_OR_SINGLE, 1, 1), output(OUT, OCTETS, 2, 2)],
        limits: "out is [size, bytes / size], with one byte per eight elements, rounded up; size is above 0 and \
                 divides the bytes; NaN and missing elements of the last byte count as negative",
        source: "ops-math math/sign_bits_pack/docs/aclnnSignBitsPack.md",
        plan: sign_bits_pack,
    },
    Operator {
        name: "aclnnSignBitsUnpack",
        parameters: &[input(SELF, OCTETS, 1, 1), output(OUT, HALF_OR_SINGLE, 2, 2)],
        limits: "out is [size, 8 * bytes / size] of type dtype; size is above 0 and divides the bits",
        source: "ops-math math/sign_bits_unpack/docs/aclnnSignBitsUnpack.md",
        plan: sign_bits_unpack,
    },
];

/// Splits into as many rows as the attribute `size`.
fn in_rows(call: &OperatorCall, all: usize, of: &str) -> Result<[usize; 2], Refusal> {
    let size = call.int(SIZE_INT)?;
    match usize::try_from(size) {
        Ok(rows) if rows > 0 && all.is_multiple_of(rows) => Ok([rows, all / rows]),
        _ => Err(call.refuse(SIZE_INT, format!("expected a divisor of the {all} {of}, found {size}"))),
    }
}

fn sign_bits_pack(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_shape(OUT, &in_rows(call, x.len().div_ceil(8), "bytes of signs")?, "of size rows of bytes")?;
    let (x, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        signs::pack_signs(tiles, views.of(x), views.of(out));
        Ok(())
    })
}

fn sign_bits_unpack(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_dtype(OUT, call.data_type(DTYPE)?, "the attribute dtype")?;
    call.expect_shape(OUT, &in_rows(call, 8 * x.len(), "bits of self")?, "of size rows of signs")?;
    let (x, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        signs::unpack_signs(tiles, views.of(x), views.of(out));
        Ok(())
    })
}
