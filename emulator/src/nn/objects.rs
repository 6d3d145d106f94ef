//! Host objects of the operator library, behind handles.
//!
//! Invariants: a handle is a number that is never reused, so a destroyed object is always
//! recognised. A list owns its members, as documented.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use ascend_tp_emulator_operators::fractal::{FRACTAL_NZ, Fractal};
use ascend_tp_emulator_operators::operator::{Scalar, TensorDesc};
use ascend_tp_emulator_operators::view::contiguous_strides;
use ascend_tp_sys::{
    aclBoolArray, aclIntArray, aclOpExecutor, aclScalar, aclScalarList, aclTensor, aclTensorList,
};

use crate::base::failure::{Failure, code};
use crate::nn::executor::Executor;

#[derive(Debug, Default)]
pub(crate) struct Objects(RwLock<Live>);

impl Objects {
    pub(crate) fn lock(&self) -> RwLockWriteGuard<'_, Live> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the executor unless it is repeatable. Repeatable executors need only a read lock, so
    /// ranks do not block each other.
    pub(crate) fn take_executor(
        &self,
        name: &str,
        handle: *mut aclOpExecutor,
    ) -> Result<Arc<Executor>, Failure> {
        let repeatable = self.0.read().unwrap_or_else(PoisonError::into_inner).repeatable(name, handle);
        repeatable.map_or_else(|| self.lock().take_executor(name, handle), Ok)
    }
}

impl Objects {
    /// Returns the remaining objects: kind, destroying function and number. Members count with
    /// their list.
    pub(crate) fn left(&self) -> Vec<(&'static str, &'static str, usize)> {
        let live = self.lock();
        let members: BTreeSet<usize> = live.objects.values().flat_map(Object::members).copied().collect();
        let mut counts: BTreeMap<(&'static str, &'static str), usize> = BTreeMap::new();
        let own = live.objects.iter().filter(|(handle, _)| !members.contains(handle));
        own.for_each(|(_, object)| *counts.entry((object.kind(), object.destroyer())).or_default() += 1);
        counts.into_iter().map(|((kind, destroyer), count)| (kind, destroyer, count)).collect()
    }
}

/// Hashes handles, which are consecutive numbers. The bijection spreads neighbours.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ByNumber(u64);

impl Hasher for ByNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, number: usize) {
        // 2^64 divided by the golden ratio, made odd (Knuth, TAOCP, volume 3, 6.4).
        self.0 = (self.0.rotate_left(5) ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Live {
    last: usize,
    objects: HashMap<usize, Object, BuildHasherDefault<ByNumber>>,
}

#[derive(Debug)]
pub(crate) enum Object {
    /// Boxed to keep table entries small.
    Tensor(Box<TensorDesc>),
    Scalar(Scalar),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Bools(Vec<bool>),
    /// Handles of the members.
    Tensors(Vec<usize>),
    Scalars(Vec<usize>),
    Executor(Arc<Executor>),
}

impl Object {
    fn members(&self) -> &[usize] {
        match self {
            Self::Tensors(members) | Self::Scalars(members) => members,
            _ => &[],
        }
    }

    fn destroyer(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "aclDestroyTensor",
            Self::Scalar(_) => "aclDestroyScalar",
            Self::Ints(_) => "aclDestroyIntArray",
            Self::Floats(_) => "aclDestroyFloatArray",
            Self::Bools(_) => "aclDestroyBoolArray",
            Self::Tensors(_) => "aclDestroyTensorList",
            Self::Scalars(_) => "aclDestroyScalarList",
            Self::Executor(_) => "the second phase, or aclDestroyAclOpExecutor",
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "aclTensor",
            Self::Scalar(_) => "aclScalar",
            Self::Ints(_) => "aclIntArray",
            Self::Floats(_) => "aclFloatArray",
            Self::Bools(_) => "aclBoolArray",
            Self::Tensors(_) => "aclTensorList",
            Self::Scalars(_) => "aclScalarList",
            Self::Executor(_) => "aclOpExecutor",
        }
    }
}

/// No user-space address has this top byte.
const HANDLE_TAG: usize = 0xC6 << (usize::BITS - 8);

macro_rules! look_up {
    ($live:expr, $name:expr, $handle:expr, $variant:ident) => {{
        let handle = $handle.addr();
        match $live.objects.get(&handle) {
            Some(Object::$variant(value)) => Ok(value),
            other => Err(wrong($name, handle, concat!("acl", stringify!($variant)), other)),
        }
    }};
}

pub(crate) fn wrong(name: &str, handle: usize, expected: &str, found: Option<&Object>) -> Failure {
    if handle == 0 {
        return Failure::new(code::NULL_POINTER_ACLNN, format!("{name}: is NULL and must be given"));
    }
    let found = found.map_or("no live object (destroyed, or of another machine)", Object::kind);
    Failure::new(
        code::PARAM_INVALID_ACLNN,
        format!("{name}: expected {expected}, found {handle:#x}, {found}"),
    )
}

impl Live {
    pub(crate) fn get(&self, handle: usize) -> Option<&Object> {
        self.objects.get(&handle)
    }

    pub(crate) fn get_mut(&mut self, handle: usize) -> Option<&mut Object> {
        self.objects.get_mut(&handle)
    }

