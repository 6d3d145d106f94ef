//! Results of PyTorch: each line of `unit/golden/*.jsonl` is a call.
//!
//! Each call runs contiguous, strided, and in place if supported.

use serde_json::Value;

use super::*;
use crate::operator::row::Layout;

struct Case {
    name: String,
    arguments: Vec<Value>,
    is_contiguous: bool,
}

fn cases(file: &str) -> Vec<Case> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let case = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        Case {
            name: value["call"].as_str().unwrap().to_owned(),
            arguments: value["arguments"].as_array().unwrap().clone(),
            is_contiguous: value.get("contiguous").is_some(),
        }
    };
    text.lines().map(case).collect()
}

fn dtype_of(value: &Value) -> AclType {
    let name = value.as_str().unwrap();
    AclType::ALL.into_iter().find(|dtype| dtype.name() == name).unwrap()
}

/// NaN and infinities are strings in JSON.
fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().unwrap(),
        other => other.as_f64().unwrap(),
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn whole_numbers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|value| value.as_i64().unwrap()).collect()
}

/// `in` and `ins` have values, `out` and `outs` are blank, `ref` and `refs` have initial values.
fn tensors(argument: &Value) -> Vec<Data> {
    let read = |value: &Value, values: &str| {
        let dims: Vec<usize> = whole_numbers(&value["dims"]).iter().map(|&dim| dim as usize).collect();
        let dtype = dtype_of(&value["type"]);
        let data = if values.is_empty() {
            Data::blank(dtype, &dims)
        } else {
            Data::new(dtype, &dims, &numbers(&value[values]))
        };
        // Default formats of frameworks: NCL, NCHW, NCDHW, else ND.
        let usual = [(3, 47), (4, 0), (5, 30)]
            .iter()
            .find(|(rank, _)| *rank == dims.len())
            .map_or(2, |(_, code)| *code);
        let format = value.get("format").and_then(Value::as_i64).map_or(usual, |code| code as i32);
        Data { format, ..data }
    };
    let all = |value: &Value, values: &str| {
        value.as_array().unwrap().iter().map(|value| read(value, values)).collect()
    };
    match argument {
        argument if argument.get("in").is_some() => vec![read(&argument["in"], "values")],
        argument if argument.get("ref").is_some() => vec![read(&argument["ref"], "before")],
        argument if argument.get("out").is_some() => vec![read(&argument["out"], "")],
        argument if argument.get("ins").is_some() => all(&argument["ins"], "values"),
        argument if argument.get("refs").is_some() => all(&argument["refs"], "before"),
        argument if argument.get("outs").is_some() => all(&argument["outs"], ""),
        _ => Vec::new(),
    }
}

/// Returns only written tensors.
fn expected(argument: &Value) -> Vec<Vec<f64>> {
    let wanted = ["out", "ref"]
        .iter()
        .find_map(|field| argument.get(field))
        .map(|value| vec![numbers(&value["values"])]);
    let listed = ["outs", "refs"].iter().find_map(|field| argument.get(field)?.as_array());
    let list = || listed.map(|list| list.iter().map(|value| numbers(&value["values"])).collect());
    wanted.or_else(list).unwrap_or_default()
}

fn scalar_of(value: &Value) -> Scalar {
    let (dtype, value) = (dtype_of(&value["type"]), &value["scalar"]);
    if dtype.is_float() {
        Scalar::Float(number(value), dtype)
    } else {
        Scalar::Int(value.as_i64().unwrap(), dtype)
    }
}

fn plain(argument: &Value) -> Arg<'static> {
    let field = |name: &str| argument.get(name);
    if field("scalar").is_some() {
        return Arg::S(scalar_of(argument));
    }
    if let Some(list) = field("scalars") {
        return Arg::Scalars(list.as_array().unwrap().iter().map(scalar_of).collect());
    }
    match argument.get("null").and_then(Value::as_str) {
        Some("tensor") => return Arg::Null,
        Some("tensors") => return Arg::NoList,
        Some("scalar") => return Arg::NoScalar,
        Some("ints") => return Arg::NoInts,
        Some("text") => return Arg::NoText,
        _ => {}
    }
    if let Some(value) = field("ints") {
        return Arg::Ints(whole_numbers(value).leak());
    }
    if let Some(value) = field("flags") {
        return Arg::Flags(value.as_array().unwrap().iter().map(|value| value.as_bool().unwrap()).collect());
    }
    if let Some(value) = field("int") {
        return Arg::I(value.as_i64().unwrap());
    }
    if let Some(value) = field("float") {
        return Arg::F(number(value));
    }
    if let Some(value) = field("flag") {
        return Arg::B(value.as_bool().unwrap());
    }
    if let Some(value) = field("text") {
        return Arg::Text(value.as_str().unwrap().to_owned().leak());
    }
    if let Some(value) = field("dtype") {
        return Arg::D(dtype_of(value));
    }
    panic!("no argument: {argument}")
}

fn run_case(
    name: &str,
    arguments: &[Value],
    given: &mut [Vec<Data>],
) -> Result<Vec<(usize, Vec<usize>)>, String> {
    let mut list = Vec::new();
    for (argument, data) in arguments.iter().zip(given) {
        let is_list = ["ins", "outs", "refs"].iter().any(|field| argument.get(field).is_some());
        list.push(match &mut data[..] {
            tensors if is_list => Arg::List(tensors.iter_mut().collect()),
            [only] => Arg::T(only),
            _ => plain(argument),
        });
    }
    run_deciding(name, list)
}

