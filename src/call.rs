//! Calls of aclnn operators on views of buffers.
//!
//! A [`Call`] is plain data: `program::npu` creates it from an op, `schedule` places its buffers,
//! and `exec` passes it to `device`. `call/table.rs` has one entry for each. A call is valid on a
//! 910B for the types and shapes it is created with.

mod late;
mod table;
mod text;

use ascend_tp_machine::launch::Access;
use smallvec::{SmallVec, smallvec};

use crate::base::{Argument, DType, Dims, Number, Positions, Shape, define_id};
pub use table::{Call, SOFTPLUS_THRESHOLD};

define_id!(
    /// A buffer of one card: a shard of a value, or a temporary of one op.
    BufferId,
    "b"
);

/// A strided view of a buffer. Offset and strides are in elements.
#[derive(Clone, PartialEq, Eq)]
pub struct View {
    /// The buffer that holds the elements.
    pub buffer: BufferId,
    /// Position of the first element in the buffer.
    pub offset: usize,
    /// Type of the elements.
    pub dtype: DType,
    /// Size of each dim.
    pub shape: Shape,
    /// Stride of each dim; 0 repeats elements.
    pub strides: Dims,
}

impl View {
    /// Creates a dense view at the start of a buffer.
    #[must_use]
    pub fn contiguous(buffer: BufferId, dtype: DType, shape: Shape) -> Self {
        Self { buffer, offset: 0, dtype, strides: shape.strides(), shape }
    }

    /// Returns whether the elements are dense and row-major.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let dense = self.shape.strides();
        self.shape
            .iter()
            .zip(self.strides.iter().zip(&dense))
            .all(|(size, (found, dense))| *size == 1 || found == dense)
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn elems(&self) -> usize {
        self.shape.elems()
    }

    /// Returns the size of the elements, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.elems() * self.dtype.size_bytes()
    }

    /// Returns the smallest range of buffer elements that contains the view.
    #[must_use]
    pub fn span(&self) -> std::ops::Range<usize> {
        if self.elems() == 0 {
            return self.offset..self.offset;
        }
        let last: usize =
            self.shape.iter().zip(&self.strides).map(|(size, stride)| (size - 1) * stride).sum();
        self.offset..self.offset + last + 1
    }

    /// Copies the elements in row-major order from the bytes of the view's [`span`](View::span).
    #[must_use]
    pub fn gather(&self, span: &[u8]) -> Vec<u8> {
        let size = self.dtype.size_bytes();
        let mut bytes = Vec::with_capacity(self.len_bytes());
        if self.is_contiguous() {
            bytes.extend_from_slice(&span[..self.len_bytes()]);
            return bytes;
        }
        for at in Positions::new(&self.shape, &self.strides) {
            bytes.extend_from_slice(&span[at * size..(at + 1) * size]);
        }
        bytes
    }

    /// Restricts dim `dim` to the elements `start..start + size`.
    #[must_use]
    pub fn narrow(&self, dim: usize, start: usize, size: usize) -> Self {
        let mut view = self.clone();
        view.offset += start * self.strides[dim];
        view.shape = self.shape.with(dim, size);
        view
    }

    /// Returns the view with reordered dims.
    #[must_use]
    pub fn permute(&self, dims: &[usize]) -> Self {
        let mut view = self.clone();
        view.shape = dims.iter().map(|dim| self.shape[*dim]).collect();
        view.strides = dims.iter().map(|dim| self.strides[*dim]).collect();
        view
    }

    /// Inserts a dim of size `size` at `dim`, which repeats the elements.
    #[must_use]
    pub fn repeat(&self, dim: usize, size: usize) -> Self {
        let mut view = self.clone();
        let mut sizes = Dims::from_slice(&self.shape);
        sizes.insert(dim, size);
        view.shape = sizes.into();
        view.strides.insert(dim, 0);
        view
    }

    /// Merges adjacent views into one. The views are equal except for the last dim, where each view
    /// starts at the end of the previous one.
    #[must_use]
    pub fn side_by_side(parts: &[Self]) -> Option<Self> {
        let (first, others) = parts.split_first()?;
        let last = first.shape.rank().checked_sub(1)?;
        let dense = |view: &Self| view.shape[last] <= 1 || view.strides[last] == 1;
        let alike = |view: &Self| {
            let lead = |view: &Self| {
                let dims = view.shape.iter().zip(&view.strides).take(last);
                dims.map(|(size, stride)| (*size, if *size > 1 { *stride } else { 0 })).collect::<Vec<_>>()
            };
            (view.buffer, view.dtype, lead(view)) == (first.buffer, first.dtype, lead(first))
        };
        let mut width = first.shape[last];
        for part in others {
            if part.shape.rank() != last + 1
                || part.offset != first.offset + width
                || !alike(part)
                || !dense(part)
            {
                return None;
            }
            width += part.shape[last];
        }
        let mut strides = first.strides.clone();
        strides[last] = 1;
        dense(first).then(|| Self { shape: first.shape.with(last, width), strides, ..first.clone() })
    }

    /// Returns a view of another shape, or `None` if that requires a copy.
    #[must_use]
    pub fn reshape(&self, shape: impl Into<Shape>) -> Option<Self> {
        let shape = shape.into();
        if shape.elems() != self.elems() {
            return None;
        }
        // Merges dims into dense runs, then splits the runs into the new sizes.
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

/// The views that a step reads or writes. A few are stored inline.
pub type Views<'a> = SmallVec<[&'a View; 5]>;

