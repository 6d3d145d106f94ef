//! Operator families against their definitions, over types, strides, broadcasts and empty tensors,
//! and all errors. The harness runs both phases without the C ABI.

mod attention;
mod complex;
mod elementwise;
mod exponents;
mod flash;
mod foreach;
mod further;
mod fused;
mod golden;
mod gradient;
mod indexing;

mod latent;
mod later;
mod limits;
mod lookups;
mod loss;
mod networks;
mod normal;
mod optimizer;
mod packed;
mod paged;
mod product;
mod programs;
mod quantized;
mod random;
mod reduction;
mod ring;
mod routing;
mod sampled;
mod samples;
mod sequences;
mod serving;
mod shape;
mod signs;

use super::row::Parameter;
use super::*;
use crate::Serial;
use crate::dtype::AclType;
use crate::lane::Lane;
use crate::prototypes::ArgumentKind;
use crate::raw::tests::span_of;
use crate::view::StridedView;
use crate::view::contiguous_strides;

#[derive(Clone, Debug)]
pub(super) struct Data {
    memory: Vec<u64>,
    dtype: AclType,
    dims: Vec<usize>,
    strides: Vec<isize>,
    offset: isize,
    format: i32,
}

impl Data {
    pub(super) fn new(dtype: AclType, dims: &[usize], values: &[f64]) -> Self {
        let mut data = Self::blank(dtype, dims);
        data.write(values);
        data
    }

    /// Creates a contiguous tensor of an unexpected bit pattern.
    pub(super) fn blank(dtype: AclType, dims: &[usize]) -> Self {
        let len: usize = dims.iter().product();
        let memory = vec![0x5555_5555_5555_5555; (len * dtype.size()).div_ceil(8).max(1)];
        Self { memory, dtype, dims: dims.to_vec(), strides: contiguous_strides(dims), offset: 0, format: 2 }
    }

    /// Stores elements in reversed dim order, two elements apart, with an offset of one.
    pub(super) fn strided(self) -> Self {
        let values = self.values();
        let mut strides = vec![0isize; self.dims.len()];
        let mut step = 2isize;
        for (stride, &dim) in strides.iter_mut().zip(&self.dims) {
            *stride = step;
            step *= dim.max(1) as isize;
        }
        let len = step as usize + 1;
        let memory = vec![0x5555_5555_5555_5555; (len * self.dtype.size()).div_ceil(8)];
        let mut data = Self { memory, strides, offset: 1, ..self };
        data.write(&values);
        data
    }

    fn view_mut(&mut self) -> StridedView {
        StridedView::new(span_of(&mut self.memory), self.dtype, &self.dims, &self.strides, self.offset)
            .unwrap()
    }

    fn write(&mut self, values: &[f64]) {
        let view = self.view_mut();
        assert_eq!(view.len(), values.len(), "{:?}", self.dims);
        f64::store(&view, 0, values);
    }

    pub(super) fn values(&self) -> Vec<f64> {
        let mut copy = self.clone();
        let view = copy.view_mut();
        let mut values = vec![0f64; view.len()];
        f64::load(&view, 0, &mut values);
        values
    }

    fn desc(&self) -> TensorDesc {
        TensorDesc {
            dtype: code_of(self.dtype),
            format: self.format,
            dims: self.dims.iter().map(|&dim| dim as i64).collect(),
            strides: self.strides.iter().map(|&stride| stride as i64).collect(),
            offset: self.offset as i64,
            storage: vec![(self.memory.len() * 8 / self.dtype.size()) as i64],
            address: self.memory.as_ptr().addr(),
            handle: 0,
        }
    }
}

fn code_of(dtype: AclType) -> i32 {
    (0..64).find(|&code| AclType::from_acl(code) == Some(dtype)).unwrap()
}

