//! Requirements for the predictions.

use std::path::Path;
use std::sync::LazyLock;

use super::*;
use ascend_tp_machine::Work;
use ascend_tp_machine::profile::MEANINGS;
use ascend_tp_planner::calibrate::SampleTask;
use ascend_tp_planner::train::coefficients::TrainCoefficients;

fn samples() -> Vec<Sample> {
    OPERATORS
        .iter()
        .flat_map(|text| Point::all(text))
        .filter_map(|point| Some(MeasuredOperator::of(&point).ok()?.sample))
        .collect()
}

#[test]
fn every_shipped_point_is_listed_with_a_prediction_or_a_reason() {
    let rows = inference(POINTS, &Stack::FITTED);
    assert_eq!(rows.len(), POINTS.lines().filter(|line| !line.trim().is_empty()).count() - 1);
    let given: Vec<ValidationRow> = TRAINING
        .into_iter()
        .chain(MEMORY_POINTS)
        .chain(OPERATORS)
        .chain([INFERENCE[1], INFERENCE_HELD_BACK])
        .flat_map(|text| Validation::of("", text).unwrap().rows)
        .collect();
    for row in rows.iter().chain(&given) {
        match &row.predicted {
            Ok(predicted) => assert!(predicted.is_finite() && *predicted > 0.0, "{row:?}"),
            Err(why) => assert!(!why.is_empty(), "{row:?}"),
        }
    }
    assert_eq!(rows.iter().filter(|row| row.class == Class::Steps && row.error().is_some()).count(), 11);
}

/// Exceptions: serving stacks of a single page, and vector kernels, because few have a model.
#[test]
fn nine_in_ten_of_the_complete_rows_are_predicted() {
    let texts = OPERATORS
        .into_iter()
        .chain(MEMORY_POINTS)
        .chain(INFERENCE)
        .chain([INFERENCE_HELD_BACK])
        .chain(TRAINING);
    let rows = texts.flat_map(|text| Validation::of("", text).unwrap().rows).collect();
    let all = Validation { rows, ..Validation::default() };
    for row in &all.rows {
        assert!(row.gap.is_none() || row.predicted.is_err(), "{row:?}");
    }
    for (class, least) in Class::ALL.map(|class| (class, 0.9)) {
        let least = match class {
            Class::Vectors => 0.4,
            Class::Serving => 0.85,
            _ => least,
        };
        let ValidationSummary { rows, complete, predicted, left_out, .. } = all.summary(class);
        assert!(predicted as f64 >= least * complete as f64, "{class:?}: {predicted} of {complete}");
        assert_eq!(rows, predicted + left_out.iter().map(|reason| reason.rows).sum::<usize>(), "{class:?}");
        let of_model = left_out.iter().filter(|reason| reason.lacks == MissingFrom::Model);
        assert_eq!(complete, predicted + of_model.map(|reason| reason.rows).sum::<usize>(), "{class:?}");
    }
}

/// Fitted once for all tests.
static SHIPPED: LazyLock<Validation> = LazyLock::new(Validation::shipped);

#[test]
fn rows_of_unseen_pages_are_within_their_bounds() {
    for (class, rows, median, ninetieth) in [
        (Class::Attention, 2400, 0.12, 0.35),
        (Class::Grouped, 190, 0.12, 0.35),
        (Class::Vectors, 80, 0.25, 0.70),
        (Class::Collectives, 340, 0.15, 0.40),
        (Class::Steps, 11, 0.10, 0.25),
        (Class::Training, 77, 0.06, 0.20),
        (Class::Memory, 4, 0.03, 0.08),
    ] {
        let found = SHIPPED.statistics(class).unwrap();
        assert!(
            found.rows >= rows && found.median <= median && found.ninetieth <= ninetieth,
            "{class:?}: {found:?}"
        );
    }
    for (part, rows, median, ninetieth) in
        [(Subclass::Products16Bit, 1200, 0.12, 0.35), (Subclass::Products8Bit, 1200, 0.20, 0.35)]
    {
        let ValidationSummary { predicted, median: half, p90, .. } = SHIPPED.part_summary(part);
        assert!(
            predicted >= rows && half.unwrap() <= median && p90.unwrap() <= ninetieth,
            "{part:?}: {half:?} {p90:?}"
        );
    }
}

