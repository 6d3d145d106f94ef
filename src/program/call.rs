//! What a card is asked to do: one aclnn operator a [`Call`], on views of buffers.
//!
//! Calls are data: `npu` makes them from an op, `schedule` places their buffers, `exec` hands them to `device`. Each
//! variant is one aclnn operator and names it; a call is legal on a 910B for the element types and shapes it is made
//! with.

use std::fmt;

use smallvec::{SmallVec, smallvec};

use crate::base::{DType, Dims, Id, Shape, define_id};

define_id!(
    /// A buffer of one card: a shard of a value, or a temporary of one op.
    BufferId,
    "b"
);

/// A strided window on a buffer; offset and strides in elements.
#[derive(Clone, PartialEq, Eq)]
pub struct View {
    /// The buffer.
    pub buffer: BufferId,
    /// First element.
    pub offset: usize,
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Shape,
    /// Distance between neighbours of each dim; 0 repeats.
    pub strides: Dims,
}

impl View {
    /// A whole contiguous tensor at the start of a buffer.
    #[must_use]
    pub fn contiguous(buffer: BufferId, dtype: DType, shape: Shape) -> Self {
        Self { buffer, offset: 0, dtype, strides: shape.strides(), shape }
    }

    /// Whether the elements lie densely in row-major order.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let dense = self.shape.strides();
        self.shape
            .iter()
            .zip(self.strides.iter().zip(&dense))
            .all(|(size, (found, dense))| *size == 1 || found == dense)
    }

    /// Number of elements.
    #[must_use]
    pub fn elems(&self) -> usize {
        self.shape.elems()
    }

    /// Bytes of the elements, each once.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.elems() * self.dtype.size_bytes()
    }

    /// The smallest range of elements of the buffer that holds the view.
    #[must_use]
    pub fn span(&self) -> std::ops::Range<usize> {
        if self.elems() == 0 {
            return self.offset..self.offset;
        }
        let last: usize = self.shape.iter().zip(&self.strides).map(|(size, stride)| (size - 1) * stride).sum();
        self.offset..self.offset + last + 1
    }

    /// The view's elements, row-major, from the bytes of its [`span`](View::span).
    #[must_use]
    pub fn gather(&self, span: &[u8]) -> Vec<u8> {
        let size = self.dtype.size_bytes();
        let mut bytes = Vec::with_capacity(self.len_bytes());
        for mut flat in 0..self.elems() {
            let mut at = 0;
            for (extent, stride) in self.shape.iter().zip(&self.strides).rev() {
                at += flat % extent * stride;
                flat /= extent;
            }
            bytes.extend_from_slice(&span[at * size..(at + 1) * size]);
        }
        bytes
    }

    /// Elements `start..start + size` of dim `dim`.
    #[must_use]
    pub fn narrow(&self, dim: usize, start: usize, size: usize) -> Self {
        let mut view = self.clone();
        view.offset += start * self.strides[dim];
        view.shape = self.shape.with(dim, size);
        view
    }

    /// Dims in another order.
    #[must_use]
    pub fn permute(&self, dims: &[usize]) -> Self {
        let mut view = self.clone();
        view.shape = dims.iter().map(|dim| self.shape[*dim]).collect();
        view.strides = dims.iter().map(|dim| self.strides[*dim]).collect();
        view
    }

    /// A new dim of size `size` at `dim` that repeats the elements.
    #[must_use]
    pub fn repeat(&self, dim: usize, size: usize) -> Self {
        let mut view = self.clone();
        let mut sizes = Dims::from_slice(&self.shape);
        sizes.insert(dim, size);
        view.shape = sizes.into();
        view.strides.insert(dim, 0);
        view
    }

    /// The same elements under another shape, or `None` where strides do not allow it without a copy.
    #[must_use]
    pub fn reshape(&self, shape: impl Into<Shape>) -> Option<Self> {
        let shape = shape.into();
        if shape.elems() != self.elems() {
            return None;
        }
        // Merge the view to its longest dense runs, then cut the runs to the new sizes.
        let mut runs: SmallVec<[(usize, usize); 5]> = SmallVec::new();
        for (size, stride) in self.shape.iter().copied().zip(self.strides.iter().copied()) {
            match runs.last_mut() {
                _ if size == 1 => {}
                Some((count, inner)) if *inner == size * stride => (*count, *inner) = (*count * size, stride),
                _ => runs.push((size, stride)),
            }
        }
        let mut strides: Dims = smallvec![0; shape.rank()];
        let mut run = runs.pop().unwrap_or((1, 1));
        for dim in (0..shape.rank()).rev() {
            let size = shape[dim];
            if size == 1 || self.elems() == 0 {
                strides[dim] = run.1;
                continue;
            }
            if run.0 == 1 {
                run = runs.pop()?;
            }
            if !run.0.is_multiple_of(size) {
                return None;
            }
            strides[dim] = run.1;
            run = (run.0 / size, run.1 * size);
        }
        Some(Self { shape, strides, ..self.clone() })
    }
}