pub(super) enum Arg<'a> {
    T(&'a mut Data),
    List(Vec<&'a mut Data>),
    /// Description without memory, for calls that are only prepared.
    Told(TensorDesc),
    Tolds(Vec<Self>),
    Null,
    NoList,
    NoScalar,
    NoInts,
    NoText,
    S(Scalar),
    Ints(&'a [i64]),
    Scalars(Vec<Scalar>),
    Flags(Vec<bool>),
    I(i64),
    F(f64),
    B(bool),
    Text(&'a str),
    D(AclType),
}

pub(super) fn whole(value: i64) -> Arg<'static> {
    Arg::S(Scalar::Int(value, AclType::I64))
}

pub(super) fn real(value: f64) -> Arg<'static> {
    Arg::S(Scalar::Float(value, AclType::F32))
}

pub(super) fn run(name: &str, arguments: Vec<Arg<'_>>) -> Result<(), String> {
    run_deciding(name, arguments).map(|_| ())
}

/// Returns data-dependent shapes with their tensor index.
pub(super) fn run_deciding(name: &str, arguments: Vec<Arg<'_>>) -> Result<Vec<(usize, Vec<usize>)>, String> {
    let (_, plan, views) = prepared(name, arguments)?;
    let decided = Decided::default();
    (plan.kernel)(&StridedViews::new(&views, &decided), &Serial)?;
    Ok(decided.take().into_iter().map(|(slot, dims)| (slot.0, dims)).collect())
}

pub(super) fn prepared(
    name: &str,
    arguments: Vec<Arg<'_>>,
) -> Result<(OperatorCall, CallPlan, Vec<StridedView>), String> {
    let mut views = Vec::new();
    let mut take = |data: &mut Data| {
        views.push(data.view_mut());
        data.desc()
    };
    let arguments = arguments
        .into_iter()
        .map(|argument| match argument {
            Arg::T(data) => CallArgument::Tensor(Some(take(data))),
            Arg::List(list) => CallArgument::Tensors(Some(list.into_iter().map(&mut take).collect())),
            Arg::Told(desc) => CallArgument::Tensor(Some(desc)),
            Arg::Tolds(list) => {
                let desc = |argument| if let Arg::Told(desc) = argument { desc } else { panic!("not told") };
                CallArgument::Tensors(Some(list.into_iter().map(desc).collect()))
            }
            Arg::Null => CallArgument::Tensor(None),
            Arg::NoList => CallArgument::Tensors(None),
            Arg::NoScalar => CallArgument::Scalar(None),
            Arg::NoInts => CallArgument::Ints(None),
            Arg::NoText => CallArgument::Text(None),
            Arg::S(scalar) => CallArgument::Scalar(Some(scalar)),
            Arg::Ints(values) => CallArgument::Ints(Some(values.to_vec())),
            Arg::Scalars(values) => CallArgument::Scalars(Some(values)),
            Arg::Flags(values) => CallArgument::Flags(Some(values)),
            Arg::I(value) => CallArgument::Int(value),
            Arg::F(value) => CallArgument::Float(value),
            Arg::B(value) => CallArgument::Flag(value),
            Arg::Text(value) => CallArgument::Text(Some(value.to_owned())),
            Arg::D(dtype) => CallArgument::DataType(code_of(dtype)),
        })
        .collect();
    let signature = find(name).unwrap_or_else(|| panic!("{name} has no row"));
    let call = check(signature, arguments).map_err(|refusal| refusal.message)?;
    for (view, given) in views.iter_mut().zip(call.slots()) {
        // A tensor without dims can count as one of extent 1.
        if view.rank() < given.tensor.rank() {
            *view = view.unsqueeze(0);
        }
    }
    let plan = call.plan().map_err(|refusal| refusal.message)?;
    Ok((call, plan, views))
}

/// Orders arguments as the prototype. Missing arguments are NULL or 0.
pub(super) fn named<'a>(name: &str, mut given: Vec<(&str, Arg<'a>)>) -> Vec<Arg<'a>> {
    let prototype = PROTOTYPES.iter().find(|prototype| prototype.name == name).unwrap();
    let signature = find(name).unwrap();
    let of = |(parameter, (_, kind)): (Parameter, &(&str, ArgumentKind))| {
        let at = given.iter().position(|(known, _)| *known == parameter.name);
        at.map(|at| given.swap_remove(at).1).unwrap_or(match kind {
            ArgumentKind::Tensors => Arg::Null,
            ArgumentKind::Ints => Arg::NoInts,
            ArgumentKind::Scalar => Arg::NoScalar,
            ArgumentKind::Scalars => Arg::Scalars(Vec::new()),
            ArgumentKind::Flags => Arg::Flags(Vec::new()),
            ArgumentKind::Value if matches!(parameter.kind, ParameterKind::OptionalText) => Arg::NoText,
            ArgumentKind::Value => Arg::I(0),
        })
    };
    let arguments = signature.parameters().zip(prototype.arguments).map(of).collect();
    assert!(
        given.is_empty(),
        "{name} has no {:?}",
        given.iter().map(|(known, _)| *known).collect::<Vec<_>>()
    );
    arguments
}

/// The message must contain every part.
#[track_caller]
pub(super) fn refused(name: &str, arguments: Vec<Arg<'_>>, parts: &[&str]) {
    let message = run(name, arguments).expect_err("must be refused");
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

pub(super) fn rounded(value: f64, dtype: AclType) -> f64 {
    let mut one = Data::new(dtype, &[1], &[value]);
    let view = one.view_mut();
    let mut back = [0f64];
    f64::load(&view, 0, &mut back);
    back[0]
}

/// Multiples of a quarter, exact in every float type.
pub(super) fn varied(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 37 + seed * 101) % 23) as f64 / 4.0 - 2.5).collect()
}

