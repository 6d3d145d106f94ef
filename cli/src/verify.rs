//! `verify`: compares the program on many cards with one card, and with the outputs of another
//! implementation.
//!
//! The exit code says whether everything is within its bound.

use std::sync::Arc;

use ascend_tp::base::Diagnostics;
use ascend_tp::compile::Deployment;
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::verify::{
    Choice, ChosenExperts, Difference, Greedy, MeanDifference, Reference, SameOperands, Verification,
    verify_on,
};
use ascend_tp::generate::{self, Model};
use ascend_tp::placement::{Grid, TENSOR};
use ascend_tp::program::tree::SumOrder;
use ascend_tp::world::ProcessGroup;
use serde::Serialize;

use super::arguments::VerifyOptions;
use super::cards::Cards;
use super::failure::{Failure, Outcome};
use super::processes::{self, Inputs};
use super::values::PrecisionName;
use super::{cards, gradients, interrupt, model, print_json, print_report};

pub(super) fn run(options: &VerifyOptions) -> Result<Outcome, Failure> {
    processes::run(|group| match options.train {
        true => gradients::run(options, group),
        false => run_in(options, group),
    })
}

fn run_in(options: &VerifyOptions, group: &Arc<ProcessGroup>) -> Result<Outcome, Failure> {
    let stop = interrupt::catch(group);
    let cards = cards::open(options.device, group)?;
    let read = read(options, &cards, group);
    let ((wanted, (stages, grid), order), model, reference) = match read {
        Ok(input) => processes::agree(group, Inputs::of_model(&options.model), Ok(input))?,
        Err(Failure::Input(error)) => match error.downcast::<Diagnostics>() {
            Ok(problems) => processes::agree(group, Inputs::default(), Err(problems))?,
            Err(error) => return Err(Failure::Input(error)),
        },
        Err(failure) => return Err(failure),
    };
    let dtype = options.dtype.unwrap_or(PrecisionName::F32);
    let precision = model::precision(&model.config, Some(dtype), options.fp8_as, group)?;
    let precision = precision.with_kv(options.caches.kv());
    let engine = EngineOptions { stop, ..cards.engine_options(group)? };
    let of = Deployment::of(&model.config, wanted);
    let (residual, experts) = (options.layout.residual(), options.layout.experts());
    let deployment = Deployment { stages, grid, precision, residual, experts, order, ..of };
    model::note_unpacked(&model.config, &deployment, group)?;
    let verification = verify_on(&cards.cann, &model, &deployment, &reference, &engine)?;
    cards.check_reports()?;
    let passed = verification.as_ref().is_some_and(Verification::passed);
    let verdicts =
        group.exchange("the outcome", vec![u8::from(passed)]).map_err(|gone| Failure::Run(gone.into()))?;
    if interrupt::is_requested() {
        return Err(Failure::Interrupted);
    }
    if let Some(verification) = verification {
        let report = VerifyReport::new(options, &deployment, &cards, verification);
        if options.json {
            print_json(&report)?;
        } else {
            print_report(&report.to_string())?;
        }
    }
    Ok(if verdicts[0] == [1] { Outcome::Done } else { Outcome::OutsideBound })
}

type Input = ((usize, (usize, Grid), SumOrder), Model, Reference);

fn read(options: &VerifyOptions, cards: &Cards, group: &ProcessGroup) -> Result<Input, Failure> {
    let mut problems = Diagnostics::new();
    let wanted = processes::cards(options.cards, group, options.step.cards()).unwrap_or_else(|problem| {
        problems.push(problem);
        group.size()
    });
    if group.size() == 1 {
        cards.problem(wanted).into_iter().for_each(|problem| problems.push(problem));
    }
    let (order, step) = options.step.order_apart();
    let divided = step.serving("verify", wanted, &["pp=", TENSOR]).unwrap_or_else(|found| {
        problems.append(found);
        (1, Grid::LINE)
    });
    let model = model::open(&options.model, group, false).map_err(|found| problems.append(found)).ok();
    // With a correct configuration, the reference is checked even if the weights are wrong.
    let vocab_size = match &model {
        Some(model) => Some(model.config.vocab_size),
        None => Model::open_config(&options.model).ok().map(|config| config.vocab_size),
    };
    let reference = match (&options.reference, vocab_size) {
        (Some(path), Some(vocab_size)) => match Reference::open(path, vocab_size) {
            Err(generate::Error::Refused(found)) => {
                problems.append(found);
                None
            }
            found => Some(found?),
        },
        (_, vocab_size) => vocab_size.map(Reference::without),
    };
    match (model, reference) {
        (Some(model), Some(reference)) if problems.is_empty() => {
            Ok(((wanted, divided, order), model, reference))
        }
        _ => Err(problems.into()),
    }
}

