//! Prepares aclnn operators by C name. The list of C functions defines the operators.
//!
//! Invariant: arguments of a wrong number or kind are refused before the library sees them. The
//! library checks shapes and element types.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::sync::Arc;

use ascend_tp_sys::{
    Table, aclDataType, aclIntArray, aclOpExecutor, aclScalar, aclTensor, aclTensorList, aclnnStatus,
    for_each_symbol,
};

use super::card::{Device, same_device};
use super::error::{Error, Result};
use super::handle::{IntArray, ScalarHandle};
use super::prepared::{Prepared, RunFunction};
use super::tensor::{Tensor, TensorList, acl_dtype};
use crate::base::{Argument, Diagnostic};

impl From<&Tensor> for Argument<Tensor> {
    fn from(tensor: &Tensor) -> Self {
        Self::Tensor(tensor.clone())
    }
}

/// Checks an operator with the card's library and prepares it. For example, `aclnnAdd` takes
/// `self`, `other`, `alpha`, `out`.
///
/// ```
/// # use ascend_tp::emulator::{Config, Emulator};
/// # let emulator = Emulator::new(Config::with_cards(2))?;
/// # let cann = ascend_tp::Cann::new(emulator.table())?;
/// # let device = ascend_tp::device::Device::open(&cann, 0)?;
///
/// use ascend_tp::device::{Buffer, Stream, Tensor, prepare};
/// use ascend_tp::{DType, Number};
///
/// let (input, output) = (Buffer::new(&device, 4)?, Buffer::new(&device, 4)?);
/// input.write(0, &1.5_f32.to_le_bytes())?;
/// let x = Tensor::contiguous(&input.whole(), DType::F32, [1])?;
/// let y = Tensor::contiguous(&output.whole(), DType::F32, [1])?;
/// let one = Number::Float(1.0);
/// let mut double = prepare("aclnnAdd", [(&x).into(), (&x).into(), one.into(), (&y).into()])?;
/// let workspace = Buffer::new(&device, double.workspace_bytes().max(512))?;
/// let stream = Stream::new(&device)?;
/// double.enqueue(&stream, Some(&workspace.whole()))?;
/// stream.synchronize()?;
/// let mut bytes = [0; 4];
/// output.read(0, &mut bytes)?;
/// assert_eq!(f32::from_le_bytes(bytes), 3.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The operator is unknown or missing, the arguments do not match its prototype, the operands
/// belong to different cards, or the library refuses types, shapes or strides.
pub fn prepare(name: &str, arguments: impl IntoIterator<Item = Argument<Tensor>>) -> Result<Prepared> {
    let Some(operator) = OPERATORS.iter().find(|operator| operator.name == name) else {
        return Err(Diagnostic::new(name, "not an operator of this project")
            .expected("one of sys/include/opapi.h")
            .into());
    };
    let arguments: Vec<Argument<Tensor>> = arguments.into_iter().collect();
    operator.check(&arguments)?;
    let device = operator.device(&arguments)?;
    if device.table().missing_operators.contains(&operator.name) {
        return Err(Error::NoOperator(operator.name));
    }
    let owned =
        arguments.into_iter().map(|argument| OwnedArgument::new(&device, argument)).collect::<Result<_>>()?;
    Prepared::new(&device, operator, owned)
}

pub(super) struct AclnnOperator {
    pub(super) name: &'static str,
    pub(super) plan_name: &'static str,
    parameters: &'static [OperatorParameter],
    /// Creates an executor; `None` if the arguments do not match the prototype.
    pub(super) plan: fn(&Table, &[OwnedArgument], *mut u64, *mut *mut aclOpExecutor) -> Option<aclnnStatus>,
    pub(super) run: fn(&Table) -> RunFunction,
}

struct OperatorParameter {
    name: &'static str,
    c_type: &'static str,
    takes: fn(&Argument<Tensor>) -> bool,
}

impl AclnnOperator {
    fn check(&self, arguments: &[Argument<Tensor>]) -> Result<()> {
        if arguments.len() != self.parameters.len() {
            let problem = Diagnostic::new(self.name, "another number of arguments than in the prototype");
            return Err(problem.expected(self.parameters.len()).found(arguments.len()).into());
        }
        match self.parameters.iter().zip(arguments).find(|(parameter, argument)| !(parameter.takes)(argument))
        {
            Some((parameter, argument)) => Err(self.misfit(parameter, argument)),
            None => Ok(()),
        }
    }

    fn misfit(&self, parameter: &OperatorParameter, argument: &Argument<Tensor>) -> Error {
        let problem = Diagnostic::new(self.name, format!("argument `{}`", parameter.name));
        problem.expected(parameter.c_type).found(format!("{argument:?}")).into()
    }

