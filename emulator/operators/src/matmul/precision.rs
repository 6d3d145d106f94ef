//! Rounding of operands before a product.

use crate::dtype::AclType;
use crate::lane::Lane as _;

/// Rounding of f32 operands before multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandRounding {
    Keep,
    /// 19-bit float of the cube unit: 8 exponent bits, 10 fraction bits.
    HalfFloat32,
    /// Half precision: 5 exponent bits, 10 fraction bits.
    Half,
}

impl OperandRounding {
    pub(crate) fn apply(self, values: &mut [f32]) {
        match self {
            Self::Keep => {}
            Self::HalfFloat32 => {
                for value in values {
                    let bits = value.to_bits();
                    let rounded = bits.wrapping_add(0xfff + ((bits >> 13) & 1)) & !0x1fff;
                    *value = if value.is_finite() { f32::from_bits(rounded) } else { *value };
                }
            }
            Self::Half => {
                for value in values {
                    *value = value.rounded(AclType::F16);
                }
            }
        }
    }
}