#[derive(Debug, Serialize)]
struct VerifyReport {
    model: String,
    device: String,
    cards: usize,
    /// Number of pipeline stages, if more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    stages: Option<usize>,
    dtype: &'static str,
    /// Element type of KV caches, if it is not that of activations.
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_dtype: Option<&'static str>,
    /// Whether every sum was added in a fixed order.
    exact: bool,
    passed: bool,
    values: usize,
    same_bits: usize,
    first_difference: Option<DifferenceReport>,
    closest: Option<DifferenceReport>,
    /// Comparison of each op with one card on the same operands.
    same_operands: SameOperandsReport,
    /// Error of the logits with f32 around quantised products, compared with one card.
    #[serde(skip_serializing_if = "Option::is_none")]
    around: Option<DifferenceReport>,
    /// Error of the logits in f32, compared with the reference.
    logits: Option<DifferenceReport>,
    /// Error of the logits in `dtype`, compared with f32.
    rounded: Option<DifferenceReport>,
    /// Error of the logits in `dtype`, compared with the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    against_reference: Option<MeanDifferenceReport>,
    greedy: Option<GreedyReport>,
    /// Choices of experts in `dtype`, compared with f32. All results use the choices of f32.
    #[serde(skip_serializing_if = "Option::is_none")]
    experts: Option<ChosenExpertsReport>,
}

/// Choices of experts, compared with the choices that all results use.
#[derive(Debug, Serialize)]
pub(super) struct ChosenExpertsReport {
    /// Number of choices: one per token and router.
    pub(super) choices: usize,
    /// Number of choices of other experts.
    pub(super) differing: usize,
}

impl From<ChosenExperts> for ChosenExpertsReport {
    fn from(ChosenExperts { rows, differing }: ChosenExperts) -> Self {
        Self { choices: rows, differing }
    }
}

#[derive(Debug, Default, Serialize)]
struct SameOperandsReport {
    values: usize,
    /// Number of compared integers of quantised rows, which must be equal.
    integers: usize,
    closest: Option<DifferenceReport>,
}

impl From<SameOperands> for SameOperandsReport {
    fn from(found: SameOperands) -> Self {
        let SameOperands { values, integers, closest } = found;
        Self { values, integers, closest: closest.map(Into::into) }
    }
}

#[derive(Debug, Serialize)]
struct DifferenceReport {
    place: String,
    index: Vec<usize>,
    expected: f64,
    found: f64,
    error: f64,
    bound: f64,
}

#[derive(Debug, Serialize)]
struct MeanDifferenceReport {
    mean: f64,
    largest: f64,
}

#[derive(Debug, Serialize)]
struct GreedyReport {
    expected: Vec<u32>,
    found: Vec<u32>,
    /// Differing tokens, in f32 and in `dtype`.
    choices: Vec<ChoiceReport>,
}

#[derive(Debug, Serialize)]
struct ChoiceReport {
    dtype: &'static str,
    at: usize,
    expected: u32,
    found: u32,
    margin: f64,
    bound: f64,
}

impl From<Greedy> for GreedyReport {
    fn from(greedy: Greedy) -> Self {
        let Greedy { expected, found, choices } = greedy;
        Self { expected, found, choices: choices.into_iter().map(Into::into).collect() }
    }
}

impl From<Choice> for ChoiceReport {
    fn from(choice: Choice) -> Self {
        let Choice { precision, at, expected, found, margin, bound } = choice;
        Self { dtype: precision.name(), at, expected, found, margin, bound }
    }
}

impl From<Difference> for DifferenceReport {
    fn from(difference: Difference) -> Self {
        let Difference { place, index, expected, found, bound } = difference;
        Self { place, index, expected, found, error: (expected - found).abs(), bound }
    }
}

impl VerifyReport {
    fn new(
        options: &VerifyOptions,
        deployment: &Deployment,
        cards: &Cards,
        verification: Verification,
    ) -> Self {
        Self {
            model: options.model.display().to_string(),
            device: cards.description.clone(),
            cards: deployment.cards,
            stages: Some(deployment.stages).filter(|stages| *stages > 1),
            dtype: deployment.precision.name(),
            kv_dtype: deployment.precision.kv_name(),
            exact: deployment.order == SumOrder::Tree,
            passed: verification.passed(),
            values: verification.values,
            same_bits: verification.same_bits,
            first_difference: verification.first_difference.map(Into::into),
            closest: verification.closest.map(Into::into),
            same_operands: verification.alone.into(),
            around: verification.around.map(Into::into),
            logits: verification.logits.map(Into::into),
            rounded: verification.rounded.map(Into::into),
            against_reference: verification
                .against_reference
                .map(|MeanDifference { mean, largest }| MeanDifferenceReport { mean, largest }),
            greedy: verification.greedy.map(Into::into),
            experts: verification.experts.map(Into::into),
        }
    }
}

impl std::fmt::Display for DifferenceReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { place, index, expected, found, error, bound } = self;
        write!(
            f,
            "{place} at {index:?}: expected {expected:.7e}, found {found:.7e}, error {error:.2e}, bound {bound:.2e}"
        )
    }
}

impl std::fmt::Display for ChoiceReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { dtype, at, expected, found, margin, bound } = self;
        write!(
            f,
            "greedy token {at} in {dtype}: expected {expected}, found {found}; in f32 their logits are {margin:.2e} apart, \
             and either may be chosen up to {bound:.2e}"
        )
    }
}

