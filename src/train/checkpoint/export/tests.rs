//! Tests of exports of the shipped models and the fixtures.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::sync::Arc;

use serde_json::json;

use super::super::reshard::{reshard, stored_layouts_on};
use super::super::sharding::{ShardedTensor, Sharding};
use super::super::writer::{PartBytes, Writer};
use super::*;
use crate::base::{AxisId, Id};
use crate::generate::Model;
use crate::placement::{Layout, Mesh};
use crate::program::{Form, Role, Source};
use crate::weights;
use crate::world::ProcessGroup;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Writes a checkpoint of a model in f32, sharded on up to two axes, with moments.
fn saved(model: &Path, folder: &Path, change: impl Fn(&mut ShardedTensor, &mut Vec<u8>)) -> Checkpoint {
    let mesh = Mesh::new(&[("dp", 2), ("tp", 3)]).unwrap();
    let config = Model::open_config(model).unwrap();
    let run = RunShape::new(1, 1, 1);
    let program = decoder(&config, run, DType::F32, Head::AllLogits).unwrap();
    let source = weights::Checkpoint::open(model).unwrap();
    let (mut tensors, mut wholes) = (Vec::new(), BTreeMap::new());
    for value in program.with_role(Role::Param).map(|id| &program.values[id]) {
        let rank = value.shape.rank();
        let mut layout = Layout::replicated(rank).sharded(0, AxisId::from_index(1));
        if rank > 1 {
            layout = layout.sharded(rank - 1, AxisId::from_index(0));
        }
        let from = value.source.clone().unwrap();
        let all: Vec<Range<usize>> = value.shape.iter().map(|size| 0..*size).collect();
        let mut bytes = vec![0; value.shape.elems() * 4];
        source.read_param(&from, &value.shape, &all, DType::F32, &mut bytes).unwrap();
        let mut tensor = ShardedTensor::placed(&value.name, &value.shape, DType::F32, &mesh, &layout);
        let moment = ShardedTensor { name: format!("{}.m", value.name), ..tensor.clone() };
        wholes.insert(moment.name.clone(), vec![0; bytes.len()]);
        tensor.source = Some(from);
        change(&mut tensor, &mut bytes);
        wholes.insert(tensor.name.clone(), bytes);
        tensors.extend([tensor, moment]);
    }
    written(folder, Sharding::new(mesh, tensors).unwrap(), &wholes)
}

/// Writes the whole tensors as a checkpoint.
fn written(folder: &Path, sharding: Sharding, wholes: &BTreeMap<String, Vec<u8>>) -> Checkpoint {
    let mut writer = Writer::new(folder, None, sharding, Arc::new(ProcessGroup::alone())).unwrap();
    let parts = writer.parts().map(|(rank, tensor, part)| {
        let planned = crate::schedule::plan::Tensor {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            dtype: tensor.dtype,
            ranges: part.to_vec(),
            buffer: Id::from_index(0),
            offset: 0,
            source: None,
        };
        PartBytes {
            rank,
            tensor: tensor.name.clone(),
            bytes: planned.cut(&wholes[&tensor.name]).into_owned(),
        }
    });
    let parts = parts.collect();
    writer.begin(1, json!({}), parts).unwrap();
    writer.finish().unwrap();
    Checkpoint::latest(folder).unwrap().unwrap()
}

fn stored_weights(folder: &Path) -> BTreeMap<String, (DType, Shape, Vec<u8>)> {
    let checkpoint = weights::Checkpoint::open(folder).unwrap();
    let read = |(name, info): (&str, &weights::TensorInfo)| {
        let all: Vec<Range<usize>> = info.shape.iter().map(|size| 0..*size).collect();
        let mut bytes = vec![0; info.shape.elems() * info.dtype.size_bytes()];
        checkpoint.read_slice(name, 0, &info.shape, &all, info.dtype, &mut bytes).unwrap();
        (name.to_owned(), (info.dtype, info.shape.clone(), bytes))
    };
    checkpoint.tensors().map(read).collect()
}

