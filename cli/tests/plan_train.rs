//! Tests of `plan --train`, and generated tables of docs/COSTS.md. `UPDATE_GOLDEN=1 cargo test
//! plan_train` rewrites the tables.

use ascend_tp_planner::table::{Align, Table};
use ascend_tp_planner::train::coefficients::TrainCoefficients;
use ascend_tp_planner::train::points::{PointOutcome, PointRow};
use ascend_tp_planner::train::unseen::unseen;
use ascend_tp_planner::train::{forms, text};
use ascend_tp_planner::validate::TRAINING;
use serde_json::Value;

use crate::plan::{json, plan, refused};
use crate::root;

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

#[test]
fn a_model_that_the_planner_does_not_predict_is_refused() {
    for (model, found) in [
        (
            "qwen3-30b-a3b",
            "layer 0: the planner of training does not predict this layer: expected grouped attention \
                           and a dense feed-forward part, found a mixture of experts",
        ),
        ("glm-4.5-air", "layer 1: the planner of training does not predict this layer"),
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

/// Returns the shipped training measurements, each predicted without its own page.
fn training_rows() -> Vec<PointRow> {
    unseen(&TRAINING).rows
}

#[test]
fn the_validation_has_every_training_row_and_every_closed_form() {
    let output = plan("--validate");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let output = String::from_utf8(output.stdout).unwrap();
    for row in forms::published() {
        assert!(output.contains(&row.subject), "{}", row.subject);
    }
    for row in training_rows() {
        assert!(output.contains(&row.model) && output.contains(&row.split), "{row:?}");
    }
}

/// Returns the relative error: predicted / measured − 1.
fn error(row: &PointRow) -> Option<f64> {
    match row.outcome {
        PointOutcome::Predicted(value) => Some(value / row.measured - 1.0),
        PointOutcome::LeftOut(_) => None,
    }
}

/// Returns median and 90th percentile of absolute errors, and the number of predicted rows.
fn errors(rows: &[PointRow]) -> (f64, f64, usize) {
    let mut sizes: Vec<f64> = rows.iter().filter_map(error).map(f64::abs).collect();
    sizes.sort_by(f64::total_cmp);
    let at = |part: f64| {
        sizes.get(((sizes.len() as f64 - 1.0) * part).round() as usize).copied().unwrap_or(f64::NAN)
    };
    (at(0.5), at(0.9), sizes.len())
}

/// Formats measurements with predictions, or with the reason for an exclusion.
fn points_table(rows: &[PointRow]) -> String {
    let mut table = Table::new([
        ("model", Align::Left),
        ("split", Align::Left),
        ("unit", Align::Left),
        ("measured", Align::Right),
        ("predicted", Align::Right),
        ("error", Align::Right),
        ("left out because", Align::Left),
    ]);
    for row in rows {
        let digits = if row.measured < 100.0 { 1 } else { 0 };
        let (predicted, error, why) = match (&row.outcome, error(row)) {
            (PointOutcome::Predicted(value), Some(error)) => {
                (format!("{value:.digits$}"), format!("{:+.1} %", 100.0 * error), "")
            }
            (PointOutcome::LeftOut(reason), _) => (String::new(), String::new(), reason.as_str()),
            (PointOutcome::Predicted(value), None) => (format!("{value:.digits$}"), String::new(), ""),
        };
        table.row([
            row.model.clone(),
            row.split.clone(),
            row.unit.clone(),
            format!("{:.digits$}", row.measured),
            predicted,
            error,
            why.to_owned(),
        ]);
    }
    let (median, tenth, count) = errors(rows);
    format!(
        "{}\n{count} of {} rows: median error {:.1} %, 90th percentile {:.1} %.\n",
        table.markdown(),
        rows.len(),
        100.0 * median,
        100.0 * tenth
    )
}

fn coefficients_table(coefficients: &TrainCoefficients) -> String {
    let TrainCoefficients { product_efficiency, attention_efficiency, overlap, step_us } = *coefficients;
    let rows = [
        (
            "product_efficiency",
            format!("{product_efficiency}"),
            "of the cube units' rate, a large product within a step",
        ),
        (
            "attention_efficiency",
            format!("{attention_efficiency}"),
            "of the cube units' rate, fused attention at heads of 128",
        ),
        (
            "overlap",
            format!("{overlap}"),
            "of an exchange behind a product, of a computation's time for an exchange beside it",
        ),
        ("step_us", format!("{step_us}"), "microseconds of the host a step"),
    ];
    let mut table =
        Table::new([("coefficient", Align::Left), ("value", Align::Right), ("of what", Align::Left)]);
    for (name, value, meaning) in rows {
        table.row([name.to_owned(), value, meaning.to_owned()]);
    }
    table.markdown()
}

#[test]
fn a_row_that_is_left_out_says_why() {
    let row = PointRow {
        source: String::new(),
        model: "m".to_owned(),
        split: "s".to_owned(),
        unit: "u".to_owned(),
        measured: 200.0,
        gap: None,
        outcome: PointOutcome::Predicted(250.0),
    };
    let out = PointRow { outcome: PointOutcome::LeftOut("unknown".to_owned()), ..row.clone() };
    let text = points_table(&[row, out]);
    assert!(text.contains("| +25.0 % |") && text.contains("| unknown"), "{text}");
    assert!(text.contains("1 of 2 rows: median error 25.0 %"), "{text}");
}

#[test]
fn the_tables_of_the_document_are_what_the_program_says() {
    let root = root();
    let path = root.join("docs/COSTS.md");
    let tables = [
        ("closed forms", {
            let published = forms::published();
            format!("{}\n{}\n", text::forms_table(&published).markdown(), text::forms_held(&published))
        }),
        ("training coefficients", coefficients_table(&TrainCoefficients::FITTED)),
        ("training rows", points_table(&training_rows())),
    ];
    let before = std::fs::read_to_string(&path).unwrap();
    let mut document = before.clone();
    for (name, table) in &tables {
        let opening = format!("<!-- {name} -->\n");
        let start = document.find(&opening).unwrap_or_else(|| panic!("docs/COSTS.md has no {opening}"))
            + opening.len();
        let end = start + document[start..].find("<!-- end -->").unwrap();
        document.replace_range(start..end, table);
    }
    if std::env::var("UPDATE_GOLDEN").is_ok_and(|value| value == "1") {
        std::fs::write(&path, &document).unwrap();
        return;
    }
    let difference = document.lines().zip(before.lines()).find(|(new, old)| new != old);
    assert_eq!(document, before, "{difference:?}: UPDATE_GOLDEN=1 cargo test plan_train");
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
