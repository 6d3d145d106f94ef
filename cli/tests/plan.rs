//! Tests of the planner: predictions against the emulator, invariants of predictions, and `plan`.

use std::process::Output;

use ascend_tp::base::{DType, Precision};
use ascend_tp::compile::{Deployment, Programs};
use ascend_tp::config::ModelConfig;
use ascend_tp::emulator::{Config, Emulator, Numbers};
use ascend_tp::exec::{EngineOptions, Launching, NamedTensors, ProgramId};
use ascend_tp::placement::{Grid, Residual};
use ascend_tp::program::models::{CacheBlocks, Head, input};
use ascend_tp::schedule::plan::{Action, Plan, Step};
use ascend_tp::schedule::{Exchanges, StepOrder, Target};
use ascend_tp::train::{Layout, Recipe, StepProgram, Zero, lower, recipe};
use ascend_tp::{Cann, Engine};
use ascend_tp_machine::{Profile, Soc, Topology};
use ascend_tp_planner::fit_memory::{COMMUNICATOR_BYTES, CardMemory, MemoryKind};
use ascend_tp_planner::serve::{Objective, ServingRequest};
use ascend_tp_planner::simulate::Simulator;
use proptest::prelude::*;
use serde_json::Value;

use crate::{command, words};

fn model(preset: &str, layers: usize) -> ModelConfig {
    let mut config = ModelConfig::preset(preset).unwrap();
    config.layers = layers;
    config
}

/// Compares the memory of emulated cards with the prediction.
fn accounts_are_as_predicted(config: &ModelConfig, deployment: Deployment) {
    let Programs { prefill, decode } = deployment.compile(config).unwrap();
    let of_rank = |rank: usize| CardMemory::of(&[&prefill, &decode], rank, COMMUNICATOR_BYTES);
    let predicted: Vec<CardMemory> = (0..deployment.cards).map(of_rank).collect();
    let emulator = Emulator::new(Config::with_cards(deployment.cards)).unwrap();
    let cann = Cann::new(emulator.table()).unwrap();
    let engine = Engine::start(&cann, vec![prefill, decode], &EngineOptions::default()).unwrap();
    for (rank, (usage, predicted)) in emulator.usage().iter().zip(&predicted).enumerate() {
        assert_eq!(usage.used_bytes, predicted.total().0, "rank {rank} of {deployment:?}: {predicted:?}");
        assert_eq!(
            usage.communicator_bytes,
            predicted.bytes(MemoryKind::HcclBuffers).0,
            "rank {rank} of {deployment:?}"
        );
        let workspace = engine.memory(rank).into_iter().find(|(kind, _)| *kind == "workspace").unwrap().1;
        assert_eq!(workspace, predicted.bytes(MemoryKind::Workspace), "rank {rank} of {deployment:?}");
    }
}

#[test]
fn a_card_hands_out_the_bytes_that_were_predicted() {
    // Even and uneven sizes, key heads on sub-axes, both residual layouts, padded and whole.
    for (preset, cards, residual, precision) in [
        ("qwen2.5-72b", 8, Residual::Replicate, DType::BF16.into()),
        ("qwen2.5-72b", 16, Residual::Seq, DType::BF16.into()),
        ("qwen2.5-72b", 8, Residual::Seq, Precision::w8a8(DType::BF16)),
        ("qwen-72b", 3, Residual::Seq, DType::F16.into()),
        ("qwen3-32b", 1, Residual::Replicate, DType::BF16.into()),
        ("llama-3-70b", 5, Residual::Replicate, DType::F32.into()),
    ] {
        let (config, batch, input_tokens, output_tokens, head) =
            (model(preset, 2), 3, 33, 12, Head::LastToken);
        let (longest_prompt, context) = (input_tokens, input_tokens + output_tokens);
        let deployment = Deployment {
            precision,
            residual,
            batch,
            longest_prompt,
            context,
            head,
            ..Deployment::of(&config, cards)
        };
        accounts_are_as_predicted(&config, deployment);
    }
}

/// Long prompts fuse products with exchanges, which need a separate workspace.
#[test]
fn a_card_hands_out_the_bytes_of_joined_exchanges_that_were_predicted() {
    let config = model("llama-3-70b", 2);
    for residual in [Residual::Replicate, Residual::Seq] {
        let (longest_prompt, context) = (4096, 4100);
        let deployment = Deployment { residual, longest_prompt, context, ..Deployment::of(&config, 8) };
        assert!(exchanges_that_multiply(&deployment.compile(&config).unwrap().prefill[0]) > 0);
        accounts_are_as_predicted(&config, deployment);
    }
}