/// Returns small integers, exact in every type.
pub(super) fn counted(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 5 + seed * 3) % 7) as f64).collect()
}

/// `bound` is relative to the larger magnitude (at least 1); NaN equals NaN.
#[track_caller]
pub(super) fn close(found: &[f64], expected: &[f64], bound: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&x, &y)) in found.iter().zip(expected).enumerate() {
        let scale = x.abs().max(y.abs()).max(1.0);
        let same = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= bound * scale;
        assert!(same, "{what}: element {i} is {x}, expected {y}");
    }
}

/// Returns the rounding unit, with a margin for f32 arithmetic.
pub(super) fn precision(dtype: AclType) -> f64 {
    match dtype {
        AclType::F16 => 1.0 / 1024.0,
        AclType::BF16 => 1.0 / 128.0,
        AclType::F64 => 1e-12,
        _ => 1e-5,
    }
}

/// Returns the index in `dims` that broadcasts to position `at` of `shape`.
pub(super) fn broadcast_index(dims: &[usize], shape: &[usize], mut at: usize) -> usize {
    let (mut index, mut step) = (0, 1);
    for i in (0..shape.len()).rev() {
        let coordinate = at % shape[i];
        at /= shape[i];
        if let Some(own) = (i + dims.len()).checked_sub(shape.len()) {
            if dims[own] != 1 {
                index += coordinate * step;
            }
            step *= dims[own];
        }
    }
    index
}

pub(super) const FLOATS: [AclType; 3] = [AclType::F32, AclType::F16, AclType::BF16];

const FORMS_IN_PLACE: usize = 104;

#[test]
fn forms_in_place_are_those_of_the_rows_that_have_one() {
    let found: Vec<&str> = SIGNATURES.values().filter(|each| each.in_place).map(|each| each.name).collect();
    assert_eq!(found.len(), FORMS_IN_PLACE, "{found:?}");
    for (name, is_one) in [("Acos", true), ("XLogYTensor", true), ("Addmm", false), ("Copy", false)] {
        assert_eq!(found.contains(&format!("{INPLACE}{name}").as_str()), is_one, "{name}");
    }
}

#[test]
fn every_declared_operator_has_a_row_or_that_of_its_other_form() {
    for prototype in PROTOTYPES {
        let signature = find(prototype.name).unwrap_or_else(|| panic!("{} has no row", prototype.name));
        let parameters: Vec<&str> = signature.parameters().map(|parameter| parameter.name).collect();
        assert_eq!(parameters.len(), prototype.arguments.len(), "{}: {parameters:?}", prototype.name);
        for (parameter, (argument, _)) in parameters.iter().zip(prototype.arguments) {
            assert!(
                row::is_same(parameter, argument),
                "{}: {argument} is called {parameter}",
                prototype.name
            );
        }
    }
}

#[test]
fn rows_say_in_the_order_of_the_prototype_what_it_does_not() {
    for operator in operators() {
        let signature = find(operator.name).unwrap_or_else(|| panic!("{} has no C function", operator.name));
        let said = operator.parameters.iter().map(|parameter| parameter.name);
        let is_said =
            |parameter: &Parameter| operator.parameters.iter().any(|each| each.name == parameter.name);
        let found = signature.parameters().filter(is_said).map(|parameter| parameter.name);
        assert!(said.clone().eq(found), "{}: {:?}", operator.name, said.collect::<Vec<_>>());
        let prototype = PROTOTYPES.iter().find(|prototype| prototype.name == operator.name).unwrap();
        for (parameter, &(argument, kind)) in
            signature.parameters().zip(prototype.arguments).filter(|(each, _)| is_said(each))
        {
            let declared = format!("{:?}", Parameter::declared(argument, kind));
            assert_ne!(format!("{parameter:?}"), declared, "{} says what its prototype says", operator.name);
        }
    }
}

#[test]
fn no_row_forgets_a_result() {
    for prototype in PROTOTYPES {
        let signature = find(prototype.name).unwrap_or_else(|| panic!("{} has no row", prototype.name));
        for (parameter, (argument, kind)) in signature.parameters().zip(prototype.arguments) {
            let is_result =
                *kind == ArgumentKind::Tensors && argument.contains("out") && !argument.ends_with("optional");
            let is_refused = matches!(parameter.kind, ParameterKind::Unmodelled);
            assert!(!(is_result && is_refused), "{}: {argument}", prototype.name);
        }
    }
}

#[test]
fn names_are_unique_and_rows_name_their_source() {
    // A duplicate name would reduce the count.
    assert_eq!(count(), operators().count() + FORMS_IN_PLACE);
    for operator in operators() {
        let known = ["ops-math ", "ops-nn ", "ops-transformer ", "CANN 8.1 aclnn API reference, "];
        let cited =
            known.iter().any(|place| operator.source.starts_with(place)) && operator.source.contains("aclnn");
        assert!(cited, "{} cites {}", operator.name, operator.source);
    }
}

