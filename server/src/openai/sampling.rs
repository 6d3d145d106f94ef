//! Fields that completions and chat have in common: sampling, stops, number of tokens, streaming.
//!
//! - Input: the fields of a body.
//! - Output: [`Settings`].
//! - Invariants: a missing field has the value of `generation_config.json`, or else OpenAI's. Each
//!   field is supported, ignored or refused by name; docs/SERVER.md lists them.
//! - Not here: prompts and answers.

use std::collections::BTreeMap;

use ascend_tp::base::Diagnostic;
use ascend_tp::generate::{Grammar, Request, SamplingOptions};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::fields::{MAX_PROBLEMS, RefusedField, RequestFields, short};
use crate::state::ServerState;

/// Maximum number of log-probabilities for each token.
pub(crate) const MAX_LOGPROBS: usize = 20;

/// Maximum number of stop texts.
const MAX_STOPS: usize = 64;

/// Maximum length of a stop text, in bytes.
const MAX_STOP_BYTES: usize = 256;

/// Maximum number of stop ids.
const MAX_STOP_IDS: usize = 256;

/// Maximum number of tokens with a bias.
const MAX_BIASES: usize = 1024;

/// Settings of all sequences of a request.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) model: Option<String>,
    pub(crate) sampling: SamplingOptions,
    /// Maximum number of new tokens. Default: the endpoint's.
    pub(crate) max_tokens: Option<usize>,
    pub(crate) stop_texts: Vec<String>,
    stop_ids: Vec<u32>,
    pub(crate) ignore_eos: bool,
    /// Whether the request has a seed, so that the same request gives the same answer.
    pub(crate) has_seed: bool,
    priority: i32,
    /// Number of choices for each prompt.
    pub(crate) samples: usize,
    /// How the answer is streamed; none if it comes at once.
    pub(crate) stream: Option<StreamOptions>,
    /// The grammar of the answer.
    pub(crate) grammar: Option<AnswerGrammar>,
    /// Whether special tokens are in the text.
    pub(crate) shows_special: bool,
}

/// A grammar, and the field that has it.
#[derive(Clone, Debug)]
pub(crate) struct AnswerGrammar {
    pub(crate) field: &'static str,
    pub(crate) grammar: Grammar,
}

/// How an answer is streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct StreamOptions {
    /// Whether the last chunk has the usage.
    #[serde(default)]
    pub(crate) include_usage: bool,
    /// Whether each chunk has the usage so far.
    #[serde(default)]
    pub(crate) continuous_usage_stats: bool,
}

/// A text or a list of texts.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stops {
    One(String),
    Many(Vec<String>),
}

/// Fields that would change the answer.
const REFUSED: &[RefusedField] = &[
    refused("use_beam_search", &["false"], ""),
    refused("length_penalty", &["1", "1.0"], ""),
    refused("suffix", &["\"\""], ""),
    refused("logits_processors", &["[]"], ""),
    refused("prompt_embeds", &[], ""),
    refused("truncate_prompt_tokens", &[], "shorten the prompt"),
    refused("allowed_token_ids", &[], "use logit_bias or structured_outputs"),
    refused("bad_words", &["[]"], "use logit_bias"),
    refused("include_stop_str_in_output", &["false"], ""),
    refused("spaces_between_special_tokens", &["true"], ""),
    refused("return_tokens_as_token_ids", &["false"], ""),
    refused("return_token_ids", &["false"], ""),
    refused("prompt_logprobs", &[], "use echo with logprobs of /v1/completions"),
    refused("guided_json", &[], "use structured_outputs"),
    refused("guided_regex", &[], "use structured_outputs"),
    refused("guided_choice", &[], "use structured_outputs"),
    refused("guided_grammar", &[], "use structured_outputs"),
    refused("cache_salt", &[], ""),
    refused("kv_transfer_params", &[], ""),
    refused("vllm_xargs", &["{}"], ""),
];

pub(crate) const fn refused(
    name: &'static str,
    unchanged: &'static [&'static str],
    help: &'static str,
) -> RefusedField {
    RefusedField { name, unchanged, help }
}