fn exchanges_that_multiply(plan: &Plan) -> usize {
    let multiplies = |step: &&Step| matches!(&step.action, Action::Exchange(of) if of.product.is_some());
    plan.steps.iter().filter(multiplies).count()
}

#[test]
fn the_simulation_of_joined_exchanges_takes_as_long_as_the_executor_on_the_clock() {
    let config = model("llama-3-70b", 2);
    for residual in [Residual::Replicate, Residual::Seq] {
        let (longest_prompt, context) = (4096, 4100);
        let deployment = Deployment { residual, longest_prompt, context, ..Deployment::of(&config, 8) };
        let plans = |exchanges| {
            Deployment { target: Target { exchanges, ..Target::ANY }, ..deployment }
                .compile(&config)
                .unwrap()
                .prefill
        };
        let [apart, one] = [Exchanges::Apart, Exchanges::WithProducts].map(plans);
        // Per layer: two sums, or two gathers and two reduce-scatters.
        let of_layer = if residual == Residual::Seq { 4 } else { 2 };
        assert_eq!((exchanges_that_multiply(&apart[0]), exchanges_that_multiply(&one[0])), (0, 2 * of_layer));
        let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
        let on: Vec<usize> = (0..8).collect();
        for launching in [Launching::Eager, Launching::Captured] {
            let [slow, fast] = [&apart, &one].map(|plans| {
                let predicted =
                    Simulator::new(&profile, &topology, plans, &on, None).run(launching).breakdown;
                let found = period_us(plans, launching, None);
                let error = predicted.duration_us / found - 1.0;
                assert!(
                    error.abs() < 0.02,
                    "{residual:?}, {launching:?}: {error}, {found} for {predicted:?}"
                );
                found
            });
            eprintln!("{residual:?} {launching:?}: {slow} us apart, {fast} us in one call");
            assert!(fast < slow, "{residual:?}, {launching:?}: {slow} us apart, {fast} us in one call");
        }
    }
}

/// Returns the time between the ends of two runs on cards with a clock, in microseconds.
/// Attention reads `keys` rows of each sequence, by default all.
fn period_us(plans: &[Plan], launching: Launching, keys: Option<usize>) -> f64 {
    let emulator = Emulator::new(Config::timed(Soc::Ascend910B3, plans.len(), Numbers::None)).unwrap();
    let cann = Cann::new(emulator.table()).unwrap();
    let options = EngineOptions { launching, ..EngineOptions::default() };
    let mut inputs = NamedTensors::zeros(&plans[0].inputs);
    if let Some(table) = plans[0].inputs.iter().find(|input| input.name == input::TABLE) {
        let rows = table.shape[1] * CacheBlocks::ROWS;
        inputs.set(input::LENGTHS, vec![keys.unwrap_or(rows) as i64; table.shape[0]]);
    }
    let mut engine = Engine::start(&cann, vec![plans.to_vec()], &options).unwrap();
    // The second run may record a graph.
    let ends: Vec<u64> = (0..5)
        .map(|_| {
            engine.run(ProgramId(0), &inputs).unwrap();
            emulator.cards_now_ns()
        })
        .collect();
    (ends[4] - ends[3]) as f64 / 1e3
}

#[test]
fn the_simulation_takes_as_long_as_the_executor_on_the_clock() {
    for (cards, rows, batch, input_tokens, residual) in
        [(8, 1, 4, 96, Residual::Seq), (3, 1, 1, 16, Residual::Replicate), (8, 2, 4, 96, Residual::Seq)]
    {
        let (precision, head, output_tokens) = (DType::BF16.into(), Head::LastToken, 32);
        let (longest_prompt, context) = (input_tokens, input_tokens + output_tokens);
        let config = model("qwen2.5-72b", 3);
        let (grid, any) = (Grid { rows, depth: 1 }, Deployment::of(&config, cards));
        let deployment =
            Deployment { grid, precision, residual, batch, longest_prompt, context, head, ..any };
        let Programs { prefill, decode } = deployment.compile(&config).unwrap();
        let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
        let on: Vec<usize> = (0..cards).collect();
        for (name, plans) in [("prefill", &prefill), ("decode", &decode)] {
            for launching in [Launching::Eager, Launching::Captured] {
                let predicted =
                    Simulator::new(&profile, &topology, plans, &on, None).run(launching).breakdown;
                let found = period_us(plans, launching, None);
                let error = predicted.duration_us / found - 1.0;
                assert!(
                    error.abs() < 0.02,
                    "{name} on {cards} cards, {rows} rows, {launching:?}: {error}, {found} for {predicted:?}"
                );
            }
        }
    }
}