    fn device(&self, arguments: &[Argument<Tensor>]) -> Result<Arc<Device>> {
        let tensors = arguments.iter().flat_map(|argument| match argument {
            Argument::Tensor(tensor) => std::slice::from_ref(tensor),
            Argument::Tensors(tensors) => tensors,
            _ => &[],
        });
        let mut cards = tensors.map(Tensor::device);
        let Some(first) = cards.next() else {
            return Err(Diagnostic::new(self.name, "no operand on a card")
                .expected("at least one tensor")
                .into());
        };
        cards.try_for_each(|card| same_device(self.name, first, card))?;
        Ok(Arc::clone(first))
    }
}

pub(super) enum OwnedArgument {
    Tensor(Tensor),
    Tensors(TensorList),
    Scalar(ScalarHandle),
    Ints(IntArray),
    Absent,
    Int(i64),
    Float(f64),
    Bool(bool),
    Type(aclDataType),
    Text(Cow<'static, CStr>),
}

impl OwnedArgument {
    fn new(device: &Arc<Device>, argument: Argument<Tensor>) -> Result<Self> {
        Ok(match argument {
            Argument::Tensor(tensor) => Self::Tensor(tensor),
            Argument::Tensors(tensors) => Self::Tensors(TensorList::new(device, &tensors)?),
            Argument::Scalar(number) => Self::Scalar(ScalarHandle::new(device, number)?),
            Argument::Ints(numbers) => Self::Ints(IntArray::new(device, &numbers)?),
            Argument::Absent => Self::Absent,
            Argument::Int(number) => Self::Int(number),
            Argument::Float(number) => Self::Float(number),
            Argument::Bool(yes) => Self::Bool(yes),
            Argument::Type(dtype) => Self::Type(acl_dtype(dtype)),
            Argument::Text(text) => Self::Text(text),
        })
    }
}

trait CType: Sized {
    fn takes(argument: &Argument<Tensor>) -> bool;

    fn from_argument(argument: &OwnedArgument) -> Option<Self>;
}

macro_rules! c_types {
    ($($type:ty { $($kind:ident $(($held:ident))? => $raw:expr),* })*) => { $(
        impl CType for $type {
            fn takes(argument: &Argument<Tensor>) -> bool {
                matches!(argument, $(Argument::$kind { .. })|*)
            }

            fn from_argument(argument: &OwnedArgument) -> Option<Self> {
                match argument {
                    $( OwnedArgument::$kind $(($held))? => Some($raw), )*
                    _ => None,
                }
            }
        }
    )* };
}
c_types! {
    *const aclTensor { Tensor(held) => held.as_ptr().cast_const(), Absent => std::ptr::null() }
    *mut aclTensor { Tensor(held) => held.as_ptr(), Absent => std::ptr::null_mut() }
    *const aclTensorList { Tensors(held) => held.as_ptr().cast_const(), Absent => std::ptr::null() }
    *mut aclTensorList { Tensors(held) => held.as_ptr(), Absent => std::ptr::null_mut() }
    *const aclScalar { Scalar(held) => held.as_ptr().cast_const() }
    *const aclIntArray { Ints(held) => held.as_ptr().cast_const(), Absent => std::ptr::null() }
    i64 { Int(held) => *held }
    i32 { Int(held) => Self::try_from(*held).ok()? }
    i8 { Int(held) => Self::try_from(*held).ok()? }
    f64 { Float(held) => *held }
    f32 { Float(held) => *held as Self }
    bool { Bool(held) => *held }
    aclDataType { Type(held) => *held }
    *const c_char { Text(held) => held.as_ptr() }
    // The library only reads the text, although the prototype is not const.
    *mut c_char { Text(held) => held.as_ptr().cast_mut() }
}

macro_rules! operators {
    (
        required { $($required:tt)* }
        optional { $($optional:tt)* }
        operators { $( $run:ident, $plan:ident($($parameter:ident: $type:ty),*); )* }
        dropin { $($dropin:tt)* }
    ) => {
        static OPERATORS: &[AclnnOperator] = &[$( AclnnOperator {
            name: stringify!($run),
            plan_name: stringify!($plan),
            parameters: &[$( OperatorParameter {
                name: stringify!($parameter),
                c_type: stringify!($type),
                takes: <$type as CType>::takes,
            }, )*],
            plan: |table, held, workspace_bytes, executor| {
                let mut held = held.iter();
                $( let $parameter = <$type as CType>::from_argument(held.next()?)?; )*
                // SAFETY: the arguments are of the types of the C prototype; the objects behind
                // them are owned by `held`; both results are valid for a write, as `Prepared`
                // passes them.
                Some(unsafe { (table.$plan)($($parameter,)* workspace_bytes, executor) })
            },
            run: |table| table.$run,
        }, )*];
    };
}
for_each_symbol!(operators);
