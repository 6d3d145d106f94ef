//! Tests of training checkpoints: conversion between layouts, damage, and the command.

mod damage;
mod random;

use std::fs;

use ascend_tp::base::Shape;
use ascend_tp::compile::Deployment;
use ascend_tp::generate::Model;
use ascend_tp::placement::Mesh;
use ascend_tp::train::checkpoint::{Checkpoint, ShardedTensor, Sharding, reshard, stored_layouts_on};
use proptest::prelude::any;
use proptest::{prop_assert_eq, proptest};
use random::{Run, seeded};
use serde_json::{Value, json};

use crate::{command, fixture, names};

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 48, ..Default::default() })]

    /// Converts A → B → A on any meshes, with uneven and empty shards.
    #[test]
    fn any_layout_is_read_on_any_other_and_comes_back(seed in any::<u64>()) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let run = Run::random(&mut seeded(seed));
        let first = run.save(&at("a"), 7, &json!({ "loss": 0.1 + 0.2, "seed": seed }));
        prop_assert_eq!(first.verify(), Ok(()));
        let other = run.sharded_otherwise(&mut seeded(!seed));
        for rank in 0..other.world() {
            for tensor in other.tensors() {
                let part = first.read(&tensor.name, &tensor.shape, tensor.dtype, &tensor.ranges[rank]).unwrap();
                prop_assert_eq!(part, run.part(tensor, &tensor.ranges[rank]));
            }
        }
        reshard(&first, &other, &at("b")).unwrap();
        let second = Checkpoint::latest(&at("b")).unwrap().unwrap();
        reshard(&second, run.sharding(), &at("c")).unwrap();
        let third = Checkpoint::latest(&at("c")).unwrap().unwrap();
        prop_assert_eq!(third.index(), first.index());
        let files = names(first.path());
        prop_assert_eq!(&files, &names(third.path()));
        for file in files {
            prop_assert_eq!(fs::read(first.path().join(&file)).unwrap(), fs::read(third.path().join(&file)).unwrap());
        }
        // The command's layouts on a mesh with some shared axes.
        let chosen = stored_layouts_on(&first, other.mesh()).unwrap();
        reshard(&first, &chosen, &at("d")).unwrap();
        let fourth = Checkpoint::latest(&at("d")).unwrap().unwrap();
        prop_assert_eq!(fourth.verify(), Ok(()));
        for tensor in run.sharding().tensors() {
            prop_assert_eq!(fourth.read_whole(&tensor.name).unwrap().2, run.whole(&tensor.name));
        }
        prop_assert_eq!(&fourth.index().state, &json!({ "loss": 0.1 + 0.2, "seed": seed }));
    }
}

#[test]
fn axes_are_found_by_name_whole_or_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let text = "mesh dp=2, tp_kv=2 of tp, tp_rep=2 of tp";
    let run = Run::placed(
        &Mesh::parse(text).unwrap(),
        &[
            ("heads", &[8, 3], "tp_kv*tp_rep,_"),
            ("keys", &[8, 3], "tp_kv,dp"),
            ("both", &[5, 7], "tp_kv,tp_rep"),
        ],
    );
    let stored = run.save(folder.path(), 1, &Value::Null);
    let layouts = |mesh: &[(&str, usize)]| {
        let sharding = stored_layouts_on(&stored, &Mesh::new(mesh).unwrap()).unwrap();
        let of = |name: &str| {
            let tensor = sharding.tensors().iter().find(|tensor| tensor.name == name);
            tensor.unwrap().layout.clone()
        };
        [of("heads"), of("keys"), of("both")]
    };
    assert_eq!(layouts(&[("tp", 4), ("dp", 2)]), ["tp,_", "tp,dp", "tp,_"]);
    assert_eq!(layouts(&[("tp_kv", 3), ("pp", 2)]), ["tp_kv,_", "tp_kv,_", "tp_kv,_"]);
    assert_eq!(layouts(&[("dp", 3), ("tp", 1)]), ["_,_", "_,dp", "_,_"]);
    let back = stored_layouts_on(&stored, &Mesh::parse(text).unwrap()).unwrap();
    assert_eq!(back.tensors(), run.sharding().tensors());
}

