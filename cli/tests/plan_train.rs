//! Tests of `plan --train`.

use serde_json::Value;

use crate::plan::{json, plan, refused};

const QWEN: &str = "--model qwen2.5-72b --train --seq 4096";

#[test]
fn the_best_of_64_and_1024_and_65536_cards_divide_and_fit() {
    for (cards, batch) in [(64, 512), (1024, 1024), (65_536, 8192)] {
        let report = json(&format!("{QWEN} --cards {cards} --global-batch {batch} --tokens 1e12"));
        let best = report["best"].as_array().unwrap();
        assert_eq!(best.len(), 5, "{cards}");
        let steps: Vec<f64> = best.iter().map(|line| line["step_s"].as_f64().unwrap()).collect();
        assert!(steps.windows(2).all(|pair| pair[0] <= pair[1]), "{steps:?}");
        for line in best {
            let setting = line["setting"].as_str().unwrap();
            let axis = |key: &str| -> usize {
                let value = setting.split(' ').find_map(|part| part.strip_prefix(key)).unwrap();
                value.parse().unwrap()
            };
            assert_eq!(axis("tp=") * axis("cp=") * axis("pp=") * axis("dp="), cards, "{setting}");
            assert_eq!(batch % (axis("dp=") * axis("micro=")), 0, "{setting}");
            assert!(line["card_gib"].as_f64() <= report["usable_gib"].as_f64(), "{line}");
            let parts: f64 =
                line["seconds"].as_array().unwrap().iter().map(|part| part[1].as_f64().unwrap()).sum();
            assert!((parts - line["step_s"].as_f64().unwrap()).abs() < 1e-6, "{line}");
        }
        // Days follow from the token rate.
        let rate = best[0]["tokens_per_s_and_card"].as_f64().unwrap() * cards as f64;
        let days = report["run"]["days"].as_f64().unwrap();
        assert!((days - 1e12 / rate / 86_400.0).abs() < 1e-6 * days, "{days}");
        // Other choices have a reason, and none is faster.
        let losers = report["losers"].as_array().unwrap();
        assert!(losers.len() > 20, "{}", losers.len());
        for loser in losers {
            assert!(!loser["reason"].as_str().unwrap().is_empty(), "{loser}");
            assert!(
                loser["best"].is_null() || loser["best"]["step_s"].as_f64().unwrap() >= steps[0],
                "{loser}"
            );
        }
    }
}

/// The commands differ in sizes of the mesh, micro-batches, residual layout and recomputation.
#[test]
fn a_small_job_is_ranked_by_the_steps_that_explain_shows() {
    let report =
        json("--model qwen2.5-0.5b --train --cards 2 --card 910b1 --seq 2048 --global-batch 8 --top 3");
    assert_eq!(report["ranked_by"], "simulation");
    let best = report["best"].as_array().unwrap();
    assert_eq!(best.len(), 3);
    for split in best {
        // Splits of one stage are predicted from few layers.
        let explained = has_the_step_of_explain(split, 0.02);
        assert_eq!((&explained["cards"], &explained["chip"]), (&2.into(), &"Ascend910B1".into()));
    }
}

/// Checks that the command of a split shows its step within a share of it, and returns the report
/// of the command.
fn has_the_step_of_explain(split: &Value, most: f64) -> Value {
    let line = split["command"].as_str().unwrap().strip_prefix("ascend-tp ").unwrap();
    let output = crate::succeeds(&crate::words(&format!("{line} --json")));
    let explained: Value = serde_json::from_str(&output).unwrap();
    let [explained_s, planned_s] =
        [explained["step_us"].as_f64().unwrap() / 1e6, split["step_s"].as_f64().unwrap()];
    assert!((planned_s / explained_s - 1.0).abs() < most, "{planned_s} s, {explained_s} s by {line}");
    explained
}

/// The picks are the fastest of the candidates that were compiled, and `explain` shows their steps.
#[test]
fn splits_of_a_small_mixture_share_its_experts() {
    let model = "tests/fixtures/qwen3-moe";
    for cards in [4, 8] {
        let line = format!("--model {model} --train --cards {cards} --card 910b1 --seq 64");
        let report = json(&format!("{line} --global-batch 16 --top 16"));
        assert_eq!(report["ranked_by"], "simulation", "{cards}");
        let best = report["best"].as_array().unwrap();
        let steps: Vec<f64> = best.iter().map(|split| split["step_s"].as_f64().unwrap()).collect();
        assert!(steps.len() > 4 && steps.windows(2).all(|pair| pair[0] <= pair[1]), "{steps:?}");
        for axis in [" ep=2 ", " pp=2 "] {
            let has_axis = |split: &&Value| split["setting"].as_str().unwrap().contains(axis);
            let first = best.iter().find(has_axis);
            let first = first.unwrap_or_else(|| panic!("{cards} cards, {axis}: {best:?}"));
            has_the_step_of_explain(first, 1e-9);
        }
    }
}

#[test]
fn a_model_that_the_planner_does_not_predict_is_refused() {
    for (model, found) in [
        (
            "qwen3-next-80b-a3b",
            "layer 0: the planner of training does not predict this layer: expected grouped attention, and \
             the same sizes in all mixtures of experts, found attention by the gated delta rule",
        ),
        ("deepseek-v3", "found latent attention"),
    ] {
        let message = refused(&format!("--model {model} --train --seq 4096 --cards 8 --global-batch 8"));
        assert!(message.contains(found), "{message}");
    }
}

