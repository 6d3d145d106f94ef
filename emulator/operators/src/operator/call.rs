//! A first-phase call: checked arguments and access by parameter name.
//!
//! Invariants: a message names operator, parameter, expected and found values. A checked tensor has
//! a supported type, nonnegative dims, ND element order or `FRACTAL_NZ`, and lies inside its
//! storage. Written elements never overlap.

use std::fmt;
use std::ops::RangeInclusive;

use super::argument::{CallArgument, CheckedTensor, Scalar, TensorDesc, TensorRole};
use super::names::Name;
use super::row::{Layout, Nullability, ParameterKind, RankLimits};
use super::{CallPlan, INVALID, NULL_POINTER, Refusal, Signature, ViewIndex};
use crate::dtype::{AclType, list_names};
use crate::fractal::{FRACTAL_NZ, Fractal};
use crate::view::{extent, is_contiguous};

/// ND, NCHW, NHWC, HWCN, NDHWC, NCDHW and NCL, ordered by dims and strides. Most operators ignore
/// the dim names.
const PLAIN_FORMATS: [i32; 7] = [2, 0, 1, 16, 27, 30, 47];

const CHANNELS_SECOND: [i32; 4] = [2, 0, 30, 47];

#[derive(Clone, Debug)]
enum CheckedArgument {
    Tensor(Option<CheckedTensor>),
    Tensors(Vec<CheckedTensor>),
    Other(CallArgument),
}

/// A call with checked arguments.
#[derive(Debug)]
pub struct OperatorCall {
    signature: &'static Signature,
    /// An in-place tensor appears first and last.
    arguments: Vec<CheckedArgument>,
    /// What CANN's host code does not check, for strict mode.
    notes: Vec<String>,
}

fn refusal(signature: &Signature, parameter: &str, code: i32, text: &str) -> Refusal {
    Refusal { code, message: format!("{}: {}: {text}", signature.name, signature.spelling(parameter)) }
}

/// Checks `arguments` against an operator's row.
///
/// # Errors
///
/// Reports the first broken rule.
pub fn check(signature: &'static Signature, arguments: Vec<CallArgument>) -> Result<OperatorCall, Refusal> {
    let (mut slots, mut notes) = (0, Vec::new());
    let mut checked = Vec::with_capacity(signature.row.len());
    let parameters = signature.parameters();
    if arguments.len() != parameters.len() {
        let text = format!("{} arguments for {} parameters", arguments.len(), parameters.len());
        return Err(refusal(signature, "prototype", INVALID, &text));
    }
    for (parameter, argument) in parameters.zip(arguments) {
        let refuse = |code, text: &str| refusal(signature, parameter.name, code, text);
        if is_missing(parameter.kind, &argument) {
            return Err(refuse(NULL_POINTER, "is NULL and must be given"));
        }
        checked.push(match (parameter.kind, argument) {
            (ParameterKind::Tensor { .. }, CallArgument::Tensor(None)) => CheckedArgument::Tensor(None),
            (ParameterKind::Tensor { role, dtypes, ranks, layout, .. }, CallArgument::Tensor(Some(desc))) => {
                let tensor = tensor(&desc, role, dtypes, ranks, layout, ViewIndex(slots))
                    .map_err(|text| refuse(INVALID, &text))?;
                notes.extend(past_storage(&desc, &tensor).map(|text| refuse(INVALID, &text).message));
                slots += 1;
                CheckedArgument::Tensor(Some(tensor))
            }
            (ParameterKind::Tensors { .. }, CallArgument::Tensors(None)) => {
                CheckedArgument::Tensors(Vec::new())
            }
            (
                ParameterKind::Tensors { role, dtypes, ranks, layout, .. },
                CallArgument::Tensors(Some(list)),
            ) => {
                let mut tensors = Vec::with_capacity(list.len());
                for (i, desc) in list.iter().enumerate() {
                    let tensor = tensor(desc, role, dtypes, ranks, layout, ViewIndex(slots))
                        .map_err(|text| refuse(INVALID, &format!("tensor {i} of the list: {text}")))?;
                    notes.extend(past_storage(desc, &tensor).map(|text| refuse(INVALID, &text).message));
                    slots += 1;
                    tensors.push(tensor);
                }
                CheckedArgument::Tensors(tensors)
            }
            (ParameterKind::Unmodelled, argument) if is_absent(&argument) => CheckedArgument::Tensor(None),
            (ParameterKind::Unmodelled, _) => {
                return Err(refuse(
                    INVALID,
                    "is given, but the emulator does not model this feature: pass NULL",
                ));
            }
            (ParameterKind::Scalar(_), value @ CallArgument::Scalar(_))
            | (ParameterKind::Ints(_), value @ CallArgument::Ints(_))
            | (ParameterKind::Scalars, value @ CallArgument::Scalars(_))
            | (ParameterKind::Flags(_), value @ CallArgument::Flags(_))
            | (ParameterKind::OptionalText, value @ CallArgument::Text(_))
            | (
                ParameterKind::Attribute,
                value @ (CallArgument::Int(_)
                | CallArgument::Float(_)
                | CallArgument::Flag(_)
                | CallArgument::Text(_)
                | CallArgument::DataType(_)),
            ) => CheckedArgument::Other(value),
            (kind, argument) => {
                return Err(refuse(
                    INVALID,
                    &format!("the row says {kind:?}, the prototype passed {argument:?}"),
                ));
            }
        });
    }
    if signature.in_place
        && let Some(CheckedArgument::Tensor(target)) = checked.first()
    {
        checked.push(CheckedArgument::Tensor(target.clone()));
    }
    Ok(OperatorCall { signature, arguments: checked, notes })
}