/// Weights and states of three cards are read for five.
#[test]
fn plans_of_other_cards_find_what_theirs_are() {
    let folder = tempfile::tempdir().unwrap();
    let config = Model::open_config(&fixture("qwen2-tied-uneven")).unwrap();
    let sharding = |cards: usize| {
        let deployment = Deployment { longest_prompt: 8, context: 16, ..Deployment::of(&config, cards) };
        let plans = deployment.compile(&config).unwrap().prefill;
        let whole = |shape: &Shape| vec!["_"; shape.rank()].join(",");
        let tensors = plans[0].params.iter().chain(&plans[0].states);
        let wanted: Vec<_> = tensors.map(|one| (one.name.clone(), whole(&one.shape))).collect();
        let tensors = ShardedTensor::planned(&plans, wanted).unwrap();
        let problems =
            ShardedTensor::planned(&plans, vec![("nothing".to_owned(), String::new())]).unwrap_err();
        assert!(problems.to_string().starts_with("nothing: must be saved"), "{problems}");
        (Sharding::new(Mesh::new(&[("tp", cards)]).unwrap(), tensors).unwrap(), plans)
    };
    let run = Run::counted(sharding(3).0);
    let saved = run.save(folder.path(), 1, &Value::Null);
    let (five, plans) = sharding(5);
    assert_eq!(five.tensors().len(), run.sharding().tensors().len());
    for plan in &plans {
        for tensor in plan.params.iter().chain(&plan.states) {
            let part = saved.read(&tensor.name, &tensor.shape, tensor.dtype, &tensor.ranges).unwrap();
            assert_eq!(part, tensor.cut(run.whole(&tensor.name)).into_owned(), "{}", tensor.name);
        }
    }
}