    pub(crate) fn insert<T>(&mut self, mut object: Object) -> *mut T {
        self.last += 1;
        let handle = HANDLE_TAG | self.last;
        if let Object::Tensor(desc) = &mut object {
            desc.handle = handle;
        }
        self.objects.insert(handle, object);
        std::ptr::without_provenance_mut(handle)
    }

    pub(crate) fn tensor(&self, name: &str, handle: *const aclTensor) -> Result<&TensorDesc, Failure> {
        look_up!(self, name, handle, Tensor)
    }

    /// Sets dims that a run has determined, with row-major strides. The tensor may have been
    /// destroyed.
    pub(crate) fn reshape(&mut self, handle: usize, dims: &[usize]) {
        if let Some(Object::Tensor(desc)) = self.objects.get_mut(&handle) {
            desc.dims = dims.iter().map(|&dim| dim as i64).collect();
            desc.strides = contiguous_strides(dims).into_iter().map(|stride| stride as i64).collect();
        }
    }

    pub(crate) fn block(&mut self, handle: usize, fractal: Fractal) {
        if let Some(Object::Tensor(desc)) = self.objects.get_mut(&handle) {
            let outer = desc.dims.len() - 2;
            desc.format = FRACTAL_NZ;
            desc.storage = desc.dims[..outer].to_vec();
            desc.storage.extend(fractal.storage().map(|extent| extent as i64));
        }
    }

    pub(crate) fn tensors(
        &self,
        name: &str,
        handle: *const aclTensorList,
    ) -> Result<Vec<TensorDesc>, Failure> {
        let members = look_up!(self, name, handle, Tensors)?;
        let member = |&handle: &usize| self.tensor(name, std::ptr::without_provenance(handle)).cloned();
        members.iter().map(member).collect()
    }

    pub(crate) fn scalar(&self, name: &str, handle: *const aclScalar) -> Result<Scalar, Failure> {
        look_up!(self, name, handle, Scalar).copied()
    }

    pub(crate) fn scalars(&self, name: &str, handle: *const aclScalarList) -> Result<Vec<Scalar>, Failure> {
        let members = look_up!(self, name, handle, Scalars)?;
        members.iter().map(|&handle| self.scalar(name, std::ptr::without_provenance(handle))).collect()
    }

    pub(crate) fn ints(&self, name: &str, handle: *const aclIntArray) -> Result<&[i64], Failure> {
        look_up!(self, name, handle, Ints).map(Vec::as_slice)
    }

    pub(crate) fn flags(&self, name: &str, handle: *const aclBoolArray) -> Result<&[bool], Failure> {
        look_up!(self, name, handle, Bools).map(Vec::as_slice)
    }

    pub(crate) fn insert_executor(&mut self, executor: Executor) -> *mut aclOpExecutor {
        self.insert(Object::Executor(Arc::new(executor)))
    }

    pub(crate) fn executor(&mut self, handle: *mut aclOpExecutor) -> Result<&mut Executor, Failure> {
        let handle = handle.addr();
        if handle == 0 {
            return Err(Failure::new(code::INNER_NULL_ACLNN, "executor: is NULL and must be given"));
        }
        match self.objects.get_mut(&handle) {
            Some(Object::Executor(executor)) => Ok(Arc::make_mut(executor)),
            Some(other) => Err(wrong("executor", handle, "aclOpExecutor", Some(other))),
            None => {
                let what = format!(
                    "executor: expected a live aclOpExecutor, found {handle:#x}: the second phase frees an executor unless \
                     aclSetAclOpExecutorRepeatable was called on it"
                );
                Err(Failure::new(code::PARAM_INVALID_ACLNN, what))
            }
        }
    }

    fn repeatable(&self, name: &str, handle: *mut aclOpExecutor) -> Option<Arc<Executor>> {
        match self.objects.get(&handle.addr()) {
            Some(Object::Executor(executor)) if executor.is_repeatable() && executor.name() == name => {
                Some(Arc::clone(executor))
            }
            _ => None,
        }
    }

    /// The executor is removed unless it is repeatable.
    fn take_executor(&mut self, name: &str, handle: *mut aclOpExecutor) -> Result<Arc<Executor>, Failure> {
        let planned = match self.objects.get(&handle.addr()) {
            Some(Object::Executor(executor)) => Arc::clone(executor),
            _ => return self.executor(handle).map(|executor| Arc::new(executor.clone())),
        };
        if planned.name() != name {
            let what = format!("executor: expected one of {name}, found one of {}", planned.name());
            return Err(Failure::new(code::PARAM_INVALID_ACLNN, what));
        }
        if !planned.is_repeatable() {
            self.objects.remove(&handle.addr());
        }
        Ok(planned)
    }

    /// A list removes its members too. NULL is accepted: wrappers destroy optional tensors without
    /// a check.
    pub(crate) fn remove(&mut self, name: &str, handle: usize, expected: &str) -> Result<(), Failure> {
        if handle == 0 {
            return Ok(());
        }
        match self.objects.get(&handle) {
            Some(object) if object.kind() == expected => {}
            other => return Err(wrong(name, handle, expected, other)),
        }
        if let Some(Object::Tensors(members) | Object::Scalars(members)) = self.objects.remove(&handle) {
            for member in members {
                self.objects.remove(&member);
            }
        }
        Ok(())
    }
}