#[test]
fn serving_is_within_its_bounds_and_so_is_other_software_by_median() {
    let sources: BTreeSet<String> = INFERENCE
        .iter()
        .flat_map(|text| Point::all(text))
        .map(|point| point.text("source").to_owned())
        .collect();
    let is_fitted = |row: &&ValidationRow| row.class == Class::Serving && sources.contains(&row.source);
    let found = statistics(SHIPPED.rows.iter().filter(is_fitted).filter_map(ValidationRow::error)).unwrap();
    assert!(found.rows >= 49 && found.median <= 0.10 && found.ninetieth <= 0.30, "{found:?}");
    let all = SHIPPED.statistics(Class::Serving).unwrap();
    assert!(all.rows > found.rows && all.median <= 0.10, "{all:?}");
}

/// The figures are goals for coefficients of all rows.
#[test]
fn fitted_rows_are_within_their_bounds() {
    let fitted = |part| SHIPPED.part_summary(part).fitted_median.unwrap();
    for (part, median) in [
        (Subclass::Products16Bit, 0.10),
        (Subclass::Products8Bit, 0.125),
        (Subclass::AttentionPrefill, 0.12),
        (Subclass::AttentionDecode, 0.10),
        (Subclass::Collectives1Mb, 0.11),
    ] {
        assert!(fitted(part) <= median, "{part:?}: {}", fitted(part));
    }
    for (class, median) in [(Class::Grouped, 0.10), (Class::Vectors, 0.18)] {
        let found = SHIPPED.summary(class).fitted_median.unwrap();
        assert!(found <= median, "{class:?}: {found}");
    }
}

#[test]
fn the_shipped_coefficients_are_what_their_rows_give_and_inside_their_bounds() {
    let operators = Profile::of(Soc::default()).coefficients;
    let stack = stack::PARAMETERS.iter().zip(Stack::FITTED.values());
    let training = unseen::PARAMETERS.iter().zip(TrainCoefficients::FITTED.values());
    let others: BTreeMap<&str, f64> =
        stack.chain(training).map(|(parameter, value)| (parameter.name, value)).collect();
    assert_eq!(SHIPPED.coefficients.len(), MEANINGS.len() + others.len());
    for Confidence { meaning, value, range, .. } in &SHIPPED.coefficients {
        let is_stack = matches!(meaning.kind, "serving" | "training");
        let shipped = if is_stack { others[meaning.name] } else { operators.get(meaning.name).unwrap() };
        assert!((shipped / value - 1.0).abs() < 0.01, "{}: {shipped} ships, {value} fits", meaning.name);
        assert!(
            meaning.low < range.0 && range.1 < meaning.high && meaning.low < *value && *value < meaning.high,
            "{}: {value} in {range:?}",
            meaning.name
        );
    }
}

/// `cargo xtask validate --write` writes the files again.
#[test]
fn the_written_files_hold_what_the_rows_give() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let held = |place: &str| std::fs::read_to_string(root.join(place)).unwrap();
    for (place, text) in document::files(&SHIPPED, &held(document::COEFFICIENTS)) {
        assert!(held(place) == text, "{place} is out of date: run cargo xtask validate --write");
    }
}