fn ascend_tp(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> (i32, String, String) {
    let mut command = command();
    command.arg("checkpoint");
    for argument in arguments {
        command.arg(argument);
    }
    let out = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

#[test]
fn the_command_shows_checks_and_cuts() {
    let folder = tempfile::tempdir().unwrap();
    let (save, out) = (folder.path().join("save"), folder.path().join("out"));
    let mesh = Mesh::new(&[("dp", 2), ("tp", 3)]).unwrap();
    let run = Run::placed(&mesh, &[("w", &[7, 5], "tp,dp"), ("m", &[7, 5], "dp*tp,_"), ("b", &[5], "_")]);
    run.save(&save, 40, &json!({}));
    let newest = run.save(&save, 50, &json!({ "loss_scale": 65536.0 }));

    let (code, said, _) = ascend_tp(&[&"inspect", &save, &"--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &said["step"], &said["mesh"]), (0, &json!(50), &json!("mesh dp=2, tp=3")));
    assert_eq!((&said["state"]["loss_scale"], &said["path"]), (&json!(65536.0), &json!(newest.path())));
    let (code, said, _) = ascend_tp(&[&"inspect", &newest.path()]);
    assert_eq!(code, 0);
    for expected in ["step 50, mesh dp=2, tp=3, 6 files", "{dp*tp,_}", "[7,5]", "\"loss_scale\": 65536.0"] {
        assert!(said.contains(expected), "{said}");
    }
    let (code, said, _) = ascend_tp(&[&"verify", &save]);
    assert!(
        code == 0 && said.contains("step-00000050: step 50, 6 files") && said.ends_with("verified\n"),
        "{said}"
    );

    let (code, said, _) = ascend_tp(&[&"reshard", &save, &"--mesh", &"tp=2,dp=1", &"--out", &out]);
    assert!(code == 0 && said.contains("in 2 files"), "{said}");
    let cut = Checkpoint::latest(&out).unwrap().unwrap();
    assert_eq!((cut.index().step, cut.index().tensors["m"].layout.as_str()), (50, "tp,_"));
    for name in ["w", "m", "b"] {
        assert_eq!(cut.read_whole(name).unwrap(), newest.read_whole(name).unwrap());
    }
    assert_eq!(ascend_tp(&[&"verify", &out]).0, 0);

    let (code, _, said) = ascend_tp(&[&"reshard", &save, &"--mesh", &"tp=2", &"--out", &out]);
    assert!(
        code == 2 && said.contains("step-00000050: there is a checkpoint of this step already"),
        "{said}"
    );
    let (code, _, said) = ascend_tp(&[&"export", &save, &"--hf", &folder.path().join("hf")]);
    assert!(code == 2 && said.contains("does not name the model's folder; pass --model DIR"), "{said}");
    let model = fixture("qwen2-gqa");
    let (code, _, said) =
        ascend_tp(&[&"export", &save, &"--hf", &folder.path().join("hf"), &"--model", &model]);
    assert!(
        code == 2 && said.contains("model.embed_tokens.weight: not all of the weight: expected"),
        "{said}"
    );
    let (code, _, said) = ascend_tp(&[&"inspect", &folder.path()]);
    assert!(code == 2 && said.contains("no checkpoint: expected a folder with index.json"), "{said}");

    let file = cut.path().join("rank-00001-of-00002.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let (code, said, problem) = ascend_tp(&[&"verify", &out]);
    assert_eq!((code, said.as_str()), (2, ""));
    assert!(
        problem.contains("rank-00001-of-00002.safetensors: torn or altered: expected digest"),
        "{problem}"
    );
}

#[test]
fn the_command_quantises_a_model_and_reports_the_errors() {
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (fixture("qwen2-gqa"), folder.path().join("out"));
    let arguments: [&dyn AsRef<std::ffi::OsStr>; 6] =
        [&"quantise", &model, &"--format", &"w8a8-dynamic", &"--out", &out];
    let (code, said, problem) = ascend_tp(&arguments);
    assert_eq!((code, problem.as_str()), (0, ""), "{said}");
    for expected in ["14 layers in w8a8-dynamic", "relative rms error", "model.layers.1.mlp.down_proj"] {
        assert!(said.contains(expected), "{said}");
    }
    let found = Model::open(&out).unwrap();
    assert_eq!(found.config.formats.of("model.layers.0.mlp.up_proj").to_string(), "int8");
    let (code, _, said) = ascend_tp(&arguments);
    assert!(code == 2 && said.contains("out: something is there already"), "{said}");

    let out = folder.path().join("json");
    let (code, said, _) =
        ascend_tp(&[&"quantise", &model, &"--format", &"w8a8-dynamic", &"--out", &out, &"--json"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    let layers = report["layers"].as_array().unwrap();
    assert_eq!((code, layers.len(), &report["format"]), (0, 14, &json!("w8a8-dynamic")));
    for layer in layers {
        let error = layer["relative_error"].as_f64().unwrap();
        assert!(error > 0.001 && error < 0.02, "{layer}");
        assert!(
            layer["largest_error"].as_f64().unwrap() <= layer["largest_weight"].as_f64().unwrap() / 127.0
        );
    }
    let (code, _, said) =
        ascend_tp(&[&"quantise", &model, &"--format", &"w4a16", &"--out", &folder.path().join("no")]);
    assert!(code == 2 && said.contains("expected one of w8a8-dynamic, w4a16-g32"), "{said}");
}

#[test]
fn an_export_by_the_command_is_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let model = fixture("qwen2-tied-uneven");
    let run = Run::of_model(&model, &Mesh::new(&[("dp", 2), ("tp", 2)]).unwrap());
    run.save(&folder.path().join("save"), 1, &json!({ "model": model }));
    let out = folder.path().join("hf");
    let (code, said, problem) =
        ascend_tp(&[&"export", &folder.path().join("save"), &"--hf", &out, &"--dtype", &"f32"]);
    assert_eq!((code, problem.as_str()), (0, ""), "{said}");
    let found = Model::open(&out).unwrap();
    let came = Model::open(&model).unwrap();
    assert_eq!(found.checkpoint.tensors().len(), came.checkpoint.tensors().len());
    for (name, _) in came.checkpoint.tensors() {
        assert_eq!(
            found.checkpoint.read_f32(name).unwrap(),
            came.checkpoint.read_f32(name).unwrap(),
            "{name}"
        );
    }
}
