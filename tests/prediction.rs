//! Drafts by the layer for multi-token prediction: draft logits of a text and of the programs of a
//! session, and sessions with drafts against sessions without.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use ascend_tp::base::{DType, Id};
use ascend_tp::compile::Deployment;
use ascend_tp::config::ModelConfig;
use ascend_tp::generate::drafts::Speculation;
use ascend_tp::generate::inputs::{InputBuilder, InputRow, SequenceInput, padded_ids};
use ascend_tp::generate::{Model, Request, SamplingOptions, Session};
use ascend_tp::program::models::{
    self, Head, LayeredProgram, PredictionPart, RunShape, SequenceBlocks, input, predicting_decoder,
};
use ascend_tp::program::tree::SumOrder;
use ascend_tp::program::{Builder, HostTensor, Program, Role, interpret};
use ascend_tp::weights::Checkpoint;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use smallvec::smallvec;

use crate::common::random::Random;
use crate::common::{Tensors, cann, fixture, open};
use crate::gradients::{inputs, params_of};

/// Bound of the difference of logits in f32. Their standard deviation is about 1.7, and the
/// references differ by 8e-5 from f64.
const BOUND: f32 = 1e-3;

/// Returns the draft logits `[b,s-1,v]` of texts.
fn draft_logits(model: &Model, [b, s]: [usize; 2], ids: &[i64]) -> Vec<f32> {
    let config = &model.config;
    let mut build = Builder::new("draft logits");
    let logits = models::prediction_logits(&mut build, config, [b, s], DType::F32).unwrap();
    build.output("logits", logits);
    let program = build.finish().unwrap();
    let params = params_of(&program, &model.checkpoint);
    let mut given = inputs(config, b, s, ids);
    let hidden = (0..b).flat_map(|_| (0..s - 1).flat_map(|token| (0..s - 1).map(move |key| key > token)));
    let hidden = hidden.map(i64::from).collect();
    given.insert(input::DRAFT_MASK.to_owned(), HostTensor::int([b, s - 1, s - 1], DType::Bool, hidden));
    let values = interpret(&program, |_, value| {
        params.get(&value.name).unwrap_or_else(|| &given[&value.name]).clone()
    });
    values[program.outputs[0].1.index()].floats().to_vec()
}

fn are_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= BOUND, "{what}, {at}: {found} instead of {expected}");
    }
}

#[test]
fn draft_logits_are_those_of_the_reference() {
    for name in ["qwen3-next", "qwen3_5-dense"] {
        let reference = Checkpoint::open_file(&fixture(name).join("expected.safetensors")).unwrap();
        let (shape, ids) = reference.read_i64("input_ids").unwrap();
        let (_, expected) = reference.read_f32("mtp_logits").unwrap();
        let found = draft_logits(&open(&fixture(name)), [shape[0], shape[1]], &ids);
        are_close(&found, &expected, name);
    }
}

/// Shapes and numbers of tensors by name.
type Written = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

fn write(path: &Path, tensors: &Written) {
    let bytes: Vec<Vec<u8>> =
        tensors.values().map(|(_, numbers)| numbers.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, (shape, _)), bytes)| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// Writes a copy of a fixture in f32, with other tensors and another configuration.
fn changed(
    name: &str,
    config: impl FnOnce(String) -> String,
    change: impl FnOnce(&mut Written),
) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::open(&fixture(name)).unwrap();
    let mut tensors: Written = checkpoint
        .tensors()
        .map(|(name, _)| {
            let (shape, numbers) = checkpoint.read_f32(name).unwrap();
            (name.to_owned(), (shape.to_vec(), numbers))
        })
        .collect();
    change(&mut tensors);
    write(&folder.path().join("model.safetensors"), &tensors);
    let text = std::fs::read_to_string(fixture(name).join("config.json")).unwrap();
    std::fs::write(folder.path().join("config.json"), config(text)).unwrap();
    folder
}