/// A tensor operand of a call, and its access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallOperand<'a> {
    /// The view of the tensor.
    pub view: &'a View,
    /// Access to the tensor: read, written or both.
    pub access: Access,
}

impl CallOperand<'_> {
    const fn read(self) -> Self {
        Self { access: Access::Read, ..self }
    }

    const fn written(self) -> Self {
        Self { access: Access::Write, ..self }
    }

    const fn one(self) -> Number {
        Number::one(self.view.dtype)
    }

    const fn dtype(self) -> DType {
        self.view.dtype
    }

    fn size(self, dim: usize) -> usize {
        self.view.shape[dim]
    }

    /// Returns whether a reduced dim is kept as size 1.
    fn keeps_dims(self, result: Self) -> bool {
        self.view.shape.rank() == result.view.shape.rank()
    }
}

impl<'a> From<CallOperand<'a>> for Argument<CallOperand<'a>> {
    fn from(operand: CallOperand<'a>) -> Self {
        Self::Tensor(operand)
    }
}

trait Field: Sized {
    /// The form among the arguments of the C function.
    type Given<'a>
    where
        Self: 'a;

    fn given(&self, access: Access) -> Self::Given<'_>;

    fn view(&self) -> Option<&View> {
        None
    }

    /// Returns a text that parses to the same value.
    fn text(&self) -> String;

    fn parse(text: &str) -> Option<Self>;
}

impl Field for View {
    type Given<'a> = CallOperand<'a>;

    fn given(&self, access: Access) -> CallOperand<'_> {
        CallOperand { view: self, access }
    }

    fn view(&self) -> Option<&View> {
        Some(self)
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

impl Field for Box<View> {
    type Given<'a> = CallOperand<'a>;

    fn given(&self, access: Access) -> CallOperand<'_> {
        (**self).given(access)
    }

    fn view(&self) -> Option<&View> {
        Some(self)
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        View::parse(text).map(Self::new)
    }
}

impl<'a> From<Option<CallOperand<'a>>> for Argument<CallOperand<'a>> {
    fn from(operand: Option<CallOperand<'a>>) -> Self {
        operand.map_or(Self::Absent, Self::Tensor)
    }
}

/// Text of an optional tensor that is not given.
const NOT_GIVEN: &str = "none";

impl Field for Option<Box<View>> {
    type Given<'a> = Option<CallOperand<'a>>;

    fn given(&self, access: Access) -> Option<CallOperand<'_>> {
        self.as_ref().map(|view| view.given(access))
    }

    fn view(&self) -> Option<&View> {
        self.as_deref()
    }

    fn text(&self) -> String {
        self.as_ref().map_or_else(|| NOT_GIVEN.to_owned(), Field::text)
    }

    fn parse(text: &str) -> Option<Self> {
        if text == NOT_GIVEN { Some(None) } else { Field::parse(text).map(Some) }
    }
}

macro_rules! number_fields {
    ($($type:ty: $text:expr, $parse:expr;)*) => { $(
        impl Field for $type {
            type Given<'a> = Self;

            fn given(&self, _: Access) -> Self {
                *self
            }

            fn text(&self) -> String {
                ($text)(self)
            }

            fn parse(text: &str) -> Option<Self> {
                ($parse)(text)
            }
        }
    )* };
}
number_fields! {
    usize: Self::to_string, |text: &str| text.parse().ok();
    f64: |x| format!("{x:?}"), |text: &str| text.parse().ok();
    Number: Self::to_string, |text: &str| text.parse().map(Self::Int).or_else(|_| text.parse().map(Self::Float)).ok();
}