/// CANN's host code does not compare a view with its storage; the memory alone bounds it.
fn past_storage(desc: &TensorDesc, tensor: &CheckedTensor) -> Option<String> {
    if tensor.fractal.is_some() || tensor.is_empty() {
        return None;
    }
    let (_, last) = extent(&tensor.dims, &tensor.strides, tensor.offset)?;
    let storage = desc.storage.iter().try_fold(1i64, |product, &dim| product.checked_mul(dim))?;
    (last as i64 >= storage).then(|| {
        format!(
            "dims {:?} with strides {:?} and offset {} reach element {last} of a storage {:?} of {storage} elements",
            tensor.dims, tensor.strides, tensor.offset, desc.storage
        )
    })
}

fn is_absent(argument: &CallArgument) -> bool {
    match argument {
        CallArgument::Tensor(None) | CallArgument::Text(None) => true,
        CallArgument::Tensors(list) => list.as_ref().is_none_or(Vec::is_empty),
        CallArgument::Ints(list) => list.as_ref().is_none_or(Vec::is_empty),
        _ => false,
    }
}

const fn is_missing(kind: ParameterKind, argument: &CallArgument) -> bool {
    matches!(
        (kind, argument),
        (ParameterKind::Tensor { need: Nullability::Required, .. }, CallArgument::Tensor(None))
            | (ParameterKind::Tensors { need: Nullability::Required, .. }, CallArgument::Tensors(None))
            | (ParameterKind::Scalar(Nullability::Required), CallArgument::Scalar(None))
            | (ParameterKind::Ints(Nullability::Required), CallArgument::Ints(None))
            | (ParameterKind::Scalars, CallArgument::Scalars(None))
            | (ParameterKind::Flags(Nullability::Required), CallArgument::Flags(None))
            | (ParameterKind::Attribute, CallArgument::Text(None))
    )
}