impl fmt::Display for View {
    /// `b3+64:f32[2,4]`, with strides behind a slash where they are not dense.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.buffer)?;
        if self.offset > 0 {
            write!(f, "+{}", self.offset)?;
        }
        write!(f, ":{}{}", self.dtype, self.shape)?;
        if self.strides != self.shape.strides() {
            write!(f, "/{}", Shape::from(self.strides.clone()))?;
        }
        Ok(())
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The views a step reads or writes, few enough to lie in place.
pub type Views<'a> = SmallVec<[&'a View; 5]>;

/// A constant operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// For float tensors.
    Float(f64),
    /// For integer tensors.
    Int(i64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(x) => write!(f, "{x:?}"),
            Self::Int(x) => write!(f, "{x}"),
        }
    }
}

/// One operand or attribute of a call, in texts.
trait Argument: Sized {
    fn parse(text: &str) -> Option<Self>;
}

impl Argument for View {
    /// The inverse of its `Display`.
    fn parse(text: &str) -> Option<Self> {
        let (place, rest) = text.split_once(':')?;
        let (buffer, offset) = place.split_once('+').unwrap_or((place, "0"));
        let (typed, strides) = rest.split_once('/').map_or((rest, None), |(typed, strides)| (typed, Some(strides)));
        let (dtype, sizes) = typed.split_at(typed.find('[')?);
        let list = |text: &str| -> Option<Dims> {
            let inner = text.strip_prefix('[')?.strip_suffix(']')?;
            inner.split(',').filter(|size| !size.is_empty()).map(|size| size.parse().ok()).collect()
        };
        let shape = Shape::from(list(sizes)?);
        Some(Self {
            buffer: BufferId::from_index(buffer.strip_prefix('b')?.parse().ok()?),
            offset: offset.parse().ok()?,
            dtype: dtype.parse().ok()?,
            strides: strides.map_or_else(|| Some(shape.strides()), list)?,
            shape,
        })
    }
}

impl Argument for Number {
    /// Floats always print with a point, an exponent or as infinity, so that an integer is one.
    fn parse(text: &str) -> Option<Self> {
        text.parse().map(Self::Int).or_else(|_| text.parse().map(Self::Float)).ok()
    }
}

impl Argument for usize {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Argument for f64 {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl View {
    /// The view of a text such as `b3+64:f32[2,4]`; the inverse of its `Display`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Argument::parse(text)
    }
}

/// A number in a form that parses to the same number.
struct Exact<'a, T>(&'a T);

impl fmt::Display for Exact<'_, usize> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Exact<'_, f64> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Display for Exact<'_, Number> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The fields of a call's text: `a=b3:f32[2]`, `out->b4:f32[2]`, `into<->b5:f32[2]`.
fn fields(text: &str) -> Vec<(&str, &str)> {
    let field = |token| ["<->", "->", "="].iter().find_map(|mark| str::split_once(token, mark));
    text.split(' ').filter_map(field).collect()
}

impl Argument for Box<View> {
    fn parse(text: &str) -> Option<Self> {
        View::parse(text).map(Self::new)
    }
}