impl Settings {
    /// Reads the fields. Problems are added to `fields`.
    pub(crate) fn read(fields: &mut RequestFields, state: &ServerState) -> Self {
        let model = fields.take("model");
        let samples = fields.take::<usize>("n").unwrap_or(1);
        let most = state.sequences;
        if !(1..=most).contains(&samples) {
            let problem = Diagnostic::new("n", "out of range").expected(format!("1 to {most}"));
            fields.problems.push(problem.found(samples).help("--max-num-seqs sets the largest number"));
        }
        if let Some(best) = fields.take::<usize>("best_of").filter(|best| *best != samples) {
            let problem = Diagnostic::new("best_of", "only the value of n is supported");
            fields.problems.push(problem.expected(samples).found(best));
        }
        let stream = stream_options(fields);
        let stop_texts = stop_texts(fields);
        let seed = fields.take::<i64>("seed").map(i64::cast_unsigned);
        let sampling = sampling(fields, state, seed);
        let max_tokens = fields.take("max_tokens");
        let max_tokens = fields.take("max_completion_tokens").or(max_tokens);
        let mut stop_ids = fields.take::<Vec<u32>>("stop_token_ids").unwrap_or_default();
        if stop_ids.len() > MAX_STOP_IDS {
            let problem = Diagnostic::new("stop_token_ids", "has too many ids");
            let expected = format!("at most {MAX_STOP_IDS}");
            fields.problems.push(problem.expected(expected).found(stop_ids.len()));
            stop_ids.clear();
        }
        let settings = Self {
            model,
            sampling,
            max_tokens,
            stop_texts,
            stop_ids,
            ignore_eos: fields.take("ignore_eos").unwrap_or(false),
            has_seed: seed.is_some(),
            priority: fields.take("priority").unwrap_or(0),
            samples,
            stream,
            grammar: grammar(fields),
            shows_special: !fields.take("skip_special_tokens").unwrap_or(true),
        };
        if settings.ignore_eos && settings.grammar.is_some() {
            fields.problem("ignore_eos", "cannot be used together with a grammar");
        }
        fields.refuse(REFUSED);
        settings
    }

    /// Checks the number of new tokens against the length of a prompt. `place` is the name of the
    /// prompt's field. Without `max_tokens`, there are at most `default` new tokens.
    pub(crate) fn check_length(
        &self,
        fields: &mut RequestFields,
        place: &str,
        tokens: usize,
        context: usize,
        default: usize,
    ) {
        if tokens == 0 {
            fields.problem(place, "has no token");
        } else if tokens >= context {
            let problem = Diagnostic::new(place, "is longer than the model's context");
            let expected = format!("at most {} tokens", context - 1);
            fields.problems.push(problem.expected(expected).found(tokens));
        } else if let Some(most) = self.max_tokens.filter(|most| tokens.saturating_add(*most) > context) {
            let problem = Diagnostic::new("max_tokens", "does not fit the model's context with the prompt");
            let expected = format!("at most {}, after {tokens} tokens", context - tokens);
            fields.problems.push(problem.expected(expected).found(most));
        }
        let most = self.max_tokens.unwrap_or_else(|| default.min(context.saturating_sub(tokens)));
        if most < self.sampling.min_tokens && tokens < context {
            let problem = Diagnostic::new("min_tokens", "is above max_tokens");
            fields.problems.push(problem.expected(format!("at most {most}")).found(self.sampling.min_tokens));
        }
    }

    /// Returns the request of a prompt.
    pub(crate) fn request(
        &self,
        state: &ServerState,
        ids: Vec<u32>,
        log_probabilities: Option<usize>,
    ) -> Request {
        let own = if self.ignore_eos { &[][..] } else { &state.stop_ids };
        let stop_ids = own.iter().chain(&self.stop_ids).copied().collect();
        Request {
            max_new_tokens: self.max_tokens,
            stop_ids: Some(stop_ids),
            ignore_eos: self.ignore_eos,
            stop_texts: self.stop_texts.clone(),
            sampling: self.sampling.clone(),
            log_probabilities,
            priority: self.priority,
            adapter: state.adapter(self.model.as_deref()).map(str::to_owned),
            ..Request::new(ids)
        }
    }
}