/// Writes GLM-4.5 with a prediction layer. The layer has the inner tensors of the last layer.
pub(crate) fn glm_with_prediction() -> tempfile::TempDir {
    let config =
        |text: String| text.replace("\"num_nextn_predict_layers\": 0", "\"num_nextn_predict_layers\": 1");
    changed("glm4-moe", config, |tensors| {
        let h = 48;
        let copied: Written = tensors
            .iter()
            .filter_map(|(name, tensor)| {
                let path = name.strip_prefix("model.layers.2.")?;
                Some((format!("model.layers.3.{path}"), tensor.clone()))
            })
            .collect();
        tensors.extend(copied);
        let mut drawn = |path: &str, shape: Vec<usize>, around: f32, width: f32| {
            let mut random = Random::of(path);
            let numbers = (0..shape.iter().product()).map(|_| around + width * random.unit()).collect();
            tensors.insert(format!("model.layers.3.{path}.weight"), (shape, numbers));
        };
        drawn("enorm", vec![h], 1.0, 0.3);
        drawn("hnorm", vec![h], 1.0, 0.3);
        drawn("shared_head.norm", vec![h], 1.0, 0.3);
        drawn("eh_proj", vec![h, 2 * h], 0.0, 0.3);
    })
}

fn row_of_norm(x: &[f32], weight: &[f32], epsilon: f64) -> Vec<f64> {
    let squares: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
    let root = (squares / x.len() as f64 + epsilon).sqrt();
    x.iter().zip(weight).map(|(x, weight)| f64::from(*x) / root * f64::from(*weight)).collect()
}

/// Compares the prediction layer of `DeepSeek` V3 with a model of this layer alone. The inputs of
/// the layer, computed in f64, are the embeddings of the model.
#[test]
fn the_layer_of_deepseek_is_a_model_of_its_inputs() {
    let name = "deepseek-v3";
    let model = open(&fixture(name));
    let config = &model.config;
    let (s, h) = (12, config.hidden_size);
    let ids: Vec<i64> = (0..s as i64).map(|at| (at * at * 5 + 17 * at) % 190 + 4).collect();
    let found = draft_logits(&model, [1, s], &ids);
    let hidden = hidden_of(&model, &ids);
    let read = |name: &str| model.checkpoint.read_f32(name).unwrap().1;
    let tensors = ["embed_tokens", "enorm", "hnorm", "eh_proj"];
    let [_, enorm, hnorm, projection] = tensors.map(|name| read(&format!("model.layers.3.{name}.weight")));
    let table = read("model.embed_tokens.weight");
    let mut rows = vec![0.0_f32; config.vocab_size * h];
    for (at, row) in rows.chunks_exact_mut(h).enumerate().take(s - 1) {
        let id = ids[at + 1] as usize;
        let mut both = row_of_norm(&table[id * h..(id + 1) * h], &enorm, config.norm_epsilon);
        both.extend(row_of_norm(&hidden[at * h..(at + 1) * h], &hnorm, config.norm_epsilon));
        for (element, weights) in row.iter_mut().zip(projection.chunks_exact(2 * h)) {
            *element = weights.iter().zip(&both).map(|(w, x)| f64::from(*w) * x).sum::<f64>() as f32;
        }
    }
    let one_layer = |text: String| {
        let text = text.replace("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 1");
        let text = text.replace("\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 0");
        text.replace("\"num_nextn_predict_layers\": 1", "\"num_nextn_predict_layers\": 0")
    };
    let folder = changed(name, one_layer, |tensors| {
        let outer = ["embed_tokens", "enorm", "hnorm", "eh_proj", "shared_head"];
        let mut of_layer: Written = tensors
            .iter()
            .filter_map(|(name, tensor)| {
                let path = name.strip_prefix("model.layers.3.")?;
                let is_inner = !outer.iter().any(|outer| path.starts_with(outer));
                is_inner.then(|| (format!("model.layers.0.{path}"), tensor.clone()))
            })
            .collect();
        of_layer.insert(
            "model.norm.weight".to_owned(),
            tensors["model.layers.3.shared_head.norm.weight"].clone(),
        );
        of_layer.insert("lm_head.weight".to_owned(), tensors["lm_head.weight"].clone());
        of_layer.insert("model.embed_tokens.weight".to_owned(), (vec![config.vocab_size, h], rows));
        *tensors = of_layer;
    });
    let positions: Vec<i64> = (0..s as i64 - 1).collect();
    let expected = logits_of(&open(folder.path()), &positions);
    are_close(&found, &expected, name);
}