fn tensor(
    desc: &TensorDesc,
    role: TensorRole,
    dtypes: &[AclType],
    ranks: RankLimits,
    layout: Layout,
    slot: ViewIndex,
) -> Result<CheckedTensor, String> {
    let dtype = AclType::from_acl(desc.dtype).filter(|dtype| dtypes.contains(dtype)).ok_or_else(|| {
        let found = AclType::from_acl(desc.dtype)
            .map_or_else(|| format!("aclDataType {}", desc.dtype), |d| d.name().to_owned());
        format!("expected an element type of {}, found {found}", list_names(dtypes))
    })?;
    let is_blocked = desc.format == FRACTAL_NZ && layout == Layout::Blocked;
    if !PLAIN_FORMATS.contains(&desc.format) && !is_blocked {
        return Err(format!(
            "expected format ND (2) or another without padding, found aclFormat {}",
            desc.format
        ));
    }
    let rank = desc.dims.len();
    let RankLimits { least, most, or_scalar } = ranks;
    let is_scalar = rank == 0 && or_scalar;
    if !is_scalar && (rank < least || rank > most) {
        return Err(format!("expected {least} to {most} dims, found {rank}: {:?}", desc.dims));
    }
    let (dims, strides) = if is_scalar { (&[1][..], &[1][..]) } else { (&desc.dims[..], &desc.strides[..]) };
    let dims = dims.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    let dims = dims.map_err(|_| format!("expected dims of at least 0, found {:?}", desc.dims))?;
    // Plans multiply even the extents of empty tensors.
    let bytes =
        dims.iter().filter(|&&dim| dim > 0).try_fold(dtype.size(), |bytes, &dim| bytes.checked_mul(dim));
    if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(format!("dims {dims:?} of {} overflow", dtype.name()));
    }
    let strides: Vec<isize> = strides.iter().map(|&stride| stride as isize).collect();
    if strides.iter().any(|&stride| stride < 0) {
        return Err(format!("expected strides of at least 0, found {:?}", desc.strides));
    }
    let offset = desc.offset as isize;
    if offset < 0 {
        return Err(format!("expected an offset of at least 0, found {offset}"));
    }
    if layout == Layout::Contiguous && !is_contiguous(&dims, &strides) {
        return Err(format!(
            "expected a contiguous tensor, found dims {dims:?} with strides {strides:?}: copy it first (aclnnInplaceCopy)"
        ));
    }
    let fractal = if is_blocked { Some(blocks(desc, dtype, &dims, &strides)?) } else { None };
    if fractal.is_none() && dims.iter().all(|&dim| dim > 0) {
        extent(&dims, &strides, offset).ok_or_else(|| format!("dims {dims:?} overflow"))?;
        if desc.address == 0 {
            return Err("has elements but its device address is NULL".to_owned());
        }
    }
    let repeated = dims.iter().zip(&strides).any(|(&dim, &stride)| dim > 1 && stride == 0);
    if role != TensorRole::Input && repeated && !dims.contains(&0) {
        return Err(format!(
            "expected elements that do not overlap, found dims {dims:?} with strides {strides:?}"
        ));
    }
    let (format, address, handle) = (desc.format, desc.address, desc.handle);
    Ok(CheckedTensor { slot, dtype, format, fractal, dims, strides, offset, address, handle, role })
}

/// Tries also the dims with the last two swapped.
fn blocks(desc: &TensorDesc, dtype: AclType, dims: &[usize], strides: &[isize]) -> Result<Fractal, String> {
    let mut ways = vec![(dims.to_vec(), strides.to_vec())];
    if let Some(last) = dims.len().checked_sub(1).filter(|last| *last > 0) {
        let (mut dims, mut strides) = ways[0].clone();
        dims.swap(last - 1, last);
        strides.swap(last - 1, last);
        ways.push((dims, strides));
    }
    ways.retain(|(dims, strides)| is_contiguous(dims, strides));
    if ways.is_empty() || desc.offset != 0 {
        let text = "expected a whole tensor of FRACTAL_NZ, contiguous or with its last two dims swapped";
        return Err(format!(
            "{text}, found dims {dims:?} with strides {strides:?} and offset {}",
            desc.offset
        ));
    }
    let of = |(plain, _): &(Vec<usize>, Vec<isize>)| {
        let fractal = Fractal::of(dtype, plain)?;
        let extents = plain[..plain.len() - 2].iter().copied().chain(fractal.storage());
        Some((fractal, extents.map(|extent| extent as i64).collect::<Vec<_>>()))
    };
    let known: Vec<(Fractal, Vec<i64>)> = ways.iter().filter_map(of).collect();
    let Some((_, wanted)) = known.first() else {
        return Err(format!(
            "expected matrices of FLOAT16, BFLOAT16 or INT8 for FRACTAL_NZ, found {dims:?} of {dtype}"
        ));
    };
    // Only the storage tells the orientation if a dim is 1. Flat storage has just the element
    // count, which CANN's host code accepts.
    let is_flat = |fractal: &Fractal| desc.storage[..] == [fractal.storage_len() as i64];
    let exact = known.iter().find(|(_, storage)| *storage == desc.storage);
    let found =
        exact.or_else(|| known.iter().find(|(fractal, _)| is_flat(fractal))).map(|(fractal, _)| *fractal);
    let fractal = found.ok_or_else(|| {
        format!("expected a storage of {wanted:?} for FRACTAL_NZ, found {:?}", desc.storage)
    })?;
    if desc.address == 0 && fractal.storage_len() > 0 {
        return Err("has elements but its device address is NULL".to_owned());
    }
    Ok(fractal)
}

