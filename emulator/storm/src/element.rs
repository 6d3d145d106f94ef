//! Element types of HCCL, and reductions.
//!
//! Integers wrap. Inputs of float reductions are small whole numbers, so the order of additions
//! does not matter.

use ascend_tp_sys::{HcclDataType, HcclReduceOp};
use half::{bf16, f16};

use crate::random::scramble;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StormElement {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
    Bf16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduction {
    Sum,
    Prod,
    Max,
    Min,
}

impl StormElement {
    pub(crate) const MOVED: &[Self] = &[
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bf16,
    ];
    pub(crate) const REDUCED: &[Self] =
        &[Self::I8, Self::I16, Self::I32, Self::F16, Self::F32, Self::Bf16, Self::I64];
    /// Types with uneven reduce-scatter.
    pub(crate) const REDUCED_UNEVENLY: usize = 6;
    pub(crate) const MULTIPLIED: &[Self] = &[Self::I8, Self::I32, Self::I64, Self::F16, Self::F32];

    #[must_use]
    pub(crate) const fn bytes(self) -> u64 {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Only small whole numbers may be summed in such a type.
    #[must_use]
    pub(crate) const fn rounds(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64 | Self::Bf16)
    }

    #[must_use]
    pub(crate) const fn hccl(self) -> HcclDataType {
        match self {
            Self::I8 => HcclDataType::HCCL_DATA_TYPE_INT8,
            Self::I16 => HcclDataType::HCCL_DATA_TYPE_INT16,
            Self::I32 => HcclDataType::HCCL_DATA_TYPE_INT32,
            Self::I64 => HcclDataType::HCCL_DATA_TYPE_INT64,
            Self::U8 => HcclDataType::HCCL_DATA_TYPE_UINT8,
            Self::U16 => HcclDataType::HCCL_DATA_TYPE_UINT16,
            Self::U32 => HcclDataType::HCCL_DATA_TYPE_UINT32,
            Self::U64 => HcclDataType::HCCL_DATA_TYPE_UINT64,
            Self::F16 => HcclDataType::HCCL_DATA_TYPE_FP16,
            Self::F32 => HcclDataType::HCCL_DATA_TYPE_FP32,
            Self::F64 => HcclDataType::HCCL_DATA_TYPE_FP64,
            Self::Bf16 => HcclDataType::HCCL_DATA_TYPE_BFP16,
        }
    }

    /// Returns numbers -2, -1, 1 or 2, selected by `salt`. Products of eight are exact in every
    /// type.
    #[must_use]
    pub(crate) fn small(self, salt: u64, count: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((count * self.bytes()) as usize);
        let mut drawn = 0;
        for at in 0..count {
            if at % 32 == 0 {
                drawn = scramble(salt.wrapping_add(at));
            }
            let value = [-2_i8, -1, 1, 2][(drawn >> (2 * (at % 32)) & 3) as usize];
            match self {
                Self::I8 | Self::U8 => bytes.extend(value.to_le_bytes()),
                Self::I16 | Self::U16 => bytes.extend(i16::from(value).to_le_bytes()),
                Self::I32 | Self::U32 => bytes.extend(i32::from(value).to_le_bytes()),
                Self::I64 | Self::U64 => bytes.extend(i64::from(value).to_le_bytes()),
                Self::F16 => bytes.extend(f16::from(value).to_le_bytes()),
                Self::Bf16 => bytes.extend(bf16::from(value).to_le_bytes()),
                Self::F32 => bytes.extend(f32::from(value).to_le_bytes()),
                Self::F64 => bytes.extend(f64::from(value).to_le_bytes()),
            }
        }
        bytes
    }
}

impl Reduction {
    #[must_use]
    pub(crate) const fn hccl(self) -> HcclReduceOp {
        match self {
            Self::Sum => HcclReduceOp::HCCL_REDUCE_SUM,
            Self::Prod => HcclReduceOp::HCCL_REDUCE_PROD,
            Self::Max => HcclReduceOp::HCCL_REDUCE_MAX,
            Self::Min => HcclReduceOp::HCCL_REDUCE_MIN,
        }
    }
}

pub(crate) fn fold(into: &mut [u8], from: &[u8], element: StormElement, reduction: Reduction) {
    macro_rules! whole {
        ($type:ty) => {
            each::<{ size_of::<$type>() }>(into, from, |a, b| {
                let (a, b) = (<$type>::from_le_bytes(a), <$type>::from_le_bytes(b));
                let folded = match reduction {
                    Reduction::Sum => a.wrapping_add(b),
                    Reduction::Prod => a.wrapping_mul(b),
                    Reduction::Max => a.max(b),
                    Reduction::Min => a.min(b),
                };
                folded.to_le_bytes()
            })
        };
    }
    macro_rules! float {
        ($type:ty) => {
            each::<{ size_of::<$type>() }>(into, from, |a, b| {
                let (a, b) = (<$type>::from_le_bytes(a), <$type>::from_le_bytes(b));
                let folded = match reduction {
                    Reduction::Sum => a + b,
                    Reduction::Prod => a * b,
                    Reduction::Max => {
                        if a > b {
                            a
                        } else {
                            b
                        }
                    }
                    Reduction::Min => {
                        if a < b {
                            a
                        } else {
                            b
                        }
                    }
                };
                folded.to_le_bytes()
            })
        };
    }
    match element {
        StormElement::I8 => whole!(i8),
        StormElement::I16 => whole!(i16),
        StormElement::I32 => whole!(i32),
        StormElement::I64 => whole!(i64),
        StormElement::U8 => whole!(u8),
        StormElement::U16 => whole!(u16),
        StormElement::U32 => whole!(u32),
        StormElement::U64 => whole!(u64),
        StormElement::F16 => float!(f16),
        StormElement::Bf16 => float!(bf16),
        StormElement::F32 => float!(f32),
        StormElement::F64 => float!(f64),
    }
}

fn each<const N: usize>(into: &mut [u8], from: &[u8], fold: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let (into, _) = into.as_chunks_mut::<N>();
    let (from, _) = from.as_chunks::<N>();
    for (into, from) in into.iter_mut().zip(from) {
        *into = fold(*into, *from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_eight_small_numbers_are_exact_in_every_type_and_order() {
        for element in StormElement::REDUCED.iter().copied() {
            let ranks: Vec<Vec<u8>> = (0..8).map(|rank| element.small(rank, 100)).collect();
            for reduction in [Reduction::Sum, Reduction::Max, Reduction::Min] {
                let folded = |order: &mut dyn Iterator<Item = &Vec<u8>>| {
                    let mut total = order.next().expect("eight").clone();
                    order.for_each(|rank| fold(&mut total, rank, element, reduction));
                    total
                };
                assert_eq!(
                    folded(&mut ranks.iter()),
                    folded(&mut ranks.iter().rev()),
                    "{element:?} {reduction:?}"
                );
            }
        }
    }

    #[test]
    fn integers_wrap() {
        let mut total = vec![200_u8];
        fold(&mut total, &[100], StormElement::U8, Reduction::Sum);
        assert_eq!(total, [44]);
        let mut largest = 1_i16.to_le_bytes();
        fold(&mut largest, &(-1_i16).to_le_bytes(), StormElement::I16, Reduction::Max);
        assert_eq!(largest, [1, 0]);
    }
}
