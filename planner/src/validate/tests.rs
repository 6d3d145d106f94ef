//! Requirements for the predictions.

use std::sync::LazyLock;

use super::*;
use ascend_tp_machine::profile::MEANINGS;
use calibrate::fit_all;

fn samples() -> Vec<MeasuredOperator> {
    Point::all(OPERATORS).iter().filter_map(|point| MeasuredOperator::of(point).ok()).collect()
}

#[test]
fn every_shipped_point_is_listed_with_a_prediction_or_a_reason() {
    let rows = inference(POINTS, &Stack::FITTED);
    assert_eq!(rows.len(), POINTS.lines().filter(|line| !line.trim().is_empty()).count() - 1);
    let given: Vec<ValidationRow> = TRAINING
        .into_iter()
        .chain([MEMORY_POINTS, OPERATORS, INFERENCE[1]])
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
    let texts = [OPERATORS, MEMORY_POINTS].into_iter().chain(INFERENCE).chain(TRAINING);
    let rows = texts.flat_map(|text| Validation::of("", text).unwrap().rows).collect();
    let all = Validation { rows, coefficients: Vec::new() };
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
pub(super) static SHIPPED: LazyLock<Validation> = LazyLock::new(Validation::shipped);

#[test]
fn rows_of_unseen_pages_are_within_their_bounds() {
    for (class, rows, median, ninetieth) in [
        (Class::Products, 1200, 0.12, 0.35),
        (Class::Attention, 1200, 0.12, 0.35),
        (Class::Grouped, 190, 0.12, 0.35),
        (Class::Collectives, 340, 0.15, 0.40),
        (Class::Steps, 11, 0.10, 0.25),
        (Class::Serving, 49, 0.10, 0.30),
        (Class::Training, 77, 0.06, 0.20),
        (Class::Memory, 4, 0.03, 0.08),
    ] {
        let found = SHIPPED.statistics(class).unwrap();
        assert!(
            found.rows >= rows && found.median <= median && found.ninetieth <= ninetieth,
            "{class:?}: {found:?}"
        );
    }
}

#[test]
fn the_shipped_coefficients_are_what_their_rows_give_and_inside_their_bounds() {
    let operators = Profile::of(Soc::default()).coefficients;
    let stack = stack::PARAMETERS.iter().zip(Stack::FITTED.values());
    let training = unseen::PARAMETERS.iter().zip(train::coefficients::TrainCoefficients::FITTED.values());
    let others: BTreeMap<&str, f64> =
        stack.chain(training).map(|(parameter, value)| (parameter.name, value)).collect();
    assert_eq!(SHIPPED.coefficients.len(), MEANINGS.len() + others.len());
    for Confidence { meaning, value, range, .. } in &SHIPPED.coefficients {
        let shipped = operators.get(meaning.name).or_else(|| others.get(meaning.name).copied()).unwrap();
        assert!((shipped / value - 1.0).abs() < 0.01, "{}: {shipped} ships, {value} fits", meaning.name);
        assert!(
            meaning.low < range.0 && range.1 < meaning.high && meaning.low < *value && *value < meaning.high
        );
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
        let of_chip: Vec<MeasuredOperator> = all
            .iter()
            .enumerate()
            .flat_map(|(index, sample)| {
                // A quarter of the rows is enough. Vector kernels are few, so they are repeated.
                let times = match sample.class {
                    Class::Products | Class::Attention => usize::from(index % 4 == 0),
                    Class::Vectors => 20,
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