#[test]
fn a_token_takes_as_long_as_the_keys_that_are_there() {
    let deployment = Deployment {
        batch: 16,
        longest_prompt: 64,
        context: 4200,
        ..Deployment::of(&model("qwen2.5-72b", 3), 8)
    };
    let decode = deployment.compile(&model("qwen2.5-72b", 3)).unwrap().decode;
    let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
    let on: Vec<usize> = (0..8).collect();
    for launching in [Launching::Eager, Launching::Captured] {
        let times = [65, 1000, 4097].map(|keys| {
            let predicted =
                Simulator::new(&profile, &topology, &decode, &on, Some(keys)).run(launching).breakdown;
            let found = period_us(&decode, launching, Some(keys));
            let error = predicted.duration_us / found - 1.0;
            assert!(error.abs() < 0.02, "{keys} keys, {launching:?}: {error}, {found} for {predicted:?}");
            found
        });
        // Each of 16 sequences reads 512 bytes per key and layer, at most 1.6 MB per microsecond.
        let least_us = 3.0 * 16.0 * 512.0 * 3000.0 / 1.6e6;
        assert!(times[2] - times[1] > least_us && times[1] > times[0], "{launching:?}: {times:?}");
    }
}

pub(crate) fn plan(arguments: &str) -> Output {
    words(&format!("plan {arguments}"))
}

pub(crate) fn json(arguments: &str) -> Value {
    crate::json(&plan(&format!("{arguments} --json")))
}

pub(crate) fn refused(arguments: &str) -> String {
    crate::refused(&plan(arguments))
}

#[test]
fn the_best_splits_can_run_and_every_other_says_what_beat_it() {
    for (cards, batch) in [(8, 16), (16, 64)] {
        let found = json(&format!("--model qwen2.5-72b --cards {cards} --serve --batch {batch}"));
        let best = found["best"].as_array().unwrap();
        assert_eq!(best.len(), 5);
        let rates: Vec<f64> = best.iter().map(|entry| entry["tokens_per_s"].as_f64().unwrap()).collect();
        assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
        for entry in best {
            assert!(entry["memory_share"].as_f64().unwrap() <= 1.0, "{entry}");
            let reason = entry["reason"].as_str().unwrap();
            assert!(reason.contains('%'), "{reason}");
        }
        assert!(best[1]["reason"].as_str().unwrap().starts_with('+'));
        // 145 GB of weights fit neither one card of 64 GiB nor two.
        let refused = found["refused"].as_array().unwrap();
        let sizes: Vec<&str> =
            refused.iter().map(|entry| entry["properties"]["tp"].as_str().unwrap()).collect();
        assert!(sizes.contains(&"1") && sizes.contains(&"2"), "{sizes:?}");
        for entry in refused {
            assert!(entry["reason"].as_str().unwrap().contains("weights"), "{entry}");
        }
    }
}

#[test]
fn one_split_is_explained_in_full() {
    let output = plan("--model qwen2.5-72b --cards 16 --serve --batch 8 --why tp=16");
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "tp=16 kv=8",
        "HCCL buffers",
        "usable",
        "hccs and roce",
        "Time of a decode step",
        "collectives that nothing hides",
    ] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    // Uneven sizes are tried on request.
    let uneven = json("--model qwen2.5-72b --cards 8 --serve --batch 8 --why tp=5,issue=captured");
    assert_eq!(
        (uneven["entry"]["idle_cards"].as_u64(), uneven["can_run"].as_bool()),
        (Some(3), Some(true)),
        "{uneven}"
    );
    let phases = uneven["phases"].as_array().unwrap();
    for phase in phases {
        let terms: f64 =
            phase["terms"].as_array().unwrap().iter().map(|term| term[1].as_f64().unwrap()).sum();
        let whole = phase["breakdown"]["duration_us"].as_f64().unwrap();
        assert!((terms - whole).abs() < 1e-6 * whole, "{phase}");
    }
}