fn stream_options(fields: &mut RequestFields) -> Option<StreamOptions> {
    let streams = fields.take("stream").unwrap_or(false);
    let options = fields.take::<StreamOptions>("stream_options");
    if options.is_some() && !streams {
        fields.problem("stream_options", "needs stream: true");
    }
    streams.then(|| options.unwrap_or_default())
}

fn stop_texts(fields: &mut RequestFields) -> Vec<String> {
    let stops = match fields.take("stop") {
        None => Vec::new(),
        Some(Stops::One(stop)) => vec![stop],
        Some(Stops::Many(stops)) => stops,
    };
    check_stops(fields, "stop", &stops);
    stops
}

/// Checks the stop texts of the field `name`.
pub(crate) fn check_stops(fields: &mut RequestFields, name: &str, stops: &[String]) {
    if stops.iter().any(String::is_empty) {
        fields.problem(name, "an empty text ends every answer");
    }
    if let Some(long) = stops.iter().find(|stop| stop.len() > MAX_STOP_BYTES) {
        let problem = Diagnostic::new(name, "has a text that is too long");
        fields.problems.push(problem.expected(format!("at most {MAX_STOP_BYTES} bytes")).found(long.len()));
    }
    if stops.len() > MAX_STOPS {
        let problem = Diagnostic::new(name, "has too many texts").expected(format!("at most {MAX_STOPS}"));
        fields.problems.push(problem.found(stops.len()));
    }
}

/// Reads sampling options. Settings of the file apply to requests that do not set them.
fn sampling(fields: &mut RequestFields, state: &ServerState, seed: Option<u64>) -> SamplingOptions {
    let file = &state.sampling;
    let own = if file.do_sample == Some(false) { 0.0 } else { file.temperature.unwrap_or(1.0) };
    // Clients write "all tokens" as -1 or 0.
    let top_k = fields.take::<i64>("top_k").map(|top_k| usize::try_from(top_k).ok().filter(|k| *k > 0));
    let none_if = |unchanged: f32| move |value: &f32| *value != unchanged;
    let sampling = SamplingOptions {
        temperature: fields.take("temperature").unwrap_or(own),
        top_k: top_k.unwrap_or(file.top_k),
        top_p: fields.take("top_p").or(file.top_p).filter(none_if(1.0)),
        min_p: fields.take("min_p").or(file.min_p).filter(none_if(0.0)),
        repetition_penalty: fields.take("repetition_penalty").or(file.repetition_penalty).unwrap_or(1.0),
        presence_penalty: fields.take("presence_penalty").unwrap_or(0.0),
        frequency_penalty: fields.take("frequency_penalty").unwrap_or(0.0),
        logit_bias: logit_bias(fields),
        min_tokens: fields.take("min_tokens").unwrap_or(0),
        seed: seed.unwrap_or_else(rand::random),
    };
    for checked in [sampling.check(), sampling.check_ids(state.texts.vocabulary.len())] {
        for problem in checked.err().iter().flat_map(|found| found.items()).take(MAX_PROBLEMS) {
            let place = problem.place.strip_prefix("sampling: ").unwrap_or(&problem.place).to_owned();
            fields.problems.push(Diagnostic { place, ..problem.clone() });
        }
    }
    sampling
}

fn logit_bias(fields: &mut RequestFields) -> BTreeMap<u32, f32> {
    let biases = fields.take::<BTreeMap<String, f32>>("logit_bias").unwrap_or_default();
    let mut by_id = BTreeMap::new();
    if biases.len() > MAX_BIASES {
        let problem = Diagnostic::new("logit_bias", "has too many tokens");
        fields.problems.push(problem.expected(format!("at most {MAX_BIASES}")).found(biases.len()));
        return by_id;
    }
    for (id, bias) in biases {
        match id.parse() {
            Ok(id) => drop(by_id.insert(id, bias)),
            Err(_) if fields.has_many_problems() => break,
            Err(_) => {
                let problem = Diagnostic::new("logit_bias", "a key is no token id");
                fields.problems.push(problem.expected("a number in quotes").found(short(&id)));
            }
        }
    }
    by_id
}