/// Defines the calls: variant, aclnn name, what is read, what is written (a tensor that is both stands in both), and
/// other arguments. Where operands are many, `elsewhere` has those that are read and those that are written: they are kept
/// outside, so that no other call is as large as all of them.
macro_rules! calls {
    ($( $(#[$doc:meta])* $name:ident $aclnn:literal reads($($read:ident),*) $(maybe($maybe:ident))? $(elsewhere($($far:ident),* -> $($into:ident),*))? writes($($write:ident),*) $(both($($both:ident),*))? args($($arg:ident: $ty:ty),*); )*) => {
        /// One aclnn operator with its operands.
        #[derive(Clone, Debug, PartialEq)]
        #[expect(missing_docs, reason = "operand names are those of the aclnn operator, which the variant's doc cites")]
        pub enum Call {
            $( $(#[$doc])* $name {
                $($read: View,)*
                $($maybe: Option<View>,)?
                $($($far: Box<View>,)* $($into: Box<View>,)*)?
                $($write: View,)*
                $($($both: View,)*)?
                $($arg: $ty,)*
            }, )*
        }

        impl Call {
            /// The aclnn operator.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $( Self::$name { .. } => $aclnn, )* }
            }

            /// Views whose elements are read.
            #[must_use]
            pub fn reads(&self) -> Views<'_> {
                match self { $( Self::$name { $($read,)* $($maybe,)? $($($far,)*)? $($($both,)*)? .. } => {
                    let reads: Views<'_> = smallvec![$($read,)* $($(&**$far,)*)? $($($both,)*)?];
                    $( let reads = reads.into_iter().chain($maybe).collect(); )?
                    reads
                } )* }
            }

            /// Views whose elements are written.
            #[must_use]
            pub fn writes(&self) -> Views<'_> {
                match self { $( Self::$name { $($($into,)*)? $($write,)* $($($both,)*)? .. } => {
                    smallvec![$($(&**$into,)*)? $($write,)* $($($both,)*)?]
                } )* }
            }
        }

        impl Call {
            /// The call of a text; the inverse of its `Display`.
            ///
            /// # Errors
            /// A sentence naming an unknown operator, or a field that is missing or no value of its type.
            pub fn parse(text: &str) -> Result<Self, String> {
                let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
                let fields = fields(rest);
                let find = |key: &str| fields.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
                fn read<T: Argument>(name: &str, key: &str, value: Option<&str>) -> Result<T, String> {
                    let value = value.ok_or_else(|| format!("`{name}` lacks `{key}`"))?;
                    T::parse(value).ok_or_else(|| format!("`{value}` is no value of `{key}`"))
                }
                $( if name == $aclnn {
                    return Ok(Self::$name {
                        $($read: read(name, stringify!($read), find(stringify!($read)))?,)*
                        $($maybe: find(stringify!($maybe)).map(|text| read(name, stringify!($maybe), Some(text))).transpose()?,)?
                        $($($far: read(name, stringify!($far), find(stringify!($far)))?,)*)?
                        $($($into: read(name, stringify!($into), find(stringify!($into)))?,)*)?
                        $($write: read(name, stringify!($write), find(stringify!($write)))?,)*
                        $($($both: read(name, stringify!($both), find(stringify!($both)))?,)*)?
                        $($arg: read(name, stringify!($arg), find(stringify!($arg)))?,)*
                    });
                } )*
                Err(format!("`{name}` is no operator"))
            }
        }

        impl fmt::Display for Call {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $( Self::$name { $($read,)* $($maybe,)? $($($far,)* $($into,)*)? $($write,)* $($($both,)*)? $($arg,)* } => {
                    f.write_str($aclnn)?;
                    $( write!(f, " {}={}", stringify!($read), $read)?; )*
                    $( if let Some($maybe) = $maybe { write!(f, " {}={}", stringify!($maybe), $maybe)?; } )?
                    $( $( write!(f, " {}={}", stringify!($far), $far)?; )* )?
                    $( $( write!(f, " {}->{}", stringify!($into), $into)?; )* )?
                    $( write!(f, " {}->{}", stringify!($write), $write)?; )*
                    $($( write!(f, " {}<->{}", stringify!($both), $both)?; )*)?
                    $( write!(f, " {}={}", stringify!($arg), Exact($arg))?; )*
                    Ok(())
                } )* }
            }
        }
    };
}