/// Splits a call's text into fields: `a=b3:f32[2]`, `out->b4:f32[2]`, `into<->b5:f32[2]`.
fn fields(text: &str) -> Vec<(&str, &str)> {
    let field = |token| {
        [Access::Update, Access::Write, Access::Read].iter().find_map(|a| str::split_once(token, mark(*a)))
    };
    text.split(' ').filter_map(field).collect()
}

const fn mark(access: Access) -> &'static str {
    match access {
        Access::Read => "=",
        Access::Write => "->",
        Access::Update => "<->",
    }
}

macro_rules! field {
    (read) => { View };
    (write) => { View };
    (update) => { View };
    (far_read) => { Box<View> };
    (far_write) => { Box<View> };
    (far_update) => { Box<View> };
    (maybe_read) => { Option<Box<View>> };
    (with $type:ty) => { $type };
}

fn access(word: &str) -> Access {
    match word {
        "write" | "far_write" => Access::Write,
        "update" | "far_update" => Access::Update,
        _ => Access::Read,
    }
}

/// Defines the calls: variant, name, fields in text order, and the arguments of the C function.
///
/// A field is a tensor that is read, written or updated, or a number (`with`). Calls with many
/// tensors box them (`far_`), to keep the enum small. An optional tensor (`maybe_read`) is NULL if
/// it is not given.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $name:ident $aclnn:literal { $($mark:ident $field:ident $(: $type:ty)?),* $(,)? } ($($argument:expr),* $(,)?)
    )*) => {
        /// One aclnn operator with its operands.
        #[derive(Clone, Debug, PartialEq)]
        #[expect(missing_docs, reason = "operands are named as in the aclnn operator cited by the variant's doc")]
        pub enum Call { $( $(#[$doc])* $name { $($field: field!($mark $($type)?),)* }, )* }

        impl Call {
            /// Returns the name of the aclnn operator or the kernel.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $( Self::$name { .. } => $aclnn, )* }
            }

            /// Returns the arguments of the C function, except for the last two, which are the same
            /// for all operators.
            #[must_use]
            pub fn arguments(&self) -> Vec<Argument<CallOperand<'_>>> {
                match self { $( Self::$name { $($field,)* } => {
                    $( let $field = Field::given($field, access(stringify!($mark))); )*
                    vec![$(Argument::from($argument),)*]
                } )* }
            }

            /// Returns the views that the call reads.
            #[must_use]
            pub fn reads(&self) -> Views<'_> {
                let mut views = Views::new();
                match self { $( Self::$name { $($field,)* } => {
                    $( if access(stringify!($mark)) != Access::Write { views.extend(Field::view($field)); } )*
                } )* }
                views
            }

            /// Returns the views that the call writes.
            #[must_use]
            pub fn writes(&self) -> Views<'_> {
                let mut views = Views::new();
                match self { $( Self::$name { $($field,)* } => {
                    $( if access(stringify!($mark)) != Access::Read { views.extend(Field::view($field)); } )*
                } )* }
                views
            }

            /// Parses the output of `Display`.
            ///
            /// # Errors
            /// Returns a message that names an unknown operator, or a missing or invalid field.
            pub fn parse(text: &str) -> Result<Self, String> {
                fn read<T: Field>(name: &str, key: &str, fields: &[(&str, &str)]) -> Result<T, String> {
                    let value = fields.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
                    let value = value.ok_or_else(|| format!("`{name}` lacks `{key}`"))?;
                    T::parse(value).ok_or_else(|| format!("`{value}` is no value of `{key}`"))
                }
                let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
                let fields = fields(rest);
                match name {
                    $( $aclnn => Ok(Self::$name { $($field: read(name, stringify!($field), &fields)?,)* }), )*
                    _ => Err(format!("`{name}` is no operator")),
                }
            }
        }

        impl fmt::Display for Call {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())?;
                match self { $( Self::$name { $($field,)* } => {
                    $( write!(
                        f, " {}{}{}", stringify!($field), mark(access(stringify!($mark))), Field::text($field),
                    )?; )*
                } )* }
                Ok(())
            }
        }
    };
}

use {calls, field};
