//! Whole tensors in host memory.
//!
//! - Input: numbers, or bytes in the card's layout.
//! - Output: a [`HostTensor`] with type and shape, and the bytes again.
//! - Invariants: floats are representable in their type. The number of elements is the shape's.
//! - Not here: computation (see `program::interpret`).

use half::{bf16, f16};
use smallvec::smallvec;

use super::shape::Positions;
use super::{DType, Dims, Reduce, Shape};

/// A whole tensor in host memory. 16-bit floats are stored as f32 and are always representable in
/// their type.
///
/// ```
/// use ascend_tp::{DType, HostTensor};
///
/// let tensor = HostTensor::float([2, 2], DType::BF16, vec![1.0, 2.0, 3.0, 4.0]);
/// assert_eq!(tensor.shape.sizes(), [2, 2]);
/// assert_eq!(tensor.floats()[3], 4.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Sizes of the dims.
    pub shape: Shape,
    /// Element type of the tensor.
    pub dtype: DType,
    /// The elements in row-major order.
    pub data: HostData,
}

/// Elements of a [`HostTensor`].
#[derive(Clone, Debug, PartialEq)]
pub enum HostData {
    /// Elements of f32, f16 and bf16.
    Float(Vec<f32>),
    /// Elements of i32, i64, i8, u8 and bool (0 or 1), and the bits of f8e4m3.
    Int(Vec<i64>),
}

/// Rounds `x` to the nearest value of `dtype`, ties to even.
pub(crate) fn round(dtype: DType, x: f32) -> f32 {
    match dtype {
        DType::F16 => f16::from_f32(x).to_f32(),
        DType::BF16 => bf16::from_f32(x).to_f32(),
        DType::F32 | DType::I32 | DType::I64 | DType::I8 | DType::U8 | DType::F8E4M3 | DType::Bool => x,
    }
}

impl HostTensor {
    /// Creates a float tensor. Elements are rounded to `dtype`.
    ///
    /// # Panics
    /// If the number of elements is not the shape's, or `dtype` is not a float.
    #[must_use]
    pub fn float(shape: impl Into<Shape>, dtype: DType, data: Vec<f32>) -> Self {
        let shape = shape.into();
        assert_eq!(shape.elems(), data.len(), "elements of a tensor of shape {shape}");
        assert!(dtype.is_float(), "{dtype} is no float");
        let data = data.into_iter().map(|x| round(dtype, x)).collect();
        Self { shape, dtype, data: HostData::Float(data) }
    }

    /// Creates an i32, i64, i8 or bool tensor.
    ///
    /// # Panics
    /// If the number of elements is not the shape's, or `dtype` is a float.
    #[must_use]
    #[doc(hidden)]
    pub fn int(shape: impl Into<Shape>, dtype: DType, data: Vec<i64>) -> Self {
        let shape = shape.into();
        assert_eq!(shape.elems(), data.len(), "elements of a tensor of shape {shape}");
        assert!(!dtype.is_float(), "{dtype} is a float");
        Self { shape, dtype, data: HostData::Int(data) }
    }

    /// Creates a tensor of zeros.
    #[must_use]
    pub fn zeros(shape: impl Into<Shape>, dtype: DType) -> Self {
        let shape = shape.into();
        let elems = shape.elems();
        if dtype.is_float() {
            Self::float(shape, dtype, vec![0.0; elems])
        } else {
            Self::int(shape, dtype, vec![0; elems])
        }
    }

    /// Returns the elements of a float tensor. An integer tensor has none.
    #[must_use]
    pub fn floats(&self) -> &[f32] {
        match &self.data {
            HostData::Float(data) => data,
            HostData::Int(_) => &[],
        }
    }

    /// Returns the elements of an integer tensor. A float tensor has none.
    #[must_use]
    #[doc(hidden)]
    pub fn ints(&self) -> &[i64] {
        match &self.data {
            HostData::Int(data) => data,
            HostData::Float(_) => &[],
        }
    }

