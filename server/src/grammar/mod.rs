//! Grammars that an answer must match, as masks of tokens.
//!
//! - Input: a [`Grammar`], and the bytes of the model's tokens.
//! - Output: a [`Constraint`] per sequence, which returns the tokens that may follow.
//! - Invariants: a mask has a token if and only if the text with the token is the beginning of a
//!   match, or the token ends a complete match. Sequences do not share state.
//! - Not here: the choice of a token, and the format of tool calls ([`crate::output`]).

mod schema;

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ascend_tp::Diagnostics;
use ascend_tp::base::Diagnostic;
use ascend_tp::generate::tokenizer::Vocabulary;
use ascend_tp::generate::{Constraint, ConstraintCompiler, Grammar};
use llguidance::api::{StopReason, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory, regex_to_lark};
use serde_json::{Value, json};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

use crate::fields::{MAX_PROBLEMS, short};
use crate::output::{CallCount, ForcedTool, ReasoningParserKind, ToolParserKind, literal};

/// Maximum number of compiled grammars that are kept.
const CACHED: usize = 256;

/// Maximum length of the text of a grammar, in bytes.
pub(crate) const MAX_GRAMMAR_BYTES: usize = 128 << 10;

/// Size of the stack of a thread that compiles a grammar, in bytes. llguidance recurses once per
/// rule or `$ref` of a chain, so the longest text may need more than 100 MiB. The system commits
/// only pages that are used.
const STACK_BYTES: usize = 512 << 20;

/// Maximum length of a token in a text, in bytes. The trie cannot hold tokens of 1,024 bytes.
const LONGEST_TOKEN: usize = 1000;

/// Whitespace between the parts of a JSON text. Without a limit, a model may never stop to indent.
const WHITESPACE: &str = r"\r?\n[ \t]{0,16}|[ \t]{1,2}";

/// A compiler of grammars by llguidance. The last grammars are cached.
pub struct GrammarCompiler {
    factory: ParserFactory,
    /// Compiled grammars. The last used grammar is last.
    cache: Mutex<Vec<(Grammar, Matcher)>>,
}

impl fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarCompiler").finish_non_exhaustive()
    }
}