#[test]
fn rows_without_operators_are_refused() {
    let problems = calibrate("mine.csv", POINTS, Soc::Ascend910B4).unwrap_err().to_string();
    assert!(problems.starts_with("mine.csv: nothing to fit Ascend910B4 on: expected rows"), "{problems}");
    let problems = Validation::of("mine.csv", "a,b\n1,2\n").unwrap_err().to_string();
    assert!(
        problems.starts_with("mine.csv: no column tells the kind of the points: expected one of operator"),
        "{problems}"
    );
    let problems = Validation::of("mine.csv", "tp,operator,tp\n1,2,3\n").unwrap_err().to_string();
    assert!(problems.contains("expected each column once, found tp more than once"), "{problems}");
    assert!(Validation::of("mine.csv", "").unwrap_err().to_string().ends_with("found an empty file"));
    let problems = Validation::of("mine.csv", "operator,value,unit\n").unwrap_err().to_string();
    assert_eq!(
        problems,
        "mine.csv: nothing to predict: expected a row for each measured point below the heading, found the heading alone"
    );
    let problems = Validation::of("mine.csv", "operator,b\n1\n").unwrap_err().to_string();
    assert!(problems.starts_with("mine.csv: not comma-separated values"), "{problems}");
}

#[test]
fn a_step_of_more_sequences_or_slower_software_is_never_faster() {
    let point = &Point::all(POINTS).into_iter().find(forward::is_forward).unwrap();
    let step = forward::forward(point).unwrap();
    let us = |sequences, stack: &Stack, launching| step.step_us(sequences, stack, launching);
    let captured = us(1, &Stack::FITTED, StackLaunching::Captured);
    assert!(us(2, &Stack::FITTED, StackLaunching::Captured) > captured);
    assert!(us(1, &Stack::FITTED, StackLaunching::Eager) >= captured);
    let slower = Stack { operator_us: 90.0, ..Stack::FITTED };
    assert!(us(1, &slower, StackLaunching::Eager) > us(1, &Stack::FITTED, StackLaunching::Eager));
}

/// Per layer, the host launches one attention and the collectives. Several processes add time once
/// per pass.
#[test]
fn a_pass_in_pieces_takes_what_its_host_issues() {
    let text = |tp: usize, layers: usize| {
        format!(
            "source,hardware,model,layers,hidden,ffn,heads,vocab,dtype,tp,batch,input_len,output_len,metric,value,unit,note\n\
             page,910B3,mine,{layers},1024,1024,8,1000,bf16,{tp},1,64,,TPOT,1,ms,AIV\n"
        )
    };
    let us = |tp, layers| 1e3 * inference(&text(tp, layers), &Stack::FITTED)[0].predicted.clone().unwrap();
    let Stack { piece_us, exchange_us, workers_us, .. } = Stack::FITTED;
    let layer_us = |tp| (us(tp, 30) - us(tp, 10)) / 20.0;
    assert!((layer_us(1) / piece_us - 1.0).abs() < 1e-6, "{}", layer_us(1));
    assert!((layer_us(2) / (piece_us + 2.0 * exchange_us) - 1.0).abs() < 1e-6, "{}", layer_us(2));
    let more_us = us(2, 10) - us(1, 10) - 20.0 * exchange_us;
    assert!(more_us > workers_us && more_us < workers_us + 4.0 * exchange_us, "{more_us}");
}

/// On Atlas A2 without AIV mode, a collective waits for the card's scheduler.
#[test]
fn exchanges_that_the_host_lays_out_make_a_step_slower() {
    let text = |note: &str| {
        format!(
            "source,hardware,model,dtype,tp,batch,input_len,output_len,metric,value,unit,note\n\
             page,910B3,Qwen3-8B,bf16,2,1,64,,TPOT,1,ms,aclgraph\npage,910B3,Qwen3-8B,bf16,2,1,64,,TPOT,1,ms,{note}\n"
        )
    };
    let of = |note: &str| inference(&text(note), &Stack::FITTED)[0].predicted.clone().unwrap();
    let exchanges = 2.0 * 36.0 + 1.0;
    let staged_us = Profile::of(Soc::Ascend910B3).coefficients.exchange.staged_us;
    let slower_us = 1e3 * (of("aclgraph") - of("HCCL_OP_EXPANSION_MODE=AIV"));
    assert!(
        slower_us > 0.8 * exchanges * staged_us && slower_us < 1.1 * exchanges * staged_us,
        "{slower_us}"
    );
}