/// Returns the values of a decoder program over a whole text.
fn run_decoder(model: &Model, ids: &[i64]) -> (Program, Vec<HostTensor>) {
    let s = ids.len();
    let run = RunShape::new(1, s, s);
    let program = models::decoder(&model.config, run, DType::F32, Head::AllLogits).unwrap();
    let params = params_of(&program, &model.checkpoint);
    let mut given = inputs(&model.config, 1, s, ids);
    let places = models::cache_inputs(run, std::slice::from_ref(&(0..s)));
    given.extend(places.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)));
    let values = interpret(&program, |_, value| match value.role {
        Role::State => HostTensor::zeros(value.shape.clone(), value.dtype),
        _ => params.get(&value.name).unwrap_or_else(|| &given[&value.name]).clone(),
    });
    (program, values)
}

fn logits_of(model: &Model, ids: &[i64]) -> Vec<f32> {
    let (program, values) = run_decoder(model, ids);
    values[program.outputs[0].1.index()].floats().to_vec()
}

fn hidden_of(model: &Model, ids: &[i64]) -> Vec<f32> {
    let (program, values) = run_decoder(model, ids);
    let hidden = program.values.ids().find(|id| program.values[*id].name == "final_norm").unwrap();
    values[hidden.index()].floats().to_vec()
}

/// Programs of a session with their states, on the host.
struct OnHost<'a> {
    model: &'a Model,
    params: Tensors,
    states: Tensors,
    inputs: InputBuilder,
    first: Option<Program>,
}

impl OnHost<'_> {
    /// Runs tokens of one sequence, and returns the values of the program by name. Blocks of 16
    /// tokens are in falling order.
    fn run(
        &mut self,
        part: PredictionPart,
        start: usize,
        width: usize,
        ids: &[u32],
        given: &[u32],
    ) -> Tensors {
        let config = &self.model.config;
        let run = RunShape { caches: RunShape::new(1, 1, 64).caches, ..RunShape::new(1, width, 64) };
        let blocks = run.caches.blocks.count;
        let head = Head::AllLogits;
        let order = SumOrder::AsTheyCome;
        let built =
            predicting_decoder(config, run, DType::F32.into(), head, order, part, self.first.as_ref());
        let LayeredProgram { program, .. } = built.unwrap();
        let row = InputRow {
            tokens: SequenceInput { ids, start, prompt_length: 1 },
            groups: smallvec![SequenceBlocks { first: 0, blocks: (1..blocks).rev() }],
            state: None,
            adapter: None,
        };
        let mut inputs = self.inputs.inputs(run, head, std::slice::from_ref(&row));
        self.inputs.add_prediction(&mut inputs, run, part, &[row]);
        let inputs = inputs.with(input::IDS, padded_ids(width, std::iter::once(given)));
        if self.first.is_none() {
            self.params = params_of(&program, &self.model.checkpoint);
        }
        let values = interpret(&program, |_, value| match value.role {
            Role::Param => self.params[&value.name].clone(),
            Role::State => self
                .states
                .get(&value.name)
                .cloned()
                .unwrap_or_else(|| HostTensor::zeros(value.shape.clone(), value.dtype)),
            _ => {
                let tensor = inputs.get(&value.name).unwrap();
                HostTensor { shape: value.shape.clone(), ..tensor }
            }
        });
        for op in program.ops.values() {
            for at in op.kind.row().in_place {
                let state = &program.values[op.operands[*at]];
                assert_eq!(state.role, Role::State, "{}", state.name);
                self.states.insert(state.name.clone(), values[op.result().index()].clone());
            }
        }
        self.first.get_or_insert_with(|| program.clone());
        program.values.iter().map(|(id, value)| (value.name.clone(), values[id.index()].clone())).collect()
    }
}