impl OperatorCall {
    pub(crate) fn refuse<K: ?Sized>(&self, parameter: Name<K>, text: impl AsRef<str>) -> Refusal {
        refusal(self.signature, parameter.text(), INVALID, text.as_ref())
    }

    /// Returns a note in the form of an error.
    pub(crate) fn says<K: ?Sized>(&self, parameter: Name<K>, text: &str) -> String {
        self.refuse(parameter, text).message
    }

    /// Returns whether the C function has the parameter.
    pub(crate) fn has<K: ?Sized>(&self, name: Name<K>) -> bool {
        self.signature.row.iter().any(|parameter| parameter.name == name.text())
    }

    fn argument<K: ?Sized>(&self, name: Name<K>) -> Result<&CheckedArgument, Refusal> {
        let position = self.signature.row.iter().position(|parameter| parameter.name == name.text());
        position
            .map(|i| &self.arguments[i])
            .ok_or_else(|| self.refuse(name, "is not a parameter of this operator"))
    }

    fn wrong_kind<K: ?Sized>(&self, name: Name<K>, expected: &str) -> Refusal {
        self.refuse(name, format!("the plan expects {expected}, the prototype passed something else"))
    }

    pub(crate) fn tensor(&self, name: Name<CheckedTensor>) -> Result<&CheckedTensor, Refusal> {
        self.tensor_if_given(name)?.ok_or_else(|| self.wrong_kind(name, "a required tensor"))
    }

    pub(crate) fn tensor_if_given(
        &self,
        name: Name<CheckedTensor>,
    ) -> Result<Option<&CheckedTensor>, Refusal> {
        match self.argument(name)? {
            CheckedArgument::Tensor(tensor) => Ok(tensor.as_ref()),
            _ => Err(self.wrong_kind(name, "a tensor")),
        }
    }

    pub(crate) fn slot(&self, name: Name<CheckedTensor>) -> Result<ViewIndex, Refusal> {
        Ok(self.tensor(name)?.slot)
    }

    pub(crate) fn slot_if_given(&self, name: Name<CheckedTensor>) -> Result<Option<ViewIndex>, Refusal> {
        Ok(self.tensor_if_given(name)?.map(|tensor| tensor.slot))
    }

    /// Returns the slots of required tensors.
    pub(crate) fn slots_of<const N: usize>(
        &self,
        names: [Name<CheckedTensor>; N],
    ) -> Result<[ViewIndex; N], Refusal> {
        let mut slots = [ViewIndex(0); N];
        for (slot, name) in slots.iter_mut().zip(names) {
            *slot = self.slot(name)?;
        }
        Ok(slots)
    }

    pub(crate) fn tensors(&self, name: Name<[CheckedTensor]>) -> Result<&[CheckedTensor], Refusal> {
        match self.argument(name)? {
            CheckedArgument::Tensors(tensors) => Ok(tensors),
            _ => Err(self.wrong_kind(name, "a list of tensors")),
        }
    }