impl std::fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { model, device, cards, dtype, values, same_bits, .. } = self;
        let stages = self.stages.map_or_else(String::new, |stages| format!(" in {stages} stages"));
        let caches = self.kv_dtype.map(|dtype| format!(" with {dtype} caches")).unwrap_or_default();
        let order = if self.exact { ", fixed order of sums" } else { "" };
        writeln!(
            f,
            "{model} in {dtype}{caches}: 1 card against {cards} of {device}{stages}{order}, {values} values"
        )?;
        if self.exact {
            writeln!(f, "{same_bits} of {values} values have the same bits")?;
        }
        match (&self.first_difference, &self.closest) {
            (Some(first), _) => writeln!(f, "first op outside its bound: {first}")?,
            (None, Some(closest)) => writeln!(f, "all within their bounds; closest to its bound: {closest}")?,
            (None, None) => writeln!(f, "all equal")?,
        }
        let SameOperandsReport { values, integers, closest } = &self.same_operands;
        if let Some(closest) = closest {
            let integers = if *integers > 0 { format!(", {integers} integers") } else { String::new() };
            writeln!(
                f,
                "each op on the operands of one card, {values} values{integers}; closest to its bound: {closest}"
            )?;
        }
        if let Some(around) = &self.around {
            writeln!(f, "largest error with f32 outside the products: {around}")?;
        }
        if let Some(logits) = &self.logits {
            writeln!(f, "largest error in f32 against the reference: {logits}")?;
        }
        if let Some(rounded) = &self.rounded {
            writeln!(f, "largest error in {dtype} against f32: {rounded}")?;
        }
        if let Some(MeanDifferenceReport { mean, largest }) = &self.against_reference {
            writeln!(f, "error in {dtype} against the reference: mean {mean:.2e}, largest {largest:.2e}")?;
        }
        if let Some(ChosenExpertsReport { choices, differing }) = &self.experts {
            writeln!(
                f,
                "choices of experts: {differing} of {choices} differ from f32; results use the choices of f32"
            )?;
        }
        if let Some(GreedyReport { expected, found, choices }) = &self.greedy {
            let equal = expected.iter().zip(found).take_while(|(expected, found)| expected == found).count();
            if equal == expected.len() {
                writeln!(f, "greedy ids: all {equal} equal the reference's")?;
            } else if choices.is_empty() {
                writeln!(
                    f,
                    "greedy ids: {equal} of {} equal the reference's; the session makes its own choices of experts",
                    expected.len()
                )?;
            }
            choices.iter().try_for_each(|choice| writeln!(f, "{choice}"))?;
        }
        writeln!(f, "{}", if self.passed { "passed" } else { "FAILED: outside the bound" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(greedy: Option<GreedyReport>, first: Option<DifferenceReport>, passed: bool) -> String {
        let closest = DifferenceReport {
            place: "%9 = add %7, %8".to_owned(),
            index: vec![0, 3],
            expected: 1.5,
            found: 1.25,
            error: 0.25,
            bound: 0.5,
        };
        let (model, device, dtype) = ("m".to_owned(), "8 cards".to_owned(), "f32");
        VerifyReport {
            model,
            device,
            cards: 3,
            stages: None,
            dtype,
            kv_dtype: None,
            exact: false,
            passed,
            values: 9,
            same_bits: 7,
            first_difference: first,
            closest: Some(closest),
            same_operands: SameOperandsReport::default(),
            around: None,
            logits: None,
            rounded: None,
            against_reference: None,
            greedy,
            experts: None,
        }
        .to_string()
    }

    #[test]
    fn what_passed_is_named_with_its_bound() {
        let greedy = GreedyReport { expected: vec![1, 2], found: vec![1, 2], choices: Vec::new() };
        assert_eq!(
            report(Some(greedy), None, true),
            "m in f32: 1 card against 3 of 8 cards, 9 values\n\
             all within their bounds; closest to its bound: %9 = add %7, %8 at [0, 3]: expected 1.5000000e0, found 1.2500000e0, \
             error 2.50e-1, bound 5.00e-1\n\
             greedy ids: all 2 equal the reference's\n\
             passed\n"
        );
    }

    #[test]
    fn what_failed_is_named_with_both_values() {
        let choices =
            vec![ChoiceReport { dtype: "bf16", at: 1, expected: 2, found: 5, margin: 0.5, bound: 0.25 }];
        let greedy = GreedyReport { expected: vec![1, 2], found: vec![1, 5], choices };
        let difference =
            Difference { place: "op".into(), index: vec![1], expected: 2.0, found: 4.0, bound: 1.0 };
        let text = report(Some(greedy), Some(difference.into()), false);
        assert!(
            text.contains(
                "first op outside its bound: op at [1]: expected 2.0000000e0, found 4.0000000e0, error 2.00e0"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "greedy token 1 in bf16: expected 2, found 5; in f32 their logits are 5.00e-1 apart, \
                 and either may be chosen up to 2.50e-1\n"
            ),
            "{text}"
        );
        assert!(text.ends_with("FAILED: outside the bound\n"), "{text}");
    }
}