/// Fits rows computed from three shipped profiles and a changed one.
#[test]
fn a_profile_is_found_again_on_what_it_predicts() {
    let shipped = Profile::of(Soc::default()).coefficients;
    let mut count = 0.0;
    let other: Vec<(&str, f64)> = MEANINGS
        .iter()
        .map(|meaning| {
            count += 1.0;
            let factor = if count % 2.0 == 0.0 { 0.9 } else { 1.08 };
            (
                meaning.name,
                (shipped.get(meaning.name).unwrap() * factor).clamp(meaning.low * 1.01, meaning.high * 0.99),
            )
        })
        .collect();
    let made_up = shipped.set(&other);
    let all = samples();
    for (soc, own) in [
        (Soc::Ascend910B2, &shipped),
        (Soc::Ascend910B4, &shipped),
        (Soc::Ascend910_9362, &shipped),
        (Soc::Ascend910B3, &made_up),
    ] {
        let of_chip: Vec<Sample> = all
            .iter()
            .enumerate()
            .flat_map(|(index, sample)| {
                // A quarter of the rows is enough. Vector kernels are few, so they are repeated.
                let times = match sample.kind {
                    SampleKind::Products | SampleKind::Products8Bit | SampleKind::Attention => {
                        usize::from(index % 4 == 0)
                    }
                    SampleKind::Vectors => 20,
                    _ => 1,
                };
                let mut sample = sample.clone();
                (sample.soc, sample.page) = (soc, index.to_string());
                sample.measured_us = sample.predict_us(own);
                vec![sample; times]
            })
            .collect();
        let found = fit_all(&shipped, &of_chip);
        for meaning in MEANINGS {
            let (found, own) = (found.get(meaning.name).unwrap(), own.get(meaning.name).unwrap());
            assert!((found / own - 1.0).abs() < 0.02, "{soc}: {} is {own}, found {found}", meaning.name);
        }
    }
}

/// Counts rows by kind, by complete settings and by prediction, with reasons for the rest.
#[test]
fn rows_of_ones_own_are_counted_by_what_they_lack() {
    const OPERATORS: &str = "source,hardware,operator,dtype,shape,ranks,metric,value,unit,quality,note\n\
         p,910B3,torch.matmul,bf16,M=4096 K=4096 N=4096,1,kernel time,600,us,,\n\
         p,910B3,torch.matmul,bf16,not stated,1,kernel time,600,us,,\n\
         p,910B3,matmul (tilelang),bf16,M=64 K=64 N=64,1,kernel time,9,us,,\n";
    const SERVING: &str = "source,hardware,model,dtype,tp,batch,input_len,output_len,metric,value,unit,quality,note\n\
         p,910B3,Qwen3-8B,bf16,1,4,512,256,TPOT mean,25,ms,,\n\
         p,910B3,Qwen3-8B,bf16,1,4,512,256,TPOT mean,90,ms,,lmdeploy\n";
    let mut all = Validation::of("operators.csv", OPERATORS).unwrap();
    all.extend(Validation::of("serving.csv", SERVING).unwrap());
    let report = serde_json::to_value(all.summaries()).unwrap();
    let counts = |kind: &str| {
        ["rows", "complete", "predicted"].map(|count| report["kinds"][kind][count].as_u64().unwrap())
    };
    assert_eq!((counts("products"), counts("serving")), ([3, 1, 1], [2, 2, 1]), "{report}");
    let lacks = |kind: &str| -> Vec<&str> {
        let left_out = report["kinds"][kind]["left_out"].as_array().unwrap();
        left_out.iter().map(|reason| reason["lacks"].as_str().unwrap()).collect()
    };
    assert_eq!((lacks("products"), lacks("serving")), (vec!["measurement", "setting"], vec!["model"]));
}