#[test]
fn an_export_has_the_bytes_that_the_model_came_with() {
    for name in ["tests/fixtures/qwen-v1-mha", "tests/fixtures/qwen2-tied-uneven"] {
        let (model, folder) = (root(name), tempfile::tempdir().unwrap());
        let checkpoint = saved(&model, &folder.path().join("run"), |_, _| ());
        let source = stored_weights(&model);
        let dtype = source.values().next().unwrap().0;
        // Only the files that an export needs.
        let (from, out) = (folder.path().join("from"), folder.path().join("out"));
        fs::create_dir(&from).unwrap();
        fs::copy(model.join(CONFIG), from.join(CONFIG)).unwrap();
        for file in ["tokenizer.json", "modeling_qwen.py", "optimizer.pt", "model.safetensors"] {
            fs::write(from.join(file), file).unwrap();
        }
        // Small files, so that there are several.
        let exported = export_in(&checkpoint, &from, None, dtype, &out, 50_000).unwrap();
        assert_eq!(stored_weights(&out), source, "{name}");
        assert_eq!(exported.tensors, source.len());
        let others = exported.files.iter().filter(|file| !file.ends_with(".safetensors")).collect::<Vec<_>>();
        assert_eq!(others, [CONFIG, "model.safetensors.index.json", "modeling_qwen.py", "tokenizer.json"]);
        assert_eq!(fs::read_to_string(out.join("tokenizer.json")).unwrap(), "tokenizer.json");
        assert_eq!(exported.bytes, Model::open(&out).unwrap().checkpoint.bytes());
        let config = |folder: &Path| -> Value {
            serde_json::from_str(&fs::read_to_string(folder.join(CONFIG)).unwrap()).unwrap()
        };
        let (written, came) = (config(&out), config(&model));
        for (key, value) in came.as_object().unwrap() {
            assert_eq!(&written[key], value, "{key}: the type is as it was");
        }
    }
}

#[test]
fn another_type_is_rounded_and_said() {
    let (model, folder) = (root("tests/fixtures/qwen3-qknorm"), tempfile::tempdir().unwrap());
    let checkpoint = saved(&model, &folder.path().join("run"), |_, _| ());
    let (whole, half) = (folder.path().join("f32"), folder.path().join("deep").join("f16"));
    export(&checkpoint, &model, None, DType::F32, &whole).unwrap();
    export(&checkpoint, &model, None, DType::F16, &half).unwrap();
    let (whole_weights, half_weights) = (stored_weights(&whole), stored_weights(&half));
    for (name, (_, _, bytes)) in &whole_weights {
        let mut rounded = vec![0; bytes.len() / 2];
        convert(DType::F32, DType::F16, bytes, &mut rounded).unwrap();
        assert_eq!(half_weights[name].2, rounded, "{name}");
    }
    let config: Value = serde_json::from_str(&fs::read_to_string(half.join("config.json")).unwrap()).unwrap();
    let said: Vec<&Value> = ["torch_dtype", "dtype"].iter().filter_map(|key| config.get(key)).collect();
    assert!(!said.is_empty() && said.iter().all(|said| *said == "float16"), "{said:?}");
    let header = fs::read(half.join("model.safetensors")).unwrap();
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&header).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt", "transformers asks for it");
}