/// A two-axis mesh exchanges fewer bytes on sixteen dies behind a switch, but not on a server of
/// eight cards.
#[test]
fn rows_and_columns_are_priced_beside_one_axis() {
    let line = "--model qwen2.5-72b --cards 8 --serve --batch 8 --input 512 --output 32";
    let found = json(line);
    let grid = &found["grid"];
    assert!(grid["properties"]["tp_row"].as_str().unwrap().parse::<usize>().unwrap() > 1, "{grid}");
    let text = String::from_utf8(plan(line).stdout).unwrap();
    let expected = format!(
        "The best split with weights sharded over two axes (tp_row) is {}: {}",
        grid["split"].as_str().unwrap(),
        grid["reason"].as_str().unwrap()
    );
    assert!(text.contains(&expected), "{expected}\n{text}");
    let why = json(&format!("{line} --why tp=8,tp_row=2"));
    assert_eq!(why["entry"]["properties"]["tp_row"], "2", "{why}");
    assert_eq!(why["can_run"], true);
    // A split that does not fit was also tried.
    let why = json(
        "--model qwen2.5-72b --cards 8 --serve --card 910b4 --batch 8 --input 512 --output 32 --why tp=4,tp_row=2",
    );
    assert_eq!(
        (&why["can_run"], &why["entry"]["properties"]["tp_row"]),
        (&Value::from(false), &Value::from("2")),
        "{why}"
    );
    assert!(why["entry"]["reason"].as_str().unwrap().contains("does not fit"), "{why}");
}

#[test]
fn bad_input_is_located_all_at_once() {
    let message = refused("--model qwen-7b --cards 8 --card h100 --topology torus --serve --top 0");
    for place in ["--model", "--card", "--topology", "--top"] {
        assert!(message.contains(&format!("error: {place}: ")), "{place}: {message}");
    }
    let message = refused(
        "--model qwen2.5-72b --cards 0 --serve --batch 0 --input 0 --output 999999999 --max-tpot-ms 0",
    );
    for place in ["--cards", "--batch", "--input", "--output", "--max-tpot-ms"] {
        assert!(message.contains(&format!("error: {place}: ")), "{place}: {message}");
    }
    let message = refused("--model qwen2.5-72b --cards 16 --topology atlas-pcie --serve");
    assert!(
        message
            .contains("--topology: `atlas-pcie` has fewer cards than --cards: expected at least 16, found 8"),
        "{message}"
    );
    let message = refused("--model qwen2.5-72b --cards 8 --serve --profile nowhere.toml");
    assert!(message.contains("--profile: nowhere.toml: cannot be read"), "{message}");
    let message =
        refused("--model qwen2.5-72b --cards 8 --serve --card 910b4 --profile machine/profiles/910b3.toml");
    assert!(message.contains("--card and --profile: are for different chips"), "{message}");
    let message = refused("--model qwen2.5-72b --cards 8 --serve --why speed=9");
    assert!(message.contains("--why: no property of a split"), "{message}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.toml");
    let level = |name: &str, cards: usize| {
        format!(
            "[[levels]]\nname = '{name}'\nfabric = 'switch'\ncards = {cards}\nbytes_per_us = 1.0\nlatency_us = 1.0\n"
        )
    };
    std::fs::write(&path, format!("name = 'odd'\n{}{}", level("mesh", 8), level("net", 12))).unwrap();
    let message = refused(&format!("--model qwen2.5-72b --cards 8 --serve --topology {}", path.display()));
    assert!(message.contains("levels[1] `net`: cards: ") && message.contains("a multiple of 8"), "{message}");
}