fn operator(operator: &str, dtype: &str, shape: &str, note: &str) -> Result<MeasuredOperator, &'static str> {
    let text = format!(
        "source,hardware,operator,dtype,shape,ranks,metric,value,unit,quality,note\n\
         p,910B2,{operator},{dtype},{shape},1,kernel time,100,us,,{note}\n"
    );
    MeasuredOperator::of(&Point::all(&text)[0])
}

/// A prompt without a stated query length was priced as a decode step.
#[test]
fn a_prompt_has_as_many_queries_as_keys_and_a_mask_if_it_is_causal() {
    let us = |name: &str, shape: &str| {
        let MeasuredOperator { sample, part, .. } = operator(name, "bf16", shape, "").unwrap();
        (part, sample.predict_us(&Profile::of(Soc::default()).coefficients))
    };
    let shape = "batch=1 seq=8192 heads=8 kv_heads=1 head_dim=128";
    let (causal, whole) = (us("attention prefill (causal)", shape), us("attention prefill", shape));
    assert_eq!((causal.0, whole.0), (Some(Subclass::AttentionPrefill), Some(Subclass::AttentionPrefill)));
    assert!(causal.1 < 0.7 * whole.1 && causal.1 > 0.4 * whole.1, "{causal:?} {whole:?}");
    assert_eq!(us("attention decode", shape).0, Some(Subclass::AttentionDecode));
    assert!(operator("attention", "bf16", shape, "").unwrap_err().contains("queries"));
}

#[test]
fn latent_attention_and_batched_products_have_a_form() {
    let flops = |read: &MeasuredOperator| {
        let SampleTask::Kernels(works) = &read.sample.task else { panic!("{read:?}") };
        works.iter().map(Work::flops).sum::<f64>()
    };
    let shape = "batch=2 S_q=512 S_kv=512 heads=16 kv_heads=16 qk_dim=192 v_dim=128";
    let latent = operator("MLA prefill attention", "bf16", shape, "").unwrap();
    assert_eq!(flops(&latent), 2.0 * 2.0 * 16.0 * 512.0 * 512.0 * (192.0 + 128.0));
    let shape = "heads=16 tokens=4: 16 products of 4x512 by 512x128 as the table lists them";
    let batched = operator("batched matmul of MLA", "bf16", shape, "").unwrap();
    assert_eq!(flops(&batched), 2.0 * 16.0 * 4.0 * 512.0 * 128.0);
}

#[test]
fn a_quantised_layer_includes_the_quantisation_of_its_rows() {
    let us = |name: &str| {
        let read = operator(name, "w8a8", "M=4096 K=1024 N=1024", "").unwrap();
        read.sample.predict_us(&Profile::of(Soc::default()).coefficients)
    };
    assert!(us("QuantBatchMatmulV3 (linear; dynamic quantised)") > 1.2 * us("QuantBatchMatmulV3 (linear)"));
}

#[test]
fn rows_that_nothing_reads_are_listed_by_page() {
    const ROWS: &str = "source,hardware,operator,dtype,shape,ranks,metric,value,unit,quality,note\n\
         first page,910B3,a new operator,bf16,64x64,1,kernel time,9,us,,\n\
         first page,910B3,a new operator,bf16,64x32,1,kernel time,9,us,,\n\
         other page,Atlas 950PR,torch.matmul,bf16,M=64 K=64 N=64,1,kernel time,9,us,,\n";
    let all = Validation::of("rows.csv", ROWS).unwrap();
    let text = all.text(None);
    assert!(text.contains("2 of first page") && text.contains("1 of other page"), "{text}");
    assert!(text.contains("not modelled: the machine has no cost model"), "{text}");
    let report = serde_json::to_value(all.summaries()).unwrap();
    assert_eq!(report["kinds"]["vectors"]["left_out"][0]["pages"]["first page"], 2);
}