    pub(crate) fn scalar(&self, name: Name<Scalar>) -> Result<Scalar, Refusal> {
        self.scalar_if_given(name)?.ok_or_else(|| self.wrong_kind(name, "a required scalar"))
    }

    pub(crate) fn scalar_if_given(&self, name: Name<Scalar>) -> Result<Option<Scalar>, Refusal> {
        match self.argument(name)? {
            CheckedArgument::Other(CallArgument::Scalar(value)) => Ok(*value),
            _ => Err(self.wrong_kind(name, "a scalar")),
        }
    }

    pub(crate) fn ints(&self, name: Name<[i64]>) -> Result<&[i64], Refusal> {
        self.ints_if_given(name)?.ok_or_else(|| self.wrong_kind(name, "a required array"))
    }

    pub(crate) fn ints_if_given(&self, name: Name<[i64]>) -> Result<Option<&[i64]>, Refusal> {
        match self.argument(name)? {
            CheckedArgument::Other(CallArgument::Ints(values)) => Ok(values.as_deref()),
            _ => Err(self.wrong_kind(name, "an array of integers")),
        }
    }

    pub(crate) fn scalars(&self, name: Name<[Scalar]>) -> Result<&[Scalar], Refusal> {
        match self.argument(name)? {
            CheckedArgument::Other(CallArgument::Scalars(Some(values))) => Ok(values),
            _ => Err(self.wrong_kind(name, "a list of scalars")),
        }
    }

    pub(crate) fn flags(&self, name: Name<[bool]>) -> Result<&[bool], Refusal> {
        match self.argument(name)? {
            CheckedArgument::Other(CallArgument::Flags(Some(values))) => Ok(values),
            _ => Err(self.wrong_kind(name, "an array of truth values")),
        }
    }

    pub(crate) fn flags_if_given(&self, name: Name<[bool]>) -> Result<Option<&[bool]>, Refusal> {
        match self.argument(name)? {
            CheckedArgument::Other(CallArgument::Flags(values)) => Ok(values.as_deref()),
            _ => Err(self.wrong_kind(name, "an array of truth values")),
        }
    }

    pub(crate) fn int(&self, name: Name<i64>) -> Result<i64, Refusal> {
        match self.argument(name)? {
            CheckedArgument::Other(CallArgument::Int(value)) => Ok(*value),
            _ => Err(self.wrong_kind(name, "an integer")),
        }
    }

    pub(crate) fn float(&self, name: Name<f64>) -> Result<f64, Refusal> {
        match self.argument(name)? {
            CheckedArgument::Other(CallArgument::Float(value)) => Ok(*value),
            _ => Err(self.wrong_kind(name, "a floating point number")),
        }
    }

    pub(crate) fn flag(&self, name: Name<bool>) -> Result<bool, Refusal> {
        match self.argument(name)? {
            CheckedArgument::Other(CallArgument::Flag(value)) => Ok(*value),
            _ => Err(self.wrong_kind(name, "a truth value")),
        }
    }

    pub(crate) fn text(&self, name: Name<str>) -> Result<&str, Refusal> {
        match self.argument(name)? {
            CheckedArgument::Other(CallArgument::Text(Some(value))) => Ok(value),
            _ => Err(self.wrong_kind(name, "a text")),
        }
    }

    pub(crate) fn text_if_given(&self, name: Name<str>) -> Result<Option<&str>, Refusal> {
        match self.argument(name)? {
            CheckedArgument::Other(CallArgument::Text(value)) => Ok(value.as_deref()),
            _ => Err(self.wrong_kind(name, "a text")),
        }
    }

    pub(crate) fn data_type(&self, name: Name<AclType>) -> Result<AclType, Refusal> {
        match self.argument(name)? {
            CheckedArgument::Other(CallArgument::DataType(code)) => self.modelled(name, *code),
            // Some operators take the code as an integer.
            CheckedArgument::Other(CallArgument::Int(code)) => {
                self.modelled(name, i32::try_from(*code).unwrap_or(-1))
            }
            _ => Err(self.wrong_kind(name, "an element type")),
        }
    }