impl GrammarCompiler {
    /// Creates a compiler for the tokens of a model. `stop_ids` end an answer.
    ///
    /// # Errors
    /// The vocabulary has no stop id, or is too large.
    pub fn new(vocabulary: &Vocabulary, stop_ids: &[u32]) -> Result<Self, Diagnostics> {
        let place = || Diagnostic::new("grammar", "the vocabulary cannot be used for grammars");
        let size = u32::try_from(vocabulary.len()).map_err(|error| place().found(error))?;
        let stop_ids: Vec<u32> = stop_ids.iter().copied().filter(|id| *id < size).collect();
        let Some(first) = stop_ids.first() else {
            let problem = place().expected("a stop id that ends an answer").found("none");
            return Err(problem.help("set eos_token_id in generation_config.json").into());
        };
        let words: Vec<Vec<u8>> = (0..size).map(|id| word(vocabulary, id)).collect();
        let trie = TokTrie::from(&TokRxInfo::new(size, *first), &words).with_eos_tokens(&stop_ids);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = llguidance::earley::SlicedBiasComputer::json_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|error| place().found(error))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self { factory, cache: Mutex::default() })
    }

    /// Returns the grammar of an answer that calls tools.
    ///
    /// # Errors
    /// `tools` is empty, or a schema is malformed or not supported. All schemas are checked.
    pub fn forced_calls(
        &self,
        kind: ToolParserKind,
        tools: &[ForcedTool<'_>],
        count: CallCount,
    ) -> Result<Grammar, Diagnostics> {
        let mut problems = Diagnostics::new();
        if tools.is_empty() {
            problems.push(Diagnostic::new("tools", "a tool must be called, but no tool is given"));
        }
        let mut schemas = Vec::with_capacity(tools.len());
        for tool in tools {
            let mut parameters = tool.parameters.clone();
            if parameters.is_null() {
                parameters = json!({});
            }
            if let Value::Object(fields) = &mut parameters {
                fields.entry("type").or_insert_with(|| "object".into());
            }
            if problems.items().len() >= MAX_PROBLEMS {
                break;
            }
            match schema::prepare(&format!("tool {}", short(tool.name)), parameters, WHITESPACE) {
                Ok(schema) => schemas.push(schema),
                Err(error) => problems.append(error),
            }
        }
        let names: Vec<&str> = tools.iter().map(|tool| tool.name).collect();
        let lark = || kind.forced_grammar(&names, &schemas, count, &|text| self.special(text));
        if problems.is_empty() { Ok(Grammar::Lark(lark())) } else { Err(problems) }
    }

    /// Returns the grammar of an answer that reasons before a text of `grammar`.
    ///
    /// `starts_inside` is whether the prompt ends with the opening tag. If not, the model may leave
    /// the reasoning out.
    ///
    /// # Errors
    /// A JSON schema is malformed or not supported.
    pub fn after_reasoning(
        &self,
        kind: ReasoningParserKind,
        starts_inside: bool,
        grammar: &Grammar,
    ) -> Result<Grammar, Diagnostics> {
        check_size(grammar)?;
        let tags = kind.tags();
        let special = |text: &str| self.special(text);
        let open = literal(&tags, &special, tags[0]);
        let reasoning = match self.special(tags[1]) {
            Some(id) => format!("reasoning: REASONING <[{id}]>\nREASONING: /(?s:.*)/"),
            None => format!("reasoning[suffix={}]: /(?s:.*)/", Value::from(tags[1])),
        };
        let before = if starts_inside { "reasoning".to_owned() } else { format!("({open} reasoning)?") };
        let text = match grammar {
            Grammar::Json => format!("%json {}", json_object()),
            Grammar::JsonSchema(text) => format!("%json {}", schema::parse(text, WHITESPACE)?),
            Grammar::Regex(regex) => format!("/{}/", regex_to_lark(regex, "")),
            Grammar::Lark(lark) => format!("%lark {{\n{lark}\n}}"),
        };
        Ok(Grammar::Lark(format!(
            "start: {before} SPACE text\nSPACE: /\\n{{0,2}}/\ntext: {text}\n{reasoning}\n"
        )))
    }

    fn special(&self, text: &str) -> Option<u32> {
        self.factory.tok_env().tok_trie().get_special_token(text)
    }

    /// Returns a matcher at the beginning of a text. Compiles on a thread with a large stack.
    fn matcher(&self, grammar: &Grammar) -> Result<Matcher, Diagnostics> {
        check_size(grammar)?;
        let thread = std::thread::Builder::new().name("grammar".to_owned()).stack_size(STACK_BYTES);
        std::thread::scope(|scope| {
            let compiling = thread
                .spawn_scoped(scope, || self.matcher_on_this_stack(grammar))
                .map_err(|error| not_compiled(grammar).found(error))?;
            let compiled = compiling.join();
            compiled.unwrap_or_else(|panic| Err(not_compiled(grammar).found(message(&*panic)).into()))
        })
    }

    fn matcher_on_this_stack(&self, grammar: &Grammar) -> Result<Matcher, Diagnostics> {
        let parsed = top_level(grammar)?;
        let problem = || not_compiled(grammar);
        let parser = self.factory.create_parser(parsed);
        let parser = parser.map_err(|error| problem().found(format!("{error:#}")))?;
        let mut matcher = Matcher::new(Ok(parser));
        // The first mask fills the lexer's cache here, not on the engine's thread. It also shows
        // grammars that are too complex.
        matcher.compute_mask_or_eos().map_err(|error| problem().found(error))?;
        Ok(matcher)
    }
}