/// Reads the grammar of the answer: `response_format` of OpenAI, or `structured_outputs` of vLLM.
fn grammar(fields: &mut RequestFields) -> Option<AnswerGrammar> {
    const FORMAT: &str = "response_format";
    const OUTPUTS: &str = "structured_outputs";
    let format = fields.raw(FORMAT).and_then(|value| response_format(fields, &value));
    let outputs = fields.raw(OUTPUTS).and_then(|value| structured_outputs(fields, &value));
    if format.is_some() && outputs.is_some() {
        fields.problem(OUTPUTS, "cannot be used together with response_format");
    }
    let format = format.map(|grammar| AnswerGrammar { field: FORMAT, grammar });
    format.or_else(|| outputs.map(|grammar| AnswerGrammar { field: OUTPUTS, grammar }))
}

/// Reads the fields of an object with `read`, and moves its problems to `fields`. Returns nothing
/// if there are many problems already.
pub(crate) fn within<T>(
    fields: &mut RequestFields,
    place: &str,
    value: &RawValue,
    read: impl FnOnce(&mut RequestFields) -> Option<T>,
) -> Option<T> {
    if fields.has_many_problems() {
        return None;
    }
    match RequestFields::of_field(&fields.place(place), value) {
        Err(problem) => {
            fields.problems.push(problem);
            None
        }
        Ok(mut inner) => {
            let value = read(&mut inner);
            fields.problems.append(inner.problems);
            value
        }
    }
}

fn response_format(fields: &mut RequestFields, value: &RawValue) -> Option<Grammar> {
    within(fields, "response_format", value, |format| {
        let kind = format.require::<String>("type")?;
        match kind.as_str() {
            "text" => None,
            "json_object" => Some(Grammar::Json),
            "json_schema" => {
                let schema = format.require::<Box<RawValue>>("json_schema")?;
                within(format, "json_schema", &schema, |named| {
                    let schema = named.require::<Box<RawValue>>("schema")?;
                    Some(Grammar::JsonSchema(schema.get().to_owned()))
                })
            }
            other => {
                let problem = Diagnostic::new(format.place("type"), "is not supported");
                let expected = "text, json_object or json_schema";
                format.problems.push(problem.expected(expected).found(short(other)));
                None
            }
        }
    })
}

fn structured_outputs(fields: &mut RequestFields, value: &RawValue) -> Option<Grammar> {
    within(fields, "structured_outputs", value, |outputs| {
        let schema = outputs.raw("json").map(|schema| {
            // vLLM also takes the schema as a text.
            let quoted = serde_json::from_str::<String>(schema.get());
            Grammar::JsonSchema(quoted.unwrap_or_else(|_| schema.get().to_owned()))
        });
        let object = outputs.take::<bool>("json_object").filter(|is_json| *is_json).map(|_| Grammar::Json);
        let regex = outputs.take("regex").map(Grammar::Regex);
        let lark = outputs.take("grammar").map(Grammar::Lark);
        let choice = outputs.take::<Vec<String>>("choice").map(|texts| Grammar::Lark(one_of(&texts)));
        outputs.refuse(&[
            refused("structural_tag", &[], ""),
            refused("disable_any_whitespace", &["false"], ""),
            refused("disable_additional_properties", &["false"], ""),
            refused("whitespace_pattern", &[], ""),
        ]);
        let mut grammars = [schema, object, regex, lark, choice].into_iter().flatten();
        let (first, second) = (grammars.next(), grammars.next());
        if first.is_none() || second.is_some() {
            let problem = Diagnostic::new("structured_outputs", "needs one grammar");
            outputs.problems.push(problem.expected("one of json, json_object, regex, choice and grammar"));
        }
        first
    })
}

/// Returns the Lark grammar of a text that is one of several.
fn one_of(texts: &[String]) -> String {
    let texts: Vec<String> =
        texts.iter().map(|text| serde_json::Value::from(text.as_str()).to_string()).collect();
    format!("start: {}", texts.join(" | "))
}
