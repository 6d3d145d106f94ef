//! Tests of rehearsals: models on emulated cards with a virtual clock.

use std::collections::BTreeSet;
use std::process::Output;
use std::sync::{Mutex, PoisonError};

use ascend_tp::base::{DType, Kernels, Precision};
use ascend_tp::config::{ModelConfig, QuantisedFormat};
use ascend_tp::device::KernelSource;
use ascend_tp::exec::Launching;
use ascend_tp::machine::{Profile, Soc, Topology};
use ascend_tp::placement::{ExpertShards, Grid, Residual};
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::schedule::{Exchanges, Joining, Scheduling, StepOrder, Target, schedule};
use ascend_tp::train::{Layout, Recipe, Recompute, Zero, compile, recipe};
use ascend_tp_planner::fit_memory::MemoryKind;
use ascend_tp_planner::rehearse::{Rehearsal, RehearsalMemory, RehearsalReport, Setting, Site, html, train};
use ascend_tp_planner::simulate::Simulator;
use ascend_tp_planner::train::job::Job;
use ascend_tp_planner::train::{grid, setting};
use serde_json::Value;

use crate::pages::assert_scripts_parse;
use crate::trace::check;
use crate::{root, words};

/// Two layers of Qwen-72B at full width.
fn setting(cards: usize) -> Setting {
    let mut model = ModelConfig::preset("qwen-72b").unwrap();
    model.layers = 2;
    Setting {
        name: "qwen-72b, 2 layers".to_owned(),
        model,
        site: Site {
            kernels: KernelSource::None,
            cards,
            servers: None,
            profile: Profile::of(Soc::Ascend910B3),
            topology: Topology::preset("atlas-a2").unwrap(),
        },
        stages: 1,
        batch: 1,
        input: 512,
        output: 4,
        precision: DType::BF16.into(),
        residual: Residual::Replicate,
        experts: ExpertShards::Whole,
        launching: Launching::Eager,
    }
}

pub(crate) static TURN: Mutex<()> = Mutex::new(());

/// Runs one rehearsal at a time, because threads of another machine would change the order of
/// events.
fn rehearsal(setting: &Setting) -> Rehearsal {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Rehearsal::run(setting).unwrap()
}

fn report(setting: &Setting) -> RehearsalReport {
    rehearsal(setting).report()
}