#[test]
fn what_fits_nowhere_is_refused_with_the_arithmetic_and_what_would_fit() {
    let message = refused("--model qwen2.5-72b --cards 2 --card 910b4 --serve");
    for expected in ["does not fit", "weights 67.", "at most 28.9 GiB of Ascend910B4", "cards a replica"] {
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let message = refused("--model qwen-72b --cards 8 --serve --batch 64 --input 16000 --output 256");
    for expected in ["KV cache", "sequences a replica", "--input"] {
        assert!(message.contains(expected), "{expected}: {message}");
    }
    for (option, expected) in
        [("--max-tpot-ms", "a token takes too long"), ("--max-ttft-ms", "the first token takes too long")]
    {
        let message = refused(&format!("--model qwen2.5-72b --cards 8 --serve {option} 0.5"));
        assert!(message.contains(expected) && message.contains("the fastest splits take"), "{message}");
    }
}

#[test]
fn what_is_searched_by_a_few_layers_is_that_of_the_whole_model() {
    let (config, profile, topology) =
        (model("qwen2.5-72b", 24), Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
    let (cards, batch, input_tokens, output_tokens, precision) = (8, 4, 128, 64, DType::BF16.into());
    let request = ServingRequest {
        config: &config,
        precision,
        profile: &profile,
        topology: &topology,
        cards,
        batch,
        input_tokens,
        output_tokens,
        objective: Objective::Throughput,
        max_token_us: None,
        max_first_token_us: None,
        communicator: COMMUNICATOR_BYTES,
    };
    let found = request.explore(cards).unwrap();
    assert_eq!(found.feasible.len(), 4);
    assert_eq!(found.grids.len(), 8, "two and four rows");
    for candidate in found.feasible.iter().chain(&found.grids) {
        let (residual, head) = (candidate.split.residual, Head::LastToken);
        let (longest_prompt, context) = (input_tokens, input_tokens + output_tokens);
        let (grid, any) = (Grid { rows: candidate.split.rows, depth: 1 }, Deployment::of(&config, cards));
        let deployment =
            Deployment { grid, precision, residual, batch, longest_prompt, context, head, ..any };
        let Programs { prefill, decode } = deployment.compile(&config).unwrap();
        assert_eq!(
            candidate.memory,
            CardMemory::fullest(&[&prefill, &decode], COMMUNICATOR_BYTES),
            "{}",
            candidate.split
        );
        let on: Vec<usize> = (0..cards).collect();
        let keys = Some(input_tokens + output_tokens.div_ceil(2));
        let runs = [
            (&prefill, Launching::Eager, None, candidate.prefill),
            (&decode, candidate.split.issue, keys, candidate.decode),
        ];
        for (plans, launching, keys, predicted) in runs {
            let whole = Simulator::new(&profile, &topology, plans, &on, keys).run(launching).breakdown;
            assert_eq!((whole.kernels, whole.collectives), (predicted.kernels, predicted.collectives));
            let error = predicted.duration_us / whole.duration_us - 1.0;
            assert!(error.abs() < 0.001, "{}: {error}, {predicted:?} for {whole:?}", candidate.split);
        }
    }
}

/// Pipeline stages hold and do as much as replicas, and are not faster, so the planner does not try
/// them for serving.
#[test]
fn a_depth_is_no_faster_than_replicas() {
    let (config, profile, topology) =
        (model("qwen2.5-72b", 2), Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
    let (precision, head) = (DType::BF16.into(), Head::LastToken);
    for (rows, residual) in
        [(1, Residual::Replicate), (1, Residual::Seq), (2, Residual::Replicate), (2, Residual::Seq)]
    {
        let run = |cards: usize, depth: usize, batch: usize| {
            let any = Deployment::of(&config, cards);
            let (grid, longest_prompt, context) = (Grid { rows, depth }, 128, 192);
            let deployment =
                Deployment { grid, residual, precision, head, batch, longest_prompt, context, ..any };
            let Programs { prefill, decode } = deployment.compile(&config).unwrap();
            let memory =
                CardMemory::fullest(&[&prefill, &decode], COMMUNICATOR_BYTES).bytes(MemoryKind::Weights);
            let on: Vec<usize> = (0..cards).collect();
            let us = [prefill, decode].map(|plans| {
                Simulator::new(&profile, &topology, &plans, &on, None)
                    .run(Launching::Eager)
                    .breakdown
                    .duration_us
            });
            (memory, us)
        };
        let ((deep, deep_us), (alone, alone_us)) = (run(8, 2, 8), run(4, 1, 4));
        assert_eq!(deep, alone);
        for (deep_us, alone_us) in deep_us.into_iter().zip(alone_us) {
            println!("{rows} rows, {residual:?}: {deep_us:.0} µs, of a replica {alone_us:.0}");
            assert!(
                deep_us >= 0.98 * alone_us,
                "{rows} rows, {residual:?}: {deep_us} µs, of a replica {alone_us}"
            );
        }
    }
}

/// The same holds for training replicas.
#[test]
fn a_depth_is_no_faster_than_copies() {
    let (config, profile, topology) =
        (model("qwen2.5-72b", 2), Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
    let recipe =
        Recipe { seq: 512, global_batch: 4, precision: recipe::TrainingPrecision::Bf16, ..Recipe::default() };
    for (rows, zero) in [(1, Zero::None), (1, Zero::Weights), (2, Zero::Moments), (2, Zero::Weights)] {
        let us = |data: usize, depth: usize, micro_batch: usize| -> f64 {
            let of = Layout { tensor: 4, residual: Residual::Seq, zero, ..Layout::ONE };
            let layout = Layout { data, micro_batch, grid: Grid { rows, depth }, ..of };
            let lowered = lower(&config, &recipe, &layout).unwrap();
            let on: Vec<usize> = (0..layout.cards()).collect();
            let of_run = |run: &StepProgram<'_>| {
                let plans = run.schedule(StepOrder::Overlapped, &recipe, &layout, Target::ANY).unwrap();
                Simulator::new(&profile, &topology, &plans, &on, None)
                    .run(Launching::Eager)
                    .breakdown
                    .duration_us
            };
            lowered.runs(&recipe, &layout).unwrap().iter().map(of_run).sum()
        };
        let (deep_us, copies_us) = (us(1, 2, 2), us(2, 1, 1));
        println!("{rows} rows, {zero:?}: {deep_us:.0} µs, of copies {copies_us:.0}");
        assert!(deep_us >= 0.98 * copies_us, "{rows} rows, {zero:?}: {deep_us} µs, of copies {copies_us}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn more_cards_never_need_more_bytes_a_card(
        preset in proptest::sample::select(ModelConfig::dense_presets().collect::<Vec<_>>()),
        batch in 1_usize..40, input_tokens in 1_usize..300, output_tokens in 1_usize..300,
        residual in proptest::sample::select(vec![Residual::Replicate, Residual::Seq]),
    ) {
        let config = model(preset, 1);
        let mut before = u64::MAX;
        for cards in [1, 2, 4, 8, 16] {
            let (precision, head) = (DType::BF16.into(), Head::LastToken);
            let (longest_prompt, context) = (input_tokens, input_tokens + output_tokens);
            let of = Deployment::of(&config, cards);
            let deployment = Deployment { precision, residual, batch, longest_prompt, context, head, ..of };
            let Programs { prefill, decode } = deployment.compile(&config).unwrap();
            let memory = CardMemory::fullest(&[&prefill, &decode], COMMUNICATOR_BYTES);
            // Several cards need buffers for communicators.
            let shared = memory.bytes(MemoryKind::HcclBuffers).0 + memory.bytes(MemoryKind::Rounding).0;
            let bytes = memory.total().0 - shared;
            prop_assert!(bytes <= before, "{} cards: {} after {}: {:?}", cards, bytes, before, memory);
            before = bytes;
        }
    }

    #[test]
    fn a_slower_link_is_never_faster_and_nothing_is_by_chance(
        cards in 2_usize..=16, batch in 1_usize..9, factor in 1.0..6.0_f64, level in 0_usize..2,
        launching in proptest::sample::select(vec![Launching::Eager, Launching::Captured]),
    ) {
        let (precision, residual, head) = (DType::BF16.into(), Residual::Seq, Head::LastToken);
        let (longest_prompt, context) = (40, 48);
        let config = model("qwen2.5-72b", 1);
        let of = Deployment::of(&config, cards);
        let deployment = Deployment { precision, residual, batch, longest_prompt, context, head, ..of };
        let plans = deployment.compile(&config).unwrap().prefill;
        let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::atlas_a2(2));
        let on: Vec<usize> = (0..cards).collect();
        let run = |topology: &Topology| Simulator::new(&profile, topology, &plans, &on, None).run(launching);
        let found = run(&topology);
        prop_assert_eq!(&found, &run(&topology));
        let mut slower = topology;
        slower.levels[level].bytes_per_us /= factor;
        prop_assert!(run(&slower).breakdown.duration_us >= found.breakdown.duration_us);
    }
}

/// `plan` accepts the profile of emulated cards. Cards without a clock report none.
#[test]
fn a_profile_is_measured_on_cards_and_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let calibrate = |asked: &str, words: &[&str]| {
        let words = ["calibrate", "--device", "emulator"].iter().chain(words);
        command().env("ASCEND_EMULATOR", asked).args(words).output().unwrap()
    };
    let output = calibrate("timed,soc=Ascend910B4", &["--cards", "2", "--out", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let profile = std::fs::read_to_string(&path).unwrap();
    assert!(profile.contains("measured on 2 Ascend910B4: 83 products"), "{profile}");
    let mut plan = command();
    plan.args(["plan", "--model", "qwen2.5-72b", "--cards", "8", "--serve", "--profile"]).arg(&path);
    assert!(plan.output().unwrap().status.success());

    let output = calibrate("quiet", &[]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && message.contains("these cards have no clock"), "{message}");
    let output = calibrate("timed", &["--cards", "9"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && message.contains("expected 1 to 8, found 9"), "{message}");
}