#[test]
fn programs_of_a_session_have_the_draft_logits_of_the_text() {
    let folder = glm_with_prediction();
    for model in [open(&fixture("deepseek-v3")), open(folder.path())] {
        compare_programs(&model);
    }
}

/// Runs texts that accept every second draft, and compares the logits with those of the whole text.
fn compare_programs(model: &Model) {
    let vocabulary = model.config.vocab_size;
    let ids: Vec<u32> = (0..26).map(|at| (at * at * 5 + 17 * at) % 190 + 4).collect();
    let inputs = InputBuilder::new(&model.config, DType::F32);
    let states = Tensors::new();
    let mut host = OnHost { model, params: Tensors::new(), states, inputs, first: None };
    // A prompt of one token, and one in two chunks with padding.
    for borders in [vec![0, 1], vec![0, 7, 12]] {
        host.states.clear();
        // Rows of logits by position.
        let (mut logits, mut drafts): (Rows, Rows) = (Vec::new(), Vec::new());
        for chunk in borders.windows(2) {
            let (start, chunk_ids) = (chunk[0], &ids[chunk[0]..chunk[1]]);
            let found = host.run(PredictionPart::Fills, start, 8, chunk_ids, chunk_ids);
            let rows = found["logits"].floats().chunks_exact(vocabulary);
            logits.extend((start..chunk[1]).zip(rows.map(<[f32]>::to_vec)));
        }
        let mut text = ids[..=borders[borders.len() - 1]].to_vec();
        for is_accepted in [true, true, false, false, true, false, true] {
            let at = text.len() - 1;
            let found = host.run(PredictionPart::Proposes, at, 2, &[text[at], 0], &text[at - 1..]);
            let draft = found["draft_logits"].floats().to_vec();
            let rows = found["logits"].floats().chunks_exact(vocabulary).map(<[f32]>::to_vec);
            logits.extend((at..text.len() + usize::from(is_accepted)).zip(rows));
            let likeliest = (0..vocabulary).reduce(|a, b| if draft[b] > draft[a] { b } else { a });
            drafts.push((at - 1, draft));
            text.extend(is_accepted.then(|| likeliest.unwrap() as u32));
            // Another token than a refused draft.
            text.push(ids.iter().copied().find(|id| likeliest != Some(*id as usize)).unwrap());
        }
        let whole: Vec<i64> = text.iter().map(|id| i64::from(*id)).collect();
        let expected = [logits_of(model, &whole), draft_logits(model, [1, whole.len()], &whole)];
        for (expected, (what, rows)) in expected.iter().zip([("logits", logits), ("draft logits", drafts)]) {
            assert!(rows.len() >= 7);
            for (at, found) in rows {
                are_close(
                    &found,
                    &expected[at * vocabulary..][..vocabulary],
                    &format!("{what} of token {at}"),
                );
            }
        }
    }
}

/// Rows of logits with their positions.
type Rows = Vec<(usize, Vec<f32>)>;

fn deployment(config: &ModelConfig, cards: usize) -> Deployment {
    Deployment {
        precision: DType::F32.into(),
        batch: 4,
        longest_prompt: 32,
        context: 96,
        block_tokens: 16,
        ..Deployment::of(config, cards)
    }
}