    fn modelled<K: ?Sized>(&self, name: Name<K>, code: i32) -> Result<AclType, Refusal> {
        AclType::from_acl(code)
            .ok_or_else(|| self.refuse(name, format!("aclDataType {code} is not modelled")))
    }

    /// Negative values count from the end. A tensor without dims counts as one-dimensional.
    pub(crate) fn dim(&self, name: Name<i64>, rank: usize) -> Result<usize, Refusal> {
        self.dim_of(name, self.int(name)?, rank)
    }

    /// Works like [`OperatorCall::dim`], for an array's value.
    pub(crate) fn dim_of<K: ?Sized>(&self, name: Name<K>, value: i64, rank: usize) -> Result<usize, Refusal> {
        let extent = rank.max(1) as i64;
        if value < -extent || value >= extent {
            return Err(self.refuse(name, format!("expected a dim in {}..{extent}, found {value}", -extent)));
        }
        Ok(if value < 0 { value + extent } else { value } as usize)
    }

    /// Works like [`OperatorCall::expect_shape`], but no dims and one dim of extent 1 are the same.
    pub(crate) fn expect_shape_or_one(
        &self,
        name: Name<CheckedTensor>,
        expected: &[usize],
        why: &str,
    ) -> Result<(), Refusal> {
        let is_one = |dims: &[usize]| matches!(dims, [] | [1]);
        if is_one(expected) && is_one(&self.tensor(name)?.dims) {
            return Ok(());
        }
        self.expect_shape(name, expected, why)
    }

    pub(crate) fn expect_channels_second(&self, names: &[Name<CheckedTensor>]) -> Result<(), Refusal> {
        for &name in names {
            if let Some(tensor) = self.tensor_if_given(name)?
                && !CHANNELS_SECOND.contains(&tensor.format)
            {
                let text = format!(
                    "expected format ND (2), NCL (47), NCHW (0) or NCDHW (30), found {}",
                    tensor.format
                );
                return Err(self.refuse(name, text));
            }
        }
        Ok(())
    }

    pub(crate) fn expect_blocked(&self, name: Name<CheckedTensor>) -> Result<(), Refusal> {
        match self.tensor(name)? {
            CheckedTensor { fractal: Some(_), .. } => Ok(()),
            found => Err(self
                .refuse(name, format!("expected format FRACTAL_NZ ({FRACTAL_NZ}), found {}", found.format))),
        }
    }

    /// `why` names the origin of the expectation.
    pub(crate) fn expect_shape(
        &self,
        name: Name<CheckedTensor>,
        expected: &[usize],
        why: &str,
    ) -> Result<(), Refusal> {
        let found = &self.tensor(name)?.dims;
        if found == expected {
            return Ok(());
        }
        Err(self.refuse(name, format!("expected shape {expected:?} ({why}), found {found:?}")))
    }

    pub(crate) fn expect_dtype(
        &self,
        name: Name<CheckedTensor>,
        expected: AclType,
        why: &str,
    ) -> Result<(), Refusal> {
        let found = self.tensor(name)?.dtype;
        if found == expected {
            return Ok(());
        }
        Err(self.refuse(name, format!("expected {expected} ({why}), found {found}")))
    }

    /// The given tensors among `names` have the type of `model`.
    pub(crate) fn expect_type_of(
        &self,
        model: Name<CheckedTensor>,
        names: &[Name<CheckedTensor>],
    ) -> Result<(), Refusal> {
        let Some(of) = self.tensor_if_given(model)? else { return Ok(()) };
        for &name in names {
            if self.tensor_if_given(name)?.is_some() {
                self.expect_dtype(name, of.dtype, &format!("the type of {model}"))?;
            }
        }
        Ok(())
    }

    /// Refuses a value unless `holds`.
    pub(crate) fn expect_that<K: ?Sized>(
        &self,
        holds: bool,
        name: Name<K>,
        expected: &str,
        found: impl fmt::Debug,
    ) -> Result<(), Refusal> {
        if holds { Ok(()) } else { Err(self.refuse(name, format!("expected {expected}, found {found:?}"))) }
    }