#[test]
fn what_cannot_be_exported_is_named_at_once_and_nothing_is_left() {
    let (model, folder) = (root("tests/fixtures/qwen2-gqa"), tempfile::tempdir().unwrap());
    let out = folder.path().join("out");
    let refused = |checkpoint: &Checkpoint, model: &Path, dtype, out: &Path| {
        let text = export(checkpoint, model, None, dtype, out).unwrap_err().to_string();
        assert!(!out.join("config.json").exists());
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let checkpoint = saved(&model, &folder.path().join("a"), |tensor, _| {
        let source = tensor.source.as_mut().unwrap();
        if source.tensor == "model.norm.weight" {
            source.tensor = "model.norm.bias".to_owned();
        }
        if source.tensor == "model.layers.0.mlp.up_proj.weight" {
            source.element_offset = 8;
        }
    });
    let lines = refused(&checkpoint, &model, DType::BF16, &out);
    for expected in [
        "a weight that the model does not have: found model.norm.bias",
        "not the next piece of the weight: expected element 0 of model.layers.0.mlp.up_proj.weight, found element 8",
        "model.norm.weight: not all of the weight: expected",
    ] {
        assert!(lines.iter().any(|line| line.contains(expected)), "{expected}: {lines:#?}");
    }
    let lines = refused(&checkpoint, folder.path(), DType::I32, folder.path());
    for expected in
        ["dtype: not a type of weights", "something is there already", "config.json: cannot be read"]
    {
        assert!(lines.iter().any(|line| line.contains(expected)), "{expected}: {lines:#?}");
    }
    let nan = saved(&model, &folder.path().join("b"), |tensor, bytes| {
        if tensor.name.ends_with("norm.weight") {
            bytes[8..12].copy_from_slice(&f32::NAN.to_le_bytes());
        }
    });
    let lines = refused(&nan, &model, DType::BF16, &out);
    assert!(
        lines[0].contains("a weight that is NaN or infinite: the run had diverged: found element 2 is NaN"),
        "{lines:?}"
    );
    let large = saved(&model, &folder.path().join("c"), |_, bytes| {
        bytes[..4].copy_from_slice(&1e6_f32.to_le_bytes());
    });
    let lines = refused(&large, &model, DType::F16, &out);
    assert!(lines[0].contains("a number too large for f16: found element 0 is 1000000"), "{lines:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "the checkpoints alone");
}

/// Returns the experts of a layer as two stacks, with a fused tensor in two parts.
fn experts(mesh: &Mesh) -> Vec<ShardedTensor> {
    let ordered = |mut tensor: ShardedTensor, form: &str| {
        tensor.source.as_mut().unwrap().form = Form::parse(form).unwrap();
        tensor
    };
    let tensor = |name: &str, sizes: &[usize], dims: [usize; 2], pattern: &str, element_offset: usize| {
        let [on_dp, on_tp] = dims;
        let layout = Layout::replicated(sizes.len())
            .sharded(on_dp, AxisId::from_index(0))
            .sharded(on_tp, AxisId::from_index(1));
        let tensor = ShardedTensor::placed(name, &sizes.into(), DType::F32, mesh, &layout);
        let (tensor_name, form) = (pattern.to_owned(), Form::Numbers);
        ShardedTensor { source: Some(Source { tensor: tensor_name, element_offset, form }), ..tensor }
    };
    vec![
        tensor("gate_up", &[5, 2, 4, 3], [0, 2], "l.3.experts.{0..5}.{gate,up}.weight", 0),
        tensor("down", &[5, 3, 4], [2, 0], "l.3.experts.{0..5}.down.weight", 0),
        tensor("shared.a", &[2, 3, 3], [1, 0], "l.3.shared.{0..2}.weight", 0),
        tensor("shared.b", &[2, 2, 3], [2, 1], "l.3.shared.{0..2}.weight", 9),
        ordered(tensor("columns", &[5, 2, 4, 3], [0, 2], "l.3.columns", 0), "dims/0,3,21"),
        ordered(tensor("outer", &[2, 3, 4], [1, 2], "l.3.outer", 0), "dims/2,10"),
        ordered(tensor("same", &[5, 2, 4, 3], [1, 3], "l.3.same", 0), "dims/0,12,3"),
    ]
}

#[test]
fn a_stack_is_exported_as_the_tensors_of_the_published_files() {
    let folder = tempfile::tempdir().unwrap();
    let mesh = Mesh::new(&[("dp", 2), ("tp", 3)]).unwrap();
    let tensors = experts(&mesh);
    let number = |tensor: usize, at: usize| (tensor * 1000 + at) as f32;
    let wholes: BTreeMap<String, Vec<u8>> = tensors
        .iter()
        .enumerate()
        .map(|(index, tensor)| {
            let numbers = (0..tensor.shape.elems()).flat_map(|at| number(index, at).to_le_bytes());
            (tensor.name.clone(), numbers.collect())
        })
        .collect();
    let mut shapes: BTreeMap<String, Shape> = BTreeMap::new();
    let mut expected: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    for expert in 0..5 {
        for (at, part) in ["gate", "up"].iter().enumerate() {
            let name = format!("l.3.experts.{expert}.{part}.weight");
            shapes.insert(name.clone(), [4, 3].into());
            expected.insert(name, (0..12).map(|i| number(0, (2 * expert + at) * 12 + i)).collect());
        }
        let name = format!("l.3.experts.{expert}.down.weight");
        shapes.insert(name.clone(), [3, 4].into());
        expected.insert(name, (0..12).map(|i| number(1, 12 * expert + i)).collect());
    }
    for index in 0..2 {
        let name = format!("l.3.shared.{index}.weight");
        shapes.insert(name.clone(), [5, 3].into());
        let a = (0..9).map(|i| number(2, 9 * index + i));
        expected.insert(name, a.chain((0..6).map(|i| number(3, 6 * index + i))).collect());
    }
    // Columns of both matrices of an expert, interleaved.
    shapes.insert("l.3.columns".to_owned(), [5, 3, 8].into());
    let place = |at: usize| {
        let (expert, column, row, matrix) = (at / 24, at / 8 % 3, at / 2 % 4, at % 2);
        ((expert * 2 + matrix) * 4 + row) * 3 + column
    };
    expected.insert("l.3.columns".to_owned(), (0..120).map(|at| number(4, place(at))).collect());
    shapes.insert("l.3.outer".to_owned(), [4, 6].into());
    let place = |at: usize| at % 2 * 12 + at / 2 % 3 * 4 + at / 6;
    expected.insert("l.3.outer".to_owned(), (0..24).map(|at| number(5, place(at))).collect());
    shapes.insert("l.3.same".to_owned(), [5, 8, 3].into());
    expected.insert("l.3.same".to_owned(), (0..120).map(|at| number(6, at)).collect());
    let saved = written(&folder.path().join("a"), Sharding::new(mesh, tensors.clone()).unwrap(), &wholes);
    // A checkpoint for other ranks exports the same.
    let other = Mesh::new(&[("dp", 1), ("tp", 2)]).unwrap();
    let into = folder.path().join("b");
    reshard(&saved, &stored_layouts_on(&saved, &other).unwrap(), &into).unwrap();
    let resharded = Checkpoint::latest(&into).unwrap().unwrap();
    for (checkpoint, into) in [(&saved, "export-a"), (&resharded, "export-b")] {
        let mut problems = Diagnostics::new();
        let weights = weights(checkpoint, &shapes, &|_| DType::F32, &mut problems);
        problems.into_result(()).unwrap();
        let into = folder.path().join(into);
        fs::create_dir(&into).unwrap();
        let new: Vec<NewTensor> = weights.iter().map(ExportedWeight::tensor).collect();
        let names = FileNames { file_bytes: 200, ..FileNames::TRANSFORMERS };
        write_tensors(&new, &into, names, weights.iter().map(|weight| numbers(checkpoint, weight))).unwrap();
        let exported = weights::Checkpoint::open(&into).unwrap();
        assert_eq!(exported.tensors().len(), expected.len());
        for (name, numbers) in &expected {
            let found = exported.read_f32(name).unwrap();
            assert_eq!(found, (shapes[name].clone(), numbers.clone()), "{name}");
        }
        for tensor in &tensors {
            let all: Vec<Range<usize>> = tensor.shape.iter().map(|size| 0..*size).collect();
            let mut bytes = vec![0; tensor.part_bytes(&all)];
            let source = tensor.source.as_ref().unwrap();
            exported.read_param(source, &tensor.shape, &all, DType::F32, &mut bytes).unwrap();
            assert!(bytes == wholes[&tensor.name], "{} is read as it was saved", tensor.name);
        }
    }
}

#[test]
fn stacks_that_do_not_fit_the_model_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mesh = Mesh::new(&[("dp", 2), ("tp", 3)]).unwrap();
    let mut tensors = experts(&mesh);
    let mut wholes: BTreeMap<String, Vec<u8>> =
        tensors.iter().map(|tensor| (tensor.name.clone(), vec![0; tensor.shape.elems() * 4])).collect();
    // Elements 60 on belong to `l.3.experts.2.up.weight`.
    wholes.get_mut("gate_up").unwrap()[4 * 63..4 * 64].copy_from_slice(&f32::NAN.to_le_bytes());
    let checkpoint = written(folder.path(), Sharding::new(mesh.clone(), tensors.clone()).unwrap(), &wholes);
    let shapes: BTreeMap<String, Shape> =
        (0..3).map(|expert| (format!("l.3.experts.{expert}.up.weight"), [4, 3].into())).collect();
    let mut problems = Diagnostics::new();
    let found = weights(&checkpoint, &shapes, &|_| DType::F32, &mut problems);
    let lines = problems.items().iter().map(ToString::to_string).collect::<Vec<_>>();
    let ends = [
        "down: a weight that the model does not have: found l.3.experts.0.down.weight and 4 more; \
         name the folder that the model came from",
        "gate_up: a weight that the model does not have: found l.3.experts.0.gate.weight and 6 more; \
         name the folder that the model came from",
    ];
    for end in ends {
        assert!(lines.iter().any(|line| line.ends_with(end)), "{end}: {lines:#?}");
    }
    numbers(&checkpoint, &found[0]).unwrap();
    let message = numbers(&checkpoint, &found[2]).unwrap_err().to_string();
    assert!(message.contains("gate_up: a weight that is NaN or infinite"), "{message}");
    assert!(message.contains("found element 63 is NaN"), "{message}");

    tensors[1].source.as_mut().unwrap().tensor = "l.3.experts.{0..6}.down.weight".to_owned();
    let message = Sharding::new(mesh, tensors).unwrap_err().to_string();
    assert_eq!(
        message,
        "down: not the tensors of a weight in the model's files: \
         found the first dims of [5,3,4] do not count 6 tensors"
    );
}

#[test]
fn a_block_is_one_index_of_the_first_dims() {
    let shape: Shape = [1, 6, 12, 24].into();
    assert_eq!(ranges_of_block(&shape, 12 * 24, 4), [0..1, 4..5, 0..12, 0..24]);
    assert_eq!(ranges_of_block(&[2, 3, 4].into(), 4, 5), [1..2, 2..3, 0..4]);
    assert_eq!(ranges_of_block(&[2, 3, 4].into(), 12, 1), [1..2, 0..3, 0..4]);
}