impl ConstraintCompiler for GrammarCompiler {
    fn compile(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, Diagnostics> {
        let lock = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = {
            let mut cache = lock();
            let at = cache.iter().position(|(known, _)| known == grammar);
            at.map(|at| {
                cache[at..].rotate_left(1);
                cache[cache.len() - 1].1.deep_clone()
            })
        };
        let matcher = match cached {
            Some(matcher) => matcher,
            None => {
                let matcher = self.matcher(grammar)?;
                let mut cache = lock();
                if cache.len() == CACHED {
                    cache.remove(0);
                }
                // A clone that shares the lexer would share its growing cache of states.
                cache.push((grammar.clone(), matcher.deep_clone()));
                matcher
            }
        };
        let trie = self.factory.tok_env().tok_trie();
        let stop_ids = trie.eos_tokens().to_vec();
        let words = trie.vocab_size().div_ceil(32);
        Ok(Box::new(GrammarConstraint { matcher, stop_ids, mask: vec![0; words], is_current: false }))
    }
}

/// A grammar at a position of one sequence.
struct GrammarConstraint {
    matcher: Matcher,
    stop_ids: Vec<u32>,
    mask: Vec<u32>,
    /// Whether `mask` is the mask of this position.
    is_current: bool,
}

impl fmt::Debug for GrammarConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarConstraint")
            .field("stop_reason", &self.matcher.stop_reason())
            .finish_non_exhaustive()
    }
}

impl Constraint for GrammarConstraint {
    fn mask(&mut self) -> Result<&[u32], Diagnostics> {
        if !self.is_current {
            let mask = self.matcher.compute_mask_or_eos().map_err(|error| {
                Diagnostic::new("grammar", "the tokens that may follow cannot be computed").found(error)
            })?;
            let words = self.mask.len();
            self.mask.copy_from_slice(&mask.as_slice()[..words]);
            self.is_current = true;
        }
        Ok(&self.mask)
    }

    fn accept(&mut self, token: u32) -> Result<(), Diagnostics> {
        self.is_current = false;
        let is_complete =
            self.matcher.is_stopped() && self.matcher.stop_reason() != StopReason::InternalError;
        if is_complete && self.stop_ids.contains(&token) {
            return Ok(());
        }
        self.matcher.consume_token(token).map_err(|error| {
            Diagnostic::new("grammar", "a token does not match the grammar")
                .found(format!("id {token}: {error}"))
                .into()
        })
    }
}

/// Returns the bytes of a token in the trie. Tokens without bytes are in no text.
fn word(vocabulary: &Vocabulary, id: u32) -> Vec<u8> {
    const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
    let bytes = vocabulary.bytes(id);
    if bytes.len() > LONGEST_TOKEN {
        Vec::new()
    } else if vocabulary.is_special(id) && !bytes.is_empty() {
        [&[MARKER], bytes].concat()
    } else if bytes.contains(&MARKER) {
        // The byte is in no UTF-8 text.
        Vec::new()
    } else {
        bytes.to_vec()
    }
}

fn json_object() -> Value {
    schema::with_whitespace(json!({"type": "object"}), WHITESPACE)
}

/// Returns the place of a grammar in messages.
fn place(grammar: &Grammar) -> &'static str {
    match grammar {
        Grammar::Json => "JSON object",
        Grammar::JsonSchema(_) => "JSON schema",
        Grammar::Regex(_) => "regular expression",
        Grammar::Lark(_) => "grammar",
    }
}

fn not_compiled(grammar: &Grammar) -> Diagnostic {
    Diagnostic::new(place(grammar), "the grammar cannot be compiled")
}

/// Checks the length of the text of a grammar.
fn check_size(grammar: &Grammar) -> Result<(), Diagnostics> {
    let (Grammar::JsonSchema(text) | Grammar::Regex(text) | Grammar::Lark(text)) = grammar else {
        return Ok(());
    };
    match text.len() {
        ..=MAX_GRAMMAR_BYTES => Ok(()),
        bytes => Err(too_long(place(grammar), bytes).into()),
    }
}

/// Returns the problem of a text of a grammar that is too long.
fn too_long(place: &str, bytes: usize) -> Diagnostic {
    let problem = Diagnostic::new(place, "the text of the grammar is too long");
    problem.expected(format!("at most {MAX_GRAMMAR_BYTES} bytes")).found(bytes)
}

fn top_level(grammar: &Grammar) -> Result<TopLevelGrammar, Diagnostics> {
    Ok(match grammar {
        Grammar::Json => TopLevelGrammar::from_json_schema(json_object()),
        Grammar::JsonSchema(text) => TopLevelGrammar::from_json_schema(schema::parse(text, WHITESPACE)?),
        Grammar::Regex(regex) => TopLevelGrammar::from_regex(regex),
        Grammar::Lark(lark) => TopLevelGrammar::from_lark(lark.clone()),
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}

#[cfg(test)]
mod tests;