/// For data-dependent shapes, only elements within `becomes` are compared.
fn check_results(what: &str, arguments: &[Value], given: &[Vec<Data>], decided: &[(usize, Vec<usize>)]) {
    let mut slots = 0..;
    let mut waiting = decided.to_vec();
    for (argument, data) in arguments.iter().zip(given) {
        let slots: Vec<usize> = slots.by_ref().take(data.len()).collect();
        for ((found, slot), wanted) in data.iter().zip(slots).zip(expected(argument)) {
            let mut values = found.values();
            if let Some(becomes) = argument["out"].get("becomes") {
                let shape: Vec<usize> = whole_numbers(becomes).into_iter().map(|dim| dim as usize).collect();
                values.truncate(shape.iter().product());
                let place = waiting.iter().position(|each| *each == (slot, shape.clone()));
                waiting
                    .remove(place.unwrap_or_else(|| {
                        panic!("{what}: expected {shape:?} in {slot}, found {decided:?}")
                    }));
            }
            let units = argument.get("units").and_then(Value::as_f64).unwrap_or(1.0);
            let bound = if found.dtype.is_float() { precision(found.dtype) * units } else { 0.0 };
            close(&values, &wanted, bound, what);
        }
    }
    assert!(waiting.is_empty(), "{what}: {waiting:?}");
}

fn check_file(file: &str) {
    let cases = cases(file);
    assert!(!cases.is_empty(), "{file}");
    for (line, case) in cases.iter().enumerate() {
        let signature = find(&case.name).unwrap_or_else(|| panic!("{file}: {} has no row", case.name));
        let takes_strides: Vec<bool> = signature
            .parameters()
            .map(|parameter| match parameter.kind {
                ParameterKind::Tensor { layout, .. } | ParameterKind::Tensors { layout, .. } => {
                    layout != Layout::Contiguous
                }
                _ => false,
            })
            .collect();
        for strided in [false, true].into_iter().filter(|strided| !(*strided && case.is_contiguous)) {
            let mut given: Vec<Vec<Data>> = case.arguments.iter().map(tensors).collect();
            for (list, _) in given.iter_mut().zip(&takes_strides).filter(|(_, takes)| strided && **takes) {
                *list = std::mem::take(list).into_iter().map(Data::strided).collect();
            }
            let what = format!("{file}:{}: {} strided {strided}", line + 1, case.name);
            let decided = run_case(&case.name, &case.arguments, &mut given)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            check_results(&what, &case.arguments, &given, &decided);
        }
        check_in_place(file, line, case);
    }
}

/// Runs in place if the form exists and the first operand can hold the result.
fn check_in_place(file: &str, line: usize, case: &Case) {
    let name = case.name.replacen("aclnn", INPLACE, 1);
    let (Some(signature), [first, middle @ .., last]) = (find(&name), &case.arguments[..]) else { return };
    let (Some(source), Some(target)) = (first.get("in"), last.get("out")) else { return };
    if !signature.in_place || source["dims"] != target["dims"] || source["type"] != target["type"] {
        return;
    }
    let mut changed = target.clone();
    changed["before"] = source["values"].clone();
    let mut arguments = vec![serde_json::json!({ "ref": changed })];
    arguments.extend_from_slice(middle);
    let mut given: Vec<Vec<Data>> = arguments.iter().map(tensors).collect();
    let what = format!("{file}:{}: {name}", line + 1);
    let decided = run_case(&name, &arguments, &mut given).unwrap_or_else(|error| panic!("{what}: {error}"));
    check_results(&what, &arguments, &given, &decided);
}

#[test]
fn selections_are_those_of_pytorch() {
    check_file("selection.jsonl");
}

#[test]
fn reductions_are_those_of_pytorch() {
    check_file("reductions.jsonl");
}

#[test]
fn gradients_are_those_of_pytorch() {
    check_file("gradients.jsonl");
}

#[test]
fn functions_of_lists_are_those_of_pytorch() {
    check_file("foreach.jsonl");
}

#[test]
fn functions_of_each_element_are_those_of_pytorch() {
    check_file("pointwise.jsonl");
}

#[test]
fn activations_and_gates_are_those_of_pytorch() {
    check_file("activations.jsonl");
}

#[test]
fn losses_and_their_slopes_are_those_of_pytorch() {
    check_file("losses.jsonl");
}

#[test]
fn values_by_their_order_are_those_of_pytorch() {
    check_file("order.jsonl");
}

#[test]
fn elements_by_their_place_are_those_of_pytorch() {
    check_file("places.jsonl");
}

#[test]
fn convolutions_norms_and_pools_are_those_of_pytorch() {
    check_file("images.jsonl");
}

#[test]
fn what_is_put_to_named_places_is_that_of_pytorch() {
    check_file("scatters.jsonl");
}

#[test]
fn results_whose_shape_the_values_decide_are_those_of_pytorch() {
    check_file("decided.jsonl");
}

#[test]
fn mixtures_of_experts_are_those_of_pytorch() {
    check_file("mixtures.jsonl");
}

#[test]
fn products_in_groups_are_those_of_pytorch() {
    check_file("grouped.jsonl");
}

#[test]
fn few_bit_integers_are_those_of_pytorch() {
    check_file("few_bits.jsonl");
}

#[test]
fn solvers_and_what_stands_alone_are_those_of_pytorch() {
    check_file("rest.jsonl");
}

#[test]
fn losses_of_sequences_and_norms_over_cards_are_those_of_pytorch() {
    check_file("training.jsonl");
}

#[test]
fn turned_products_distances_and_lists_are_those_of_pytorch() {
    check_file("further.jsonl");
}

#[test]
fn pools_over_volumes_grids_and_what_else_models_ask_for_are_those_of_pytorch() {
    check_file("grids.jsonl");
}