#[test]
fn the_table_has_a_line_per_parameter() {
    let lines: usize = operators().map(|operator| find(operator.name).unwrap().parameters().len()).sum();
    let text = markdown();
    assert_eq!(text.lines().count(), lines + FORMS_IN_PLACE + 2);
    assert!(
        text.contains("| aclnnMatmul | self | input tensor, FLOAT, FLOAT16, BFLOAT16, rank 1–6 |"),
        "{text}"
    );
}

#[test]
fn every_shared_rule_is_refused_by_name() {
    let x = || Data::new(AclType::F32, &[2, 3], &[0.0; 6]);
    let (mut a, mut out) = (x(), x());
    refused("aclnnExp", vec![Arg::Null, Arg::T(&mut out)], &["aclnnExp: self: is NULL"]);
    let mut ints = Data::new(AclType::I32, &[2, 3], &[0.0; 6]);
    let parts =
        ["aclnnExp: self: expected an element type of FLOAT, FLOAT16, BFLOAT16, INT64, BOOL, found INT32"];
    refused("aclnnExp", vec![Arg::T(&mut ints), Arg::T(&mut out)], &parts);
    let mut flat = Data::blank(AclType::F32, &[6]);
    refused(
        "aclnnExp",
        vec![Arg::T(&mut a), Arg::T(&mut flat)],
        &["out: expected shape [2, 3] (of self), found [6]"],
    );
    let mut deep = Data::blank(AclType::F32, &[1; 9]);
    refused("aclnnExp", vec![Arg::T(&mut deep), Arg::T(&mut out)], &["expected 0 to 8 dims, found 9"]);
    let mut repeated = Data { strides: vec![0, 1], ..x() };
    refused(
        "aclnnExp",
        vec![Arg::T(&mut a), Arg::T(&mut repeated)],
        &["out: expected elements that do not overlap"],
    );
    assert!(
        run("aclnnExp", vec![Arg::T(&mut repeated), Arg::T(&mut out)]).is_ok(),
        "an input may repeat elements"
    );
}

#[test]
fn descriptions_that_contradict_themselves_are_refused() {
    let good = Data::new(AclType::F32, &[2, 3], &[0.0; 6]).desc();
    let with = |change: &dyn Fn(&mut TensorDesc)| {
        let mut desc = good.clone();
        change(&mut desc);
        let arguments = vec![CallArgument::Tensor(Some(desc)), CallArgument::Tensor(Some(good.clone()))];
        check(find("aclnnExp").unwrap(), arguments).map(|_| ()).map_err(|refusal| refusal.message)
    };
    assert_eq!(with(&|_| ()), Ok(()));
    let says = |change: &dyn Fn(&mut TensorDesc), part: &str| {
        let message = with(change).expect_err("must be refused");
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    };
    says(&|desc| desc.format = 29, "expected format ND (2) or another without padding, found aclFormat 29");
    says(&|desc| desc.dtype = 17, "found aclDataType 17");
    says(&|desc| desc.dims = vec![2, -3], "expected dims of at least 0");
    says(&|desc| desc.strides = vec![-3, 1], "expected strides of at least 0");
    says(&|desc| desc.offset = -1, "expected an offset of at least 0");
    says(&|desc| desc.address = 0, "device address is NULL");
}

/// CANN's host code does not look there. Memory is checked when the call runs.
#[test]
fn a_view_past_its_storage_is_noted() {
    let (mut x, mut out) = (Data::new(AclType::F32, &[2, 3], &[0.0; 6]), Data::blank(AclType::F32, &[2, 3]));
    let mut given = x.desc();
    given.storage = vec![5];
    let arguments = vec![CallArgument::Tensor(Some(given)), CallArgument::Tensor(Some(out.desc()))];
    let plan = check(find("aclnnExp").unwrap(), arguments).unwrap().plan().unwrap();
    let told = "aclnnExp: self: dims [2, 3] with strides [3, 1] and offset 0 reach element 5 of a storage [5] of 5 elements";
    assert_eq!(plan.notes, [told]);
    let (_, plan, _) = prepared("aclnnExp", vec![Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
    assert!(plan.notes.is_empty());
}

#[test]
fn the_common_type_is_rounded_to_before_the_output_widens_it() {
    // 1 + 2^-11 is a tie in f16 that rounds to 1, for any output type.
    let mut a = Data::new(AclType::F16, &[1], &[1.0]);
    let mut b = Data::new(AclType::F16, &[1], &[1.0 / 2048.0]);
    let mut out = Data::blank(AclType::F32, &[1]);
    run("aclnnAdd", vec![Arg::T(&mut a), Arg::T(&mut b), whole(1), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [1.0]);
}