calls! {
    /// `out = a @ b`, batch dims broadcast.
    Matmul "aclnnMatmul" reads(a, b) writes(out) args();
    /// `scales[r] = max |x[r]| / 127`, `out[r] = round(x[r] / scales[r])`; x, out `[r,k]`, out i8, scales f32.
    DynamicQuant "aclnnDynamicQuant" reads(x) writes(out, scales) args();
    /// `out[r,n] = (Σ x[r,k] · w[n,k]) · scale[n] · tokens[r]`; x, w i8, scale, tokens f32.
    QuantMatmul "aclnnQuantMatmulV4" reads(x, w, scale, tokens) writes(out) args();
    /// `out = a + b`.
    Add "aclnnAdd" reads(a, b) writes(out) args();
    /// `out = a · b`.
    Mul "aclnnMul" reads(a, b) writes(out) args();
    /// `out = a - b`.
    Sub "aclnnSub" reads(a, b) writes(out) args();
    /// `out = a / b`.
    Div "aclnnDiv" reads(a, b) writes(out) args();
    /// `out = e^x`.
    Exp "aclnnExp" reads(x) writes(out) args();
    /// `out = ln x`.
    Log "aclnnLog" reads(x) writes(out) args();
    /// `out = √x`.
    Sqrt "aclnnSqrt" reads(x) writes(out) args();
    /// `out = 1 / x`.
    Reciprocal "aclnnReciprocal" reads(x) writes(out) args();
    /// `out = by · x`.
    Muls "aclnnMuls" reads(x) writes(out) args(by: Number);
    /// `out = x + by`.
    Adds "aclnnAdds" reads(x) writes(out) args(by: Number);
    /// `out = x · sigmoid(x)`.
    Silu "aclnnSilu" reads(x) writes(out) args();
    /// Normalises the last dim; `rstd` is f32.
    RmsNorm "aclnnRmsNorm" reads(x, gamma) writes(out, rstd) args(epsilon: f64);
    /// x, out `[b,s,n,d]`; cos, sin `[b,s,1,d]`; halves rotated.
    Rotary "aclnnRotaryPositionEmbedding" reads(x, cos, sin) writes(out) args();
    /// Rows of `table [v,h]` by `ids`.
    Embedding "aclnnEmbedding" reads(table, ids) writes(out) args();
    /// Writes rows `rows` over rows `index` of dim `dim` of `into`.
    IndexCopy "aclnnInplaceIndexCopy" reads(index, rows) writes() both(into) args(dim: usize);
    /// Adds rows `rows` to rows `index` of dim `dim` of `into`.
    IndexAdd "aclnnIndexAdd" reads(index, rows) writes() both(into) args(dim: usize);
    /// `into[i][index[i][j][k]][k] += from[i][j][k]` for dim 1.
    ScatterAdd "aclnnScatterAdd" reads(index, from) writes() both(into) args(dim: usize);
    /// `out[i][j][k] = x[i][index[i][j][k]][k]` for dim 1.
    Gather "aclnnGather" reads(x, index) writes(out) args(dim: usize);
    /// Over one dim.
    Softmax "aclnnSoftmax" reads(x) writes(out) args(dim: usize);
    /// Largest element over one dim and the first index that has it.
    MaxDim "aclnnMaxDim" reads(x) writes(values, indices) args(dim: usize);
    /// Sum over one dim.
    ReduceSum "aclnnReduceSum" reads(x) writes(out) args(dim: usize);
    /// `out = min(max(x, low), high)`.
    Clamp "aclnnClamp" reads(x) writes(out) args(low: Number, high: Number);
    /// `out = a != b`.
    Ne "aclnnNeTensor" reads(a, b) writes(out) args();
    /// Elements of `into` where `mask` is true become `value`.
    MaskedFill "aclnnInplaceMaskedFillScalar" reads(mask) writes() both(into) args(value: Number);
    /// Converts the element type.
    Cast "aclnnCast" reads(x) writes(out) args();
    /// Copies between any strides.
    Copy "aclnnInplaceCopy" reads(from) writes(into) args();
    /// Zeros.
    Zero "aclnnInplaceZero" reads() writes(into) args();
    /// One value everywhere.
    Fill "aclnnInplaceFillScalar" reads() writes(into) args(value: Number);
    /// Attention over the whole of `k`, `v` (layout BSND), `mask [b,1,s,t]` true = hidden.
    FusedAttention "aclnnFusedInferAttentionScoreV2" reads(q, k, v) maybe(mask) writes(out) args(heads: usize, kv_heads: usize, scale: f64);
    /// The same with what its gradient needs of each row: `max` and `sum`, f32 `[b,n,s,8]`, the greatest score and the sum of the
    /// exponentials below it, eight times.
    FlashAttention "aclnnFlashAttentionScore" reads() elsewhere(q, k, v, mask -> max, sum, out) writes() args(heads: usize, scale: f64);
    /// Its gradients, of what it took and gave and of the cotangent `dy` of `out`.
    FlashAttentionGrad "aclnnFlashAttentionScoreGrad" reads() elsewhere(q, k, v, dy, mask, max, sum, out -> dq, dk, dv) writes() args(heads: usize, scale: f64);
    /// `dx` and `dgamma`, f32, of the cotangent `dy` of [`Call::RmsNorm`].
    RmsNormGrad "aclnnRmsNormGrad" reads(dy, x, rstd, gamma) writes(dx, dgamma) args();
    /// `out = dy · silu'(x)`.
    SiluGrad "aclnnSiluBackward" reads(dy, x) writes(out) args();
    /// A step of `AdamW` at rate 1 with moments `m` and `v`; `step`, f32, counts those before it.
    AdamW "aclnnApplyAdamWV2" reads(grad, step) writes() both(w, m, v) args(beta1: f64, beta2: f64, decay: f64, epsilon: f64);
    /// `out = a + weight · (b - a)`.
    Lerp "aclnnLerp" reads(a, b, weight) writes(out) args();
}