    /// Returns the elements in the card's layout, little-endian.
    #[must_use]
    #[doc(hidden)]
    pub fn to_bytes(&self) -> Vec<u8> {
        let floats = self.floats().iter();
        let ints = self.ints().iter();
        match self.dtype {
            DType::F32 => floats.flat_map(|x| x.to_le_bytes()).collect(),
            DType::F16 => floats.flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
            DType::BF16 => floats.flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
            DType::I32 => ints.flat_map(|x| i32::try_from(*x).unwrap_or(i32::MAX).to_le_bytes()).collect(),
            DType::I64 => ints.flat_map(|x| x.to_le_bytes()).collect(),
            DType::I8 => ints.flat_map(|x| i8::try_from(*x).unwrap_or(i8::MAX).to_le_bytes()).collect(),
            DType::U8 | DType::F8E4M3 => ints.map(|x| u8::try_from(*x).unwrap_or(u8::MAX)).collect(),
            DType::Bool => ints.map(|x| u8::from(*x != 0)).collect(),
        }
    }

    /// Creates a tensor from bytes in the card's layout.
    ///
    /// # Panics
    /// If the number of bytes does not match the shape.
    #[must_use]
    #[doc(hidden)]
    pub fn from_bytes(shape: impl Into<Shape>, dtype: DType, bytes: &[u8]) -> Self {
        let shape = shape.into();
        assert_eq!(
            shape.elems() * dtype.size_bytes(),
            bytes.len(),
            "bytes of a {dtype} tensor of shape {shape}"
        );
        fn map<const N: usize, T>(bytes: &[u8], f: impl Fn([u8; N]) -> T) -> Vec<T> {
            bytes.as_chunks::<N>().0.iter().map(|chunk| f(*chunk)).collect()
        }
        let data = match dtype {
            DType::F32 => HostData::Float(map(bytes, f32::from_le_bytes)),
            DType::F16 => HostData::Float(map(bytes, |b| f16::from_le_bytes(b).to_f32())),
            DType::BF16 => HostData::Float(map(bytes, |b| bf16::from_le_bytes(b).to_f32())),
            DType::I32 => HostData::Int(map(bytes, |b| i64::from(i32::from_le_bytes(b)))),
            DType::I64 => HostData::Int(map(bytes, i64::from_le_bytes)),
            DType::I8 => HostData::Int(map(bytes, |b| i64::from(i8::from_le_bytes(b)))),
            DType::U8 | DType::F8E4M3 | DType::Bool => HostData::Int(map(bytes, |[b]| i64::from(b))),
        };
        Self { shape, dtype, data }
    }

    /// Writes `part` into the block `ranges`, or reduces it with the present elements.
    ///
    /// # Panics
    /// If the shape of the part is not the block's, or the element types differ.
    #[doc(hidden)]
    pub fn combine(&mut self, ranges: &[std::ops::Range<usize>], part: &Self, reduce: Option<Reduce>) {
        let strides = self.shape.strides();
        let first: usize = ranges.iter().zip(&strides).map(|(range, stride)| range.start * stride).sum();
        let elements = Positions::new(&part.shape, &strides).map(|position| first + position);
        match (&mut self.data, &part.data) {
            (HostData::Float(whole), HostData::Float(part)) => elements.zip(part).for_each(|(element, x)| {
                whole[element] = match reduce {
                    None => *x,
                    Some(Reduce::Sum | Reduce::Tree) => whole[element] + x,
                    Some(Reduce::Max) => whole[element].max(*x),
                    Some(Reduce::Min) => whole[element].min(*x),
                }
            }),
            (HostData::Int(whole), HostData::Int(part)) => elements.zip(part).for_each(|(element, x)| {
                whole[element] = match reduce {
                    None => *x,
                    Some(Reduce::Sum | Reduce::Tree) => whole[element].wrapping_add(*x),
                    Some(Reduce::Max) => whole[element].max(*x),
                    Some(Reduce::Min) => whole[element].min(*x),
                }
            }),
            _ => panic!("parts of another element type"),
        }
    }
}

/// Iterates over all indices of a shape, last dim fastest.
pub(crate) fn indices(shape: &Shape) -> impl Iterator<Item = Dims> + use<> {
    let sizes = shape.sizes().to_vec();
    (0..shape.elems()).map(move |mut flat| {
        let mut index: Dims = smallvec![0; sizes.len()];
        for dim in (0..sizes.len()).rev() {
            index[dim] = flat % sizes[dim];
            flat /= sizes[dim];
        }
        index
    })
}