fn trace_of(rehearsal: &Rehearsal) -> String {
    let mut text = Vec::new();
    rehearsal.write_trace(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Returns microseconds per byte of the embedding's `all_reduce` in the prefill, which is not fused
/// with a product.
fn all_reduce_us_per_byte(report: &RehearsalReport) -> f64 {
    let row =
        report.phases[0].collectives.iter().find(|row| row.name == "all_reduce residual.embedding").unwrap();
    row.mean_us / row.bytes
}

/// In a full mesh, a group of `g` cards uses `g − 1` of a card's seven links.
#[test]
fn fewer_cards_have_fewer_links_to_exchange_over() {
    let [two, four, eight] = [2, 4, 8].map(|cards| all_reduce_us_per_byte(&report(&setting(cards))));
    assert!(two > 1.5 * four && four > 1.2 * eight, "{two}, {four}, {eight} µs a byte");
}

#[test]
fn time_divides_into_parts_that_add_up() {
    for launching in [Launching::Eager, Launching::Captured] {
        let found = report(&Setting { launching, ..setting(4) });
        assert_eq!(found.phases.len(), 2);
        for phase in &found.phases {
            let s = &phase.shares;
            let parts = [
                s.compute,
                s.hidden_communication,
                s.exposed_communication,
                s.waiting_for_peers,
                s.launch,
                s.host,
            ];
            assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{s:?}");
            // One stream: operator shares add up to the compute share.
            let operators: f64 = phase.operators.iter().map(|row| row.share).sum();
            assert!((operators - s.compute - s.hidden_communication).abs() < 1e-6, "{operators} and {s:?}");
            let collectives: f64 = phase.collectives.iter().map(|row| row.share).sum();
            assert!((collectives - phase.communication).abs() < 1e-6, "{collectives} and {s:?}");
        }
        // Two `all_reduce`s per layer, plus embedding or head.
        let layers = ["all_reduce attention.out", "all_reduce mlp.out"];
        let counts =
            layers.map(|name| found.phases[1].collectives.iter().find(|row| row.name == name).unwrap().count);
        assert_eq!(counts, [2, 2]);
        let first = found.token_us.first;
        assert!(
            (found.token_us.last - first).abs() < 0.05 * first,
            "steps of one plan: {:?}",
            found.token_us
        );
    }
}

/// The host takes longer for a call than the shortest kernel.
#[test]
fn a_replayed_graph_waits_less_for_the_host() {
    let path = root().join("models/kjv-qwen2/config.json");
    let model = ModelConfig::from_json(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut site = setting(2).site;
    site.profile.coefficients.host.launch_us = 4.0 * site.profile.coefficients.kernel_us;
    let with = |launching| {
        report(&Setting { launching, model: model.clone(), input: 16, site: site.clone(), ..setting(2) })
    };
    let [eager, captured] = [Launching::Eager, Launching::Captured].map(with);
    assert!(captured.token_us.mean < eager.token_us.mean, "{:?} {:?}", captured.token_us, eager.token_us);
    let idle = |report: &RehearsalReport| report.phases[1].shares.launch * report.phases[1].duration_us;
    assert!(idle(&captured) < idle(&eager), "{} {}", idle(&captured), idle(&eager));
}

#[test]
fn the_same_setting_gives_the_same_report_page_and_trace() {
    let [first, second] = [(); 2].map(|()| rehearsal(&setting(4)));
    assert_eq!(
        serde_json::to_string(&first.report()).unwrap(),
        serde_json::to_string(&second.report()).unwrap()
    );
    assert_eq!(trace_of(&first), trace_of(&second));
    assert_eq!(html::page(&first), html::page(&second));
}

/// Predicts the memory of the fullest card.
fn memory(setting: &Setting) -> RehearsalMemory {
    RehearsalMemory::fullest(&setting.compile().unwrap(), &setting.site.profile)
}

/// The predicted memory equals the cards' accounts.
#[test]
fn bytes_are_those_the_card_accounts_for() {
    for (cards, batch, residual) in
        [(1, 2, Residual::Replicate), (4, 1, Residual::Seq), (6, 3, Residual::Replicate)]
    {
        let setting = Setting { batch, residual, ..setting(cards) };
        let predicted = memory(&setting);
        let found = report(&setting).memory;
        assert_eq!(found.kinds.total().0, found.used, "{cards} cards: the kinds are the whole");
        assert_eq!(found, predicted, "{cards} cards");
    }
}

#[test]
fn slower_chips_and_links_are_never_faster() {
    let time = |setting: &Setting| {
        let found = report(setting);
        (found.first_token_us, found.token_us.mean)
    };
    let base = time(&setting(4));
    let on = |change: fn(&mut Site)| {
        let mut setting = setting(4);
        change(&mut setting.site);
        time(&setting)
    };
    let slower = on(|site| site.profile = Profile::of(Soc::Ascend910B4));
    assert!(slower.0 >= base.0 && slower.1 >= base.1, "910B4 {slower:?}, 910B3 {base:?}");
    let slower = on(|site| site.topology.levels[0].bytes_per_us /= 4.0);
    assert!(slower.0 > base.0 && slower.1 >= base.1, "a quarter of the link {slower:?}, whole {base:?}");
    // Two servers communicate over the network.
    let spread = on(|site| site.servers = Some(2));
    assert!(spread.0 > base.0 && spread.1 > base.1, "two servers {spread:?}, one {base:?}");
}

/// Decoding reads every weight once per token, so 8-bit weights are faster.
#[test]
fn quantised_weights_take_half_the_bytes_and_less_time() {
    let bf16 = report(&setting(4));
    let w8a8 = report(&Setting { precision: Precision::w8a8(DType::BF16), ..setting(4) });
    assert_eq!(w8a8.dtype, "w8a8 with bf16 activations");
    let weights = |report: &RehearsalReport| report.memory.kinds.bytes(MemoryKind::Weights);
    assert!(weights(&w8a8) < weights(&bf16), "{} {}", weights(&w8a8), weights(&bf16));
    let operators = |report: &RehearsalReport, name: &str| {
        let rows = report.phases[1].operators.iter().filter(|row| row.name.contains(name));
        rows.map(|row| row.total_us).sum::<f64>()
    };
    let name = "mlp.w2.weight +1";
    assert!(operators(&w8a8, name) < operators(&bf16, name), "{:?}", w8a8.phases[1].operators);
}

/// Bytes in the files are next to those on a card, for weights that are not floats.
#[test]
fn formats_of_files_are_next_to_the_bytes_of_a_card() {
    let of = |format: QuantisedFormat| {
        let setting = setting(4);
        let model = setting.model.quantised(format).unwrap();
        report(&Setting { model, ..setting })
    };
    assert_eq!(report(&setting(4)).formats, []);
    for (format, name, bits) in [
        (QuantisedFormat::W4A16 { group: 64 }, "int4 groups of 64", 4.25),
        (QuantisedFormat::W8A8Dynamic, "int8", 8.0),
    ] {
        let found = of(format);
        let [quantised, float] = &found.formats[..] else { panic!("{:?}", found.formats) };
        assert_eq!((quantised.format.as_str(), float.format.as_str()), (name, "float"));
        let weights = |report: &RehearsalReport| report.memory.kinds.bytes(MemoryKind::Weights).0;
        let on_card = quantised.on_card + float.on_card;
        // Buffers are rounded up.
        assert!(
            (on_card..on_card + on_card / 100).contains(&weights(&found)),
            "{format}: {:?}",
            found.formats
        );
        let linear = setting(4).model.parameters().total as f64
            - setting(4).model.vocab_size as f64 * setting(4).model.hidden_size as f64 * 2.0;
        let stored = linear * bits / 8.0;
        let share = quantised.stored as f64 / stored;
        assert!((0.99..1.01).contains(&share), "{format}: {} of {stored}", quantised.stored);
    }
}

#[test]
fn the_trace_is_one_that_viewers_open() {
    for launching in [Launching::Eager, Launching::Captured] {
        let found = check(&trace_of(&rehearsal(&Setting { launching, ..setting(2) })));
        assert_eq!(found.threads.len(), 2 * 4 + 1);
        assert!(found.arrows > 0);
    }
}

#[test]
fn the_page_refers_to_nothing_outside() {
    let name = "</script><img src=x>".to_owned();
    let page = html::page(&rehearsal(&Setting { name, ..setting(2) }));
    for outside in ["http:", "https:", "//cdn", "src=", "href=", "url(", "@import", "fetch(", "import("] {
        assert!(!page.contains(outside) || outside == "src=" && !page.contains("<img src="), "{outside}");
    }
    assert_eq!(page.matches("</script>").count(), 2, "a name closes no element");
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["report"]["model"], "</script><img src=x>");
    assert_eq!(data["phases"].as_array().unwrap().len(), 4, "the prefill and three decode steps");
    assert_eq!(data["phases"][0]["ranks"].as_array().unwrap().len(), 2);
    assert_scripts_parse(&page);
}

/// `plan --train` predicts the executor's time for a further layer of a micro-batch on a two-axis
/// mesh.
#[test]
fn a_layer_of_a_grid_takes_what_the_planner_says() {
    let Setting { name, model, site, .. } = setting(4);
    let job = Job::new(&model, 512, 2, 4, site.profile.clone(), site.topology.clone());
    let split = setting::JobSplit {
        tp: 4,
        sequence_parallel: true,
        cp: 1,
        pp: 1,
        schedule: Pipeline::OneForwardOneBackward,
        dp: 1,
        ep: 1,
        zero: Zero::None,
        recompute: Recompute::None,
        micro_batch: 1,
        order: setting::RankOrder::DataInside,
    };
    let layers = grid::layers(&model, &job, &split).unwrap().unwrap();
    assert_eq!(layers.iter().map(|on| on.axes()).collect::<Vec<_>>(), ["tp=4", "tp_row=2,tp_col=2"]);
    for on in layers {
        let first_us = |layers: usize| {
            let grid = Grid { rows: on.rows, depth: 1 };
            let setting = train::TrainingSetting {
                name: name.clone(),
                model: ModelConfig { layers, ..model.clone() },
                recipe: Recipe {
                    global_batch: 2,
                    seq: 512,
                    precision: recipe::TrainingPrecision::Bf16,
                    ..Recipe::default()
                },
                layout: Layout { tensor: 4, grid, residual: on.residual, ..Layout::ONE },
                site: site.clone(),
            };
            step_rehearsal(&setting).report().phases[0].total_us
        };
        let found_us = (first_us(3) - first_us(1)) / 2.0;
        assert!((on.layer_us / found_us - 1.0).abs() < 0.02, "{on:?}: rehearsed {found_us} µs");
    }
}

/// Two layers of Qwen-72B with three micro-batches.
fn step(zero: Zero) -> train::TrainingSetting {
    let Setting { name, model, site, .. } = setting(4);
    let recipe =
        Recipe { global_batch: 6, seq: 512, precision: recipe::TrainingPrecision::Bf16, ..Recipe::default() };
    let layout = Layout { data: 2, tensor: 2, zero, ..Layout::ONE };
    train::TrainingSetting { name, model, recipe, layout, site }
}

fn step_rehearsal(setting: &train::TrainingSetting) -> train::TrainingRehearsal {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    train::TrainingRehearsal::run(setting).unwrap()
}

#[test]
fn a_step_of_training_takes_what_its_programs_take() {
    for zero in [Zero::None, Zero::Weights] {
        let setting = step(zero);
        let rehearsal = step_rehearsal(&setting);
        let found = rehearsal.report();
        let names: Vec<(&str, usize)> =
            found.phases.iter().map(|phase| (phase.first.name.as_str(), phase.times)).collect();
        assert_eq!(names, [("first micro-batch", 1), ("micro-batch between", 1), ("last micro-batch", 1)]);
        let total_us: f64 = found.phases.iter().map(|phase| phase.total_us).sum();
        assert!(
            (total_us / found.step_us - 1.0).abs() < 0.01,
            "{total_us} µs in parts, {} µs",
            found.step_us
        );
        assert!((found.tokens_per_s * found.step_us / 1e6 - 6.0 * 512.0).abs() < 1e-6);
        assert!(found.mfu > 0.01 && found.mfu < 0.6, "{}", found.mfu);
        assert_eq!(found.memory.kinds.total().0, found.memory.used, "the kinds are the whole");

        // Compare with `explain --train`.
        let lowered = ascend_tp::train::lower(&setting.model, &setting.recipe, &setting.layout).unwrap();
        let predicted_us: f64 = lowered
            .parts
            .iter()
            .map(|(_, lowered)| {
                let (plans, Site { profile, topology, .. }) = (
                    schedule(
                        lowered,
                        Scheduling {
                            joining: Joining::InPlace,
                            order: StepOrder::Overlapped,
                            target: Target { kernels: Kernels::NONE, exchanges: Exchanges::WithProducts },
                            ..Scheduling::default()
                        },
                    )
                    .unwrap(),
                    &setting.site,
                );
                let run =
                    Simulator::new(profile, topology, &plans, &[0, 1, 2, 3], None).run(Launching::Eager);
                run.ranks.iter().map(|rank| rank.duration_us).fold(0.0, f64::max)
            })
            .sum();
        println!("{zero:?}: rehearsed {:.0} µs, predicted {predicted_us:.0} µs", found.step_us);
        assert!(
            (found.step_us / predicted_us - 1.0).abs() < 0.02,
            "{} µs, predicted {predicted_us} µs",
            found.step_us
        );

        let mut trace = Vec::new();
        rehearsal.write_trace(&mut trace).unwrap();
        let trace = check(&String::from_utf8(trace).unwrap());
        assert_eq!((trace.threads.len(), trace.of("programs")), (4 * 4 + 1, 3));
        if zero == Zero::None {
            let again = step_rehearsal(&setting);
            assert_eq!(again.report(), found);
            assert_eq!(html::page_of_step(&again, &found), html::page_of_step(&rehearsal, &found));
        }
    }
}

/// Checks the time of a step on four cards, which has one program.
fn takes_as_predicted(setting: &train::TrainingSetting, step_us: f64) {
    let compiled = compile(&setting.model, &setting.recipe, &setting.layout, Target::ANY).unwrap();
    let Site { profile, topology, .. } = &setting.site;
    let simulator = Simulator::new(profile, topology, &compiled.plans[0].1, &[0, 1, 2, 3], None);
    let ranks = simulator.run(Launching::Eager).ranks;
    let predicted_us = ranks.iter().map(|rank| rank.duration_us).fold(0.0, f64::max);
    assert!((step_us / predicted_us - 1.0).abs() < 0.02, "{step_us} µs, predicted {predicted_us} µs");
}

/// The planner predicts ring attention, including its overlap.
#[test]
fn a_step_in_a_ring_takes_what_its_plans_take() {
    for (context, tensor) in [(2, 2), (4, 1)] {
        let mut setting = step(Zero::None);
        setting.recipe.seq = 2048;
        setting.layout =
            Layout { context, tensor, ring: true, zero: Zero::Moments, micro_batch: 6, ..Layout::ONE };
        let found = step_rehearsal(&setting).report();
        takes_as_predicted(&setting, found.step_us);
    }
}

/// The planner predicts a step with stages. Each pipeline schedule is one program.
#[test]
fn a_step_of_stages_takes_what_its_plans_take() {
    for pipeline in [Pipeline::OneForwardOneBackward, Pipeline::ZeroBubbleV] {
        let mut setting = step(Zero::None);
        setting.model.layers = 4;
        setting.recipe.pipeline = pipeline;
        setting.layout = Layout { stages: 2, tensor: 2, ..Layout::ONE };
        let found = step_rehearsal(&setting).report();
        let names: Vec<(&str, usize)> =
            found.phases.iter().map(|phase| (phase.first.name.as_str(), phase.times)).collect();
        assert_eq!(names, [("all micro-batches", 1)]);
        assert_eq!((found.micro_batches, found.phases[0].first.tokens), (6, 6 * 512));
        takes_as_predicted(&setting, found.step_us);
    }
}

#[test]
fn the_command_rehearses_a_step_of_training() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (trace, page) = (file("t.json"), file("r.html"));
    let line = "--train models/kjv-qwen2 --cards 4 --mesh dp=2,tp=2 --zero 1 --dtype f16 --global-batch 8 --micro-batch 1 --seq 64";
    let output = rehearse(&format!("{line} --trace {trace} --html {page} --json"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["micro_batches"].as_u64(), report["dtype"].as_str()), (Some(4), Some("f16")));
    assert_eq!((&report["phases"][1]["times"], &report["phases"][3]["name"]), (&2.into(), &"update".into()));
    assert!(
        report["memory"]["states"].as_u64().unwrap() > 0 && report["memory"]["kv_cache"].is_null(),
        "{report}"
    );
    assert!(check(&std::fs::read_to_string(trace).unwrap()).arrows > 0);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("\"step_us\":"));
    assert_scripts_parse(&page);
    let text = String::from_utf8(rehearse(line).stdout).unwrap();
    for part in [
        "dp=2",
        "8 sequences of 64 tokens a step in 4 micro-batches",
        "optimizer state and gradient sums",
        "MFU",
        "update",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("KV cache"), "{text}");
    let text = rehearse(
        "--train models/kjv-qwen2 --cards 4 --mesh pp=2,cp=2 --global-batch 8 --seq 64 --pipeline zb-h1",
    );
    let text = String::from_utf8(text.stdout).unwrap();
    for part in ["pp=2", "cp=2", "8 sequences of 64 tokens a step in 8 micro-batches", "all micro-batches"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = rehearse("models/kjv-qwen2 --cards 4 --mesh pp=2,tp=2 --input 8 --output 3");
    let text = String::from_utf8(text.stdout).unwrap();
    for part in ["4 × Ascend910B3 in 2 stages: ", "time per token", "send"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let found = refused("models/kjv-qwen2 --cards 4 --mesh dp=2,tp=2");
    assert!(found[0].contains("rehearse: options of a training step are given without --train"), "{found:?}");
    let found = refused("models/kjv-qwen2 --cards 2 --zero 1");
    assert!(found[0].contains("rehearse: options of a training step are given without --train"), "{found:?}");
    let found = refused("--train models/kjv-qwen2 --cards 9 --mesh dp=2 --dtype w8a8 --card h100");
    for expected in [
        "--card: no such chip",
        "--dtype: training does not support 8 bits",
        "--mesh: does not match the cards",
    ] {
        assert!(found.iter().any(|line| line.contains(expected)), "{expected}: {found:?}");
    }
    let found =
        refused("--train qwen2.5-0.5b --cards 2 --mesh dp=2 --seq 32768 --global-batch 2 --micro-batch 1");
    assert!(found[0].contains("memory of a card: the run does not fit"), "{found:?}");
}

fn rehearse(line: &str) -> Output {
    words(&format!("rehearse {line}"))
}

fn refused(line: &str) -> Vec<String> {
    crate::refused(&rehearse(line)).lines().map(str::to_owned).collect()
}

#[test]
fn bad_input_is_named_all_at_once() {
    let found = refused(
        "no-such-model --cards 0 --card h100 --topology nowhere.toml --batch 0 --input 0 --output 9999999999999",
    );
    for expected in ["--model", "--card: no such chip", "--topology", "--cards", "--batch", "--input"] {
        let has = found.iter().filter(|line| line.starts_with(&format!("error: {expected}"))).count();
        assert_eq!(has, 1, "{expected}: {found:#?}");
    }
    let found = refused("qwen-72b --cards 8 --servers 3 --input 40000 --output 18446744073709551615");
    let places: BTreeSet<&str> =
        found.iter().filter_map(|line| line.strip_prefix("error: ")?.split(':').next()).collect();
    assert_eq!(places, BTreeSet::from(["--input", "--output", "--servers"]), "{found:#?}");
    assert!(
        refused("qwen-72b --cards 9 --topology atlas-pcie")[0].contains("`atlas-pcie` has too few cards")
    );
    assert!(refused("qwen-72b --cards 8 --trace no/such/folder/t.json")[0].contains("--trace"));
}

#[test]
fn a_topology_file_with_mistakes_is_located() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("two.toml");
    std::fs::write(&path, "name = \"two\"\n[[levels]]\nname = \"a\"\nfabric = \"switch\"\ncards = 8\nbytes_per_us = 1.0\nlatency_us = 1.0\n[[levels]]\nname = \"b\"\nfabric = \"switch\"\ncards = 12\nbytes_per_us = 0.0\nlatency_us = 1.0\n").unwrap();
    let found = refused(&format!("qwen-72b --cards 8 --topology {}", path.display()));
    assert!(found.len() >= 2 && found.iter().all(|line| line.contains("two.toml")), "{found:#?}");
}

/// 2112 tokens of 24 sequences take 33 GiB of a card in bf16, next to 34 GiB of weights.
#[test]
fn caches_of_integers_are_proposed_where_they_fit() {
    let of = |batch: usize| {
        let found = refused(&format!("qwen-72b --cards 4 --batch {batch} --input 2048 --output 64"));
        let [line] = found.as_slice() else { panic!("{found:#?}") };
        assert!(line.contains("does not fit"), "{line}");
        line.clone()
    };
    assert!(of(24).contains("; --kv-dtype int8"), "{}", of(24));
    assert!(!of(64).contains("--kv-dtype"), "{}", of(64));
}

/// The figures add up, and each proposed setting runs.
#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let found = refused("qwen-72b --cards 2 --batch 4 --input 2048 --output 64");
    let [line] = found.as_slice() else { panic!("{found:#?}") };
    assert!(line.contains("does not fit the cards' memory") && line.contains("weights 67."), "{line}");
    let cards: usize = line.split("--cards ").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
    let full = Setting {
        model: ModelConfig::preset("qwen-72b").unwrap(),
        batch: 4,
        input: 2048,
        output: 64,
        ..setting(cards)
    };
    assert!(memory(&full).fits(), "{cards} cards");
    let fewer = Site { cards: cards - 1, ..full.site.clone() };
    assert!(!memory(&Setting { site: fewer, ..full }).fits(), "{cards} is the least");
    // A smaller batch fits on four cards.
    let found = refused("qwen-72b --cards 4 --batch 64 --input 1024 --output 64");
    let batch: usize = found[0].split("--batch ").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
    let with = |batch| Setting {
        model: ModelConfig::preset("qwen-72b").unwrap(),
        batch,
        input: 1024,
        output: 64,
        ..setting(4)
    };
    assert!(memory(&with(batch)).fits(), "{batch}");
    assert!(!memory(&with(batch + 1)).fits(), "{batch} is the largest");
}

#[test]
fn the_command_prints_the_report_and_writes_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (trace, page) = (file("t.json"), file("r.html"));
    let output = rehearse(&format!(
        "models/kjv-qwen2 --cards 2 --input 8 --output 4 --trace {trace} --html {page} --json"
    ));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["cards"].as_u64(), report["output"].as_u64()), (Some(2), Some(4)));
    assert!(report["token_us"]["mean"].as_f64().unwrap() > 0.0);
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(trace).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 100);
    assert!(std::fs::read_to_string(page).unwrap().starts_with("<!doctype html>"));
    let text = rehearse("--model models/kjv-qwen2 --cards 2 --input 8 --output 4");
    let text = String::from_utf8(text.stdout).unwrap();
    for part in ["Bytes of the fullest card", "time to first token", "launch-bound", "all_reduce mlp.out"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
