//! Element types: numbering, size, printed names and type promotion.
//!
//! Only types with emulated arithmetic have an [`AclType`]. Names are spelled as in the operator
//! documentation. Kernels compute on the FLOAT parts of the one complex type.

use std::fmt;

/// An element type with emulated arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AclType {
    /// IEEE single precision (32 bits).
    F32,
    /// IEEE half precision (16 bits).
    F16,
    /// Upper half of an IEEE single: 8 exponent bits.
    BF16,
    /// IEEE double precision (64 bits).
    F64,
    /// Signed integer of 8 bits.
    I8,
    /// Signed integer of 16 bits.
    I16,
    /// Signed integer of 32 bits.
    I32,
    /// Signed integer of 64 bits.
    I64,
    /// Unsigned integer of 8 bits.
    U8,
    /// Unsigned integer of 16 bits.
    U16,
    /// Unsigned integer of 32 bits.
    U32,
    /// Unsigned integer of 64 bits.
    U64,
    /// Boolean in one byte: nonzero is true, 0 or 1 is written.
    Bool,
    /// Complex number: real and imaginary part in single precision.
    C64,
}

/// Type of an accumulator: see [`crate::lane`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneKind {
    Single,
    Double,
    /// Integers and booleans wrap around.
    Integer,
}

impl AclType {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 13] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::F64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::Bool,
    ];

    /// Returns the type of an `aclDataType` code (`sys/include/acl.h`), if supported.
    pub const fn from_acl(code: i32) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::I8,
            3 => Self::I32,
            4 => Self::U8,
            6 => Self::I16,
            7 => Self::U16,
            8 => Self::U32,
            9 => Self::I64,
            10 => Self::U64,
            11 => Self::F64,
            12 => Self::Bool,
            16 => Self::C64,
            27 => Self::BF16,
            _ => return None,
        })
    }

    /// Returns the size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 | Self::C64 => 8,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::F32 => "FLOAT",
            Self::F16 => "FLOAT16",
            Self::BF16 => "BFLOAT16",
            Self::F64 => "DOUBLE",
            Self::I8 => "INT8",
            Self::I16 => "INT16",
            Self::I32 => "INT32",
            Self::I64 => "INT64",
            Self::U8 => "UINT8",
            Self::U16 => "UINT16",
            Self::U32 => "UINT32",
            Self::U64 => "UINT64",
            Self::Bool => "BOOL",
            Self::C64 => "COMPLEX64",
        }
    }

    pub(crate) const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F64)
    }

    /// Complex types use their parts.
    pub(crate) const fn lane(self) -> LaneKind {
        match self {
            Self::F32 | Self::F16 | Self::BF16 | Self::C64 => LaneKind::Single,
            Self::F64 => LaneKind::Double,
            _ => LaneKind::Integer,
        }
    }

    /// Follows the documented "type deduction rules", which match PyTorch tensors. Unsigned 16 to
    /// 64 bits and complex have no common type with others.
    pub(crate) fn promote(self, other: Self) -> Option<Self> {
        if self == other {
            return Some(self);
        }
        let is_alone = |dtype| matches!(dtype, Self::U16 | Self::U32 | Self::U64 | Self::C64);
        if is_alone(self) || is_alone(other) {
            return None;
        }
        Some(match (self.is_float(), other.is_float()) {
            (true, true) => match (self, other) {
                (Self::F64, _) | (_, Self::F64) => Self::F64,
                _ => Self::F32,
            },
            (true, false) => self,
            (false, true) => other,
            (false, false) => match (self, other) {
                (Self::Bool, integer) | (integer, Self::Bool) => integer,
                (Self::U8, Self::I8) | (Self::I8, Self::U8) => Self::I16,
                _ if self.size() >= other.size() => self,
                _ => other,
            },
        })
    }

    /// A float never becomes an integer, and only a boolean becomes a boolean.
    pub(crate) fn can_cast(self, out: Self) -> bool {
        if self == out {
            return true;
        }
        if self.is_float() && !out.is_float() || self == Self::C64 {
            return false;
        }
        !matches!(out, Self::Bool | Self::C64)
    }
}

impl fmt::Display for AclType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Joins the names for messages and tables.
pub(crate) fn list_names(dtypes: &[AclType]) -> String {
    dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_symmetric_and_idempotent() {
        for a in AclType::ALL {
            assert_eq!(a.promote(a), Some(a));
            for b in AclType::ALL {
                assert_eq!(a.promote(b), b.promote(a), "{a} with {b}");
            }
        }
    }

    #[test]
    fn promotion_of_known_pairs() {
        assert_eq!(AclType::F16.promote(AclType::BF16), Some(AclType::F32));
        assert_eq!(AclType::I64.promote(AclType::F16), Some(AclType::F16));
        assert_eq!(AclType::I32.promote(AclType::I64), Some(AclType::I64));
        assert_eq!(AclType::U8.promote(AclType::I8), Some(AclType::I16));
        assert_eq!(AclType::Bool.promote(AclType::I32), Some(AclType::I32));
        assert_eq!(AclType::U32.promote(AclType::I32), None);
    }

    #[test]
    fn casts_never_drop_a_fraction_silently() {
        assert!(AclType::I32.can_cast(AclType::F16));
        assert!(AclType::F32.can_cast(AclType::BF16));
        assert!(!AclType::F32.can_cast(AclType::I64));
        assert!(!AclType::I32.can_cast(AclType::Bool));
        assert!(AclType::Bool.can_cast(AclType::I32));
    }

    #[test]
    fn codes_round_trip_to_the_documented_numbers() {
        assert_eq!(AclType::from_acl(27), Some(AclType::BF16));
        assert_eq!(AclType::from_acl(12), Some(AclType::Bool));
        assert_eq!(AclType::from_acl(17), None, "COMPLEX128 is not modelled");
    }
}