#[test]
fn a_choice_is_explained_in_full() {
    let line = format!("{QWEN} --cards 64 --global-batch 512");
    let why =
        |choice: &str| json(&format!("{line} --why {choice}"))["why"]["reason"].as_str().unwrap().to_owned();
    assert!(why("tp=16").contains("tensor exchange +"));
    assert!(why("tp=1,pp=1,zero=0").starts_with("does not fit: "));
    assert_eq!(why("tp=3"), "64 cards do not divide by 3");
    let output = String::from_utf8(plan(&format!("{line} --why tp=16 --tokens 2e12")).stdout).unwrap();
    for expected in
        ["Why not tp=16: slower by", "best setting: tp=16", "MFU", "6 · tokens · parameters", "optimizer"]
    {
        assert!(output.contains(expected), "{expected}: {output}");
    }
}

#[test]
fn what_is_wrong_is_located_and_nothing_is_planned() {
    for (line, expected) in [
        ("--model qwen2.5-72b --train --cards 64 --seq 4096", vec!["--global-batch"]),
        (
            "--model qwen2.5-72b --train --cards 64 --seq 0 --global-batch 0",
            vec!["error: --seq: means nothing", "error: --global-batch: means nothing"],
        ),
        (
            "--model qwen2.5-72b --train --cards 64 --seq 4096 --global-batch 8 --card h100",
            vec!["error: --card"],
        ),
        (
            "--model qwen2.5-72b --train --cards 64 --seq 4096 --global-batch 8 --why speed=9",
            vec!["error: --why: names nothing of a setting", "found speed=9"],
        ),
        (
            "--model qwen2.5-72b --train --cards 64 --seq 4096 --global-batch 8 --tokens 0",
            vec!["error: --tokens: invalid number: expected a number above 0, found 0"],
        ),
        (
            "--model qwen2.5-72b --train --cards 262144 --seq 4096 --global-batch 262144",
            vec!["error: --cards: more cards than the topology has: expected at most 131072"],
        ),
        (
            "--model qwen2.5-72b --train --cards 8 --seq 4096 --global-batch 64",
            vec![
                "error: --cards: the job fits on no split of these cards",
                "optimizer",
                "it fits on 32 cards",
            ],
        ),
    ] {
        let message = refused(line);
        for expected in expected {
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
}

/// Gradient sums belong to the best setting and to the programs of `train`.
#[test]
fn rows_and_columns_are_priced_beside_one_axis() {
    let line = format!("{QWEN} --cards 64 --global-batch 512");
    let report = json(&line);
    let (grid, winner) = (&report["grid"], report["best"][0]["setting"].as_str().unwrap());
    assert_eq!(grid["line"], winner.split(' ').next().unwrap(), "{winner}");
    let number = |key: &str| grid[key].as_f64().unwrap();
    assert_eq!(grid["pays"].as_bool().unwrap(), number("layer_ms") < number("line_ms"), "{grid}");
    assert!(number("exposed_ms") > 0.0 && number("exposed_ms") < number("layer_ms"), "{grid}");
    let mesh = grid["mesh"].as_str().unwrap();
    let output = String::from_utf8(plan(&line).stdout).unwrap();
    assert!(
        mesh.starts_with("tp_row=") && output.contains(&format!("`train --mesh {mesh}`")),
        "{mesh}: {output}"
    );
}

/// The comparison needs cards that share sequences.
#[test]
fn keys_and_values_that_go_around_are_priced_beside_gathered_ones() {
    let line = format!("{QWEN} --cards 64 --global-batch 64 --why cp=2,tp=8");
    let keys = &json(&line)["keys"];
    let number = |key: &str| keys[key].as_f64().unwrap();
    assert_eq!(keys["cards"], 2);
    assert_eq!(keys["pays"].as_bool().unwrap(), number("ring_ms") < number("gathered_ms"), "{keys}");
    assert!(number("ring_exposed_ms") < number("ring_ms") && number("mask_mib") > 0.0, "{keys}");
    let output = String::from_utf8(plan(&line).stdout).unwrap();
    assert!(output.contains("`train --mesh cp=2,… --ring` takes"), "{output}");
    assert_eq!(json(&format!("{QWEN} --cards 64 --global-batch 512"))["keys"], Value::Null);
}

#[test]
fn compressed_sums_of_gradients_pay_where_links_take_longer_than_operators() {
    let report = json(&format!("{QWEN} --cards 1024 --global-batch 1024"));
    let sums = report["gradients"].as_array().unwrap();
    let number = |at: usize, key: &str| sums[at][key].as_f64().unwrap();
    let total = |at: usize| number(at, "exchange_s") + number(at, "operators_s");
    assert_eq!(
        sums.iter().map(|sum| sum["how"].as_str().unwrap()).collect::<Vec<_>>(),
        ["whole, f32", "onebit", "topk=0.01"]
    );
    assert_eq!((&sums[0]["pays"], number(0, "operators_s")), (&Value::Null, 0.0));
    let ratio = number(1, "sent_gib") / number(0, "sent_gib");
    assert!((ratio * 32.0 - 1.0).abs() < 0.05, "{ratio}");
    for at in [1, 2] {
        let pays = sums[at]["taken"] == true && total(at) < total(0);
        assert_eq!(sums[at]["pays"].as_bool().unwrap(), pays, "{sums:?}");
    }
}

/// Each card sends its largest elements to all cards. With enough replicas this exceeds the whole
/// sum, and `train` refuses.
#[test]
fn a_hundredth_of_the_greatest_is_refused_over_many_copies() {
    let of = |cards: usize| {
        let line = format!("--model qwen2.5-0.5b --train --seq 1024 --cards {cards} --global-batch 4096");
        let sum = json(&line)["gradients"][2].clone();
        (sum["taken"].as_bool(), sum["pays"].as_bool())
    };
    assert_eq!(of(64).0, Some(true));
    assert_eq!(of(128), (Some(false), Some(false)));
}