/// Returns the ids of the answers, and the numbers of verified and accepted drafts.
fn answers(model: &Model, deployment: Deployment, predicts: bool) -> (Vec<Vec<u32>>, [u64; 2]) {
    let cann = cann(deployment.cards);
    let builder = Session::builder(&cann, model).deployment(deployment);
    let builder = if predicts { builder.speculate(Speculation::Prediction) } else { builder };
    let mut session = builder.start().unwrap();
    let request = |of: u32| Request {
        max_new_tokens: Some(30),
        stop_ids: Some(Vec::new()),
        sampling: SamplingOptions {
            temperature: if of == 2 { 0.7 } else { 0.0 },
            ..SamplingOptions::default()
        },
        ..Request::new((0..6 * of).map(|at| (at * of + at * at) % 140 + 4).collect::<Vec<u32>>())
    };
    let requests: Vec<Request> = (1..5).map(request).collect();
    let found = session.generate(&requests, &mut |_| ControlFlow::Continue(())).unwrap();
    let load = session.load()[0].clone();
    let ids = found.sequences.into_iter().map(|sequence| sequence.ids).collect();
    (ids, [load.verified_drafts, load.accepted_drafts])
}

/// Writes a model with a prediction layer that proposes the model's own choices. The parts of all
/// layers add 0, so the next token depends on the last one alone. The projection of the prediction
/// layer passes the embedding on.
pub(crate) fn predictable(name: &str) -> tempfile::TempDir {
    changed(
        name,
        |text| text,
        |tensors| {
            let h = 48;
            for (name, (_, numbers)) in tensors.iter_mut() {
                if name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") {
                    numbers.fill(0.0);
                }
            }
            let norm = tensors["model.norm.weight"].clone();
            tensors.insert("model.layers.3.shared_head.norm.weight".to_owned(), norm);
            tensors.get_mut("model.layers.3.enorm.weight").unwrap().1.fill(1.0);
            let projection = &mut tensors.get_mut("model.layers.3.eh_proj.weight").unwrap().1;
            projection.fill(0.0);
            (0..h).for_each(|row| projection[row * 2 * h + row] = 1.0);
        },
    )
}

#[test]
fn a_layer_that_knows_the_model_has_its_drafts_accepted() {
    let folder = predictable("deepseek-v3");
    let model = open(folder.path());
    for cards in [1, 2] {
        let own = deployment(&model.config, cards);
        let (expected, none) = answers(&model, own, false);
        assert_eq!(none, [0, 0]);
        let (found, [verified, accepted]) = answers(&model, own, true);
        assert_eq!(found, expected, "{cards} cards");
        // The request with a temperature chooses other tokens than the most likely ones.
        assert!(verified >= 60 && accepted * 4 >= verified * 3, "{accepted} of {verified} drafts");
    }
}

#[test]
fn what_cannot_be_predicted_is_refused_by_name() {
    let refused = |model: &Model, deployment: Deployment| {
        let cann = cann(deployment.cards);
        let builder = Session::builder(&cann, model).deployment(deployment);
        builder.speculate(Speculation::Prediction).start().unwrap_err().to_string()
    };
    let hybrid = open(&fixture("qwen3-next"));
    let message = refused(&hybrid, Deployment { block_tokens: 64, ..deployment(&hybrid.config, 1) });
    assert!(
        message.contains("drafts by prediction: cannot be made for this model: found recurrent layers"),
        "{message}"
    );
    let dense = open(&fixture("qwen2-gqa"));
    let message = refused(&dense, deployment(&dense.config, 1));
    assert!(message.contains("found no layer for multi-token prediction in config.json"), "{message}");
    let model = open(&fixture("deepseek-v3"));
    let message = refused(&model, Deployment { stages: 2, ..deployment(&model.config, 2) });
    assert!(message.starts_with("stages: "), "{message}");
    let folder = changed(
        "deepseek-v3",
        |text| text,
        |tensors| {
            tensors.remove("model.layers.3.hnorm.weight");
        },
    );
    let model = open(folder.path());
    let message = refused(&model, deployment(&model.config, 1));
    assert!(message.contains("model.layers.3.hnorm.weight"), "{message}");
}