    /// The operator needs elements in each given tensor.
    pub(crate) fn expect_elements(&self, names: &[Name<CheckedTensor>]) -> Result<(), Refusal> {
        for &name in names {
            if self.tensor_if_given(name)?.is_some_and(CheckedTensor::is_empty) {
                return Err(self.refuse(name, "has no elements, but the operator needs some"));
            }
        }
        Ok(())
    }

    /// Returns an integer within limits.
    pub(crate) fn int_in(&self, name: Name<i64>, limits: RangeInclusive<i64>) -> Result<i64, Refusal> {
        let value = self.int(name)?;
        if limits.contains(&value) {
            return Ok(value);
        }
        let (least, most) = limits.into_inner();
        let expected = match (least, most) {
            (least, i64::MAX) => format!("at least {least}"),
            (least, most) if least == most => least.to_string(),
            _ => format!("{least} to {most}"),
        };
        Err(self.refuse(name, format!("expected {expected}, found {value}")))
    }

    pub(crate) fn promote(&self, a: Name<CheckedTensor>, b: Name<CheckedTensor>) -> Result<AclType, Refusal> {
        let (first, second) = (self.tensor(a)?.dtype, self.tensor(b)?.dtype);
        first
            .promote(second)
            .ok_or_else(|| self.refuse(b, format!("{second} has no common type with {first} of {a}")))
    }

    /// The output must hold results of type `computed`.
    pub(crate) fn expect_cast(&self, name: Name<CheckedTensor>, computed: AclType) -> Result<(), Refusal> {
        let found = self.tensor(name)?.dtype;
        if computed.can_cast(found) {
            return Ok(());
        }
        Err(self.refuse(name, format!("results of type {computed} cannot be stored as {found}")))
    }

    pub(crate) fn broadcast(
        &self,
        a: Name<CheckedTensor>,
        b: Name<CheckedTensor>,
    ) -> Result<Vec<usize>, Refusal> {
        let (first, second) = (&self.tensor(a)?.dims, &self.tensor(b)?.dims);
        broadcast(first, second)
            .ok_or_else(|| self.refuse(b, format!("{second:?} does not broadcast with {first:?} of {a}")))
    }

    /// Checks the operator's own rules and plans the computation.
    ///
    /// # Errors
    ///
    /// Reports the first broken rule.
    pub fn plan(&self) -> Result<CallPlan, Refusal> {
        let mut plan = (self.signature.operator.plan)(self)?;
        plan.notes.extend(self.notes.iter().cloned());
        Ok(plan)
    }

    /// Lists the call's tensors in slot order.
    pub fn slots(&self) -> impl Iterator<Item = CallTensor<'_>> {
        let named = self.signature.parameters().zip(&self.arguments);
        let tensor_parameters =
            named.filter(|(_, a)| matches!(a, CheckedArgument::Tensor(_) | CheckedArgument::Tensors(_)));
        tensor_parameters.enumerate().flat_map(|(parameter, (row, argument))| {
            let tensors: &[CheckedTensor] = match argument {
                CheckedArgument::Tensor(tensor) => tensor.as_slice(),
                CheckedArgument::Tensors(tensors) => tensors,
                CheckedArgument::Other(_) => &[],
            };
            let name = row.name;
            tensors.iter().enumerate().map(move |(place, tensor)| CallTensor {
                name,
                parameter,
                place,
                tensor,
            })
        })
    }
}

/// A tensor with its position in the prototype.
#[derive(Clone, Copy, Debug)]
pub struct CallTensor<'a> {
    /// Name of the tensor's parameter.
    pub name: &'static str,
    /// Position among the tensor and tensor-list parameters.
    pub parameter: usize,
    /// Position in the list; 0 for a single tensor.
    pub place: usize,
    pub tensor: &'a CheckedTensor,
}

/// Aligns at the last dim; extent 1 repeats.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}
