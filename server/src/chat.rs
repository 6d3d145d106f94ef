//! Chats of all APIs: the prompt, the grammar, and the parsed answer.
//!
//! - Input: [`Settings`] and a [`Conversation`].
//! - Output: a request of the library, and a [`ChatAnswer`], which turns its events into parts.
//! - Invariants: the parts of a choice add up to its message. A part never has half of a character.
//! - Not here: JSON of answers (`openai::chat`, `anthropic`).

use std::sync::Arc;

use ascend_tp::Diagnostics;
use ascend_tp::base::Diagnostic;
use ascend_tp::generate::{ConstraintCompiler as _, Finish, Grammar, LogProbabilities, Request};

use crate::error::ApiError;
use crate::fields::RequestFields;
use crate::generation::{EndEvent, TokenEvent};
use crate::openai::messages::{Conversation, Tool, ToolChoice};
use crate::openai::sampling::Settings;
use crate::openai::{Usage, last_text};
use crate::output::{AnswerFormat, AnswerParser, AnswerPart, CallCount, ForcedTool, ToolParserKind};
use crate::state::ServerState;
use crate::texts::without_template;
use crate::visible::ShownTokens;

/// The settings and messages of a chat.
#[derive(Debug)]
pub(crate) struct ChatPlan {
    pub(crate) settings: Settings,
    pub(crate) conversation: Conversation,
    /// Number of most likely tokens to return, if log-probabilities are requested.
    pub(crate) log_probabilities: Option<usize>,
    pub(crate) calls: CallCount,
    /// Whether special tokens are added around the text of the template.
    pub(crate) adds_special: bool,
}

/// The choices of an answer.
#[derive(Debug)]
pub(crate) struct ChatAnswer {
    state: Arc<ServerState>,
    /// Special tokens that are texts of the answer.
    pub(crate) shown: ShownTokens,
    calls: CallCount,
    is_named: bool,
    choices: Vec<ChatChoice>,
    pub(crate) seed: u64,
    pub(crate) usage: Usage,
}

#[derive(Debug)]
struct ChatChoice {
    /// None after the end.
    parser: Option<AnswerParser>,
    has_calls: bool,
}

/// The parts that an event adds to a choice.
#[derive(Debug)]
pub(crate) struct ChatDelta {
    pub(crate) choice: usize,
    pub(crate) parts: Vec<AnswerPart>,
    /// A token with its log-probabilities.
    pub(crate) token: Option<(u32, LogProbabilities)>,
    pub(crate) end: Option<ChatEnd>,
}

/// The end of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChatEnd {
    pub(crate) finish: Finish,
    /// Whether the answer has tool calls.
    pub(crate) has_calls: bool,
    /// Whether the request named the function that is called.
    pub(crate) is_named: bool,
}

impl ChatPlan {
    /// Renders, tokenizes and checks the chat. Problems of `fields` count too.
    ///
    /// # Errors
    /// All problems of the request, or those of its template.
    pub(crate) fn prepare(
        self,
        state: &Arc<ServerState>,
        mut fields: RequestFields,
    ) -> Result<(Request, ChatAnswer), ApiError> {
        let texts = &state.texts;
        let kind = self.tool_parser(state, &mut fields);
        if self.conversation.tool_choice.is_forced() && self.settings.grammar.is_some() {
            fields.problem("tool_choice", "a forced call cannot be used together with another grammar");
        }
        if self.conversation.tool_choice.is_forced() && self.settings.ignore_eos {
            fields.problem("ignore_eos", "cannot be used together with a forced call");
        }
        if self.settings.max_tokens == Some(0) {
            fields.problem("max_tokens", "must be at least 1");
        }
        fields.check()?;
        let template = texts.template.as_ref();
        let template = template.map_err(|found| ApiError::of_fields(&without_template(found)))?;
        let text = self.conversation.render(template)?;
        let tokenizer = &texts.tokenizer;
        let ids = if self.adds_special { tokenizer.encode(&text) } else { tokenizer.encode_whole(&text) };
        let ids = ids.map_err(|found| ApiError::of_fields(&found))?;
        self.settings.check_length(&mut fields, "messages", ids.len(), state.context, usize::MAX);
        let reasoning = texts.reasoning_parser;
        let starts_inside = reasoning.is_some_and(|kind| kind.starts_inside(&text));
        let place = self.settings.grammar.as_ref().map_or("tools", |grammar| grammar.field);
        let grammar = self.grammar(state, kind, starts_inside).unwrap_or_else(|found| {
            fields.problems_in(place, &found);
            None
        });
        let usage = Usage { prompt_tokens: ids.len(), ..Usage::default() };
        let mut request = self.settings.request(state, ids, self.log_probabilities);
        request.grammar = grammar;
        let seed = self.settings.sampling.seed;
        // Ids of calls differ in all turns of a conversation, also with one seed.
        let format = || AnswerFormat { reasoning, starts_inside, tools: kind, id_seed: rand::random() };
        let choices = (0..self.settings.samples)
            .map(|_| ChatChoice { parser: Some(AnswerParser::new(format())), has_calls: false });
        let answer = ChatAnswer {
            state: Arc::clone(state),
            shown: self.shown(state, kind),
            calls: self.calls,
            is_named: matches!(self.conversation.tool_choice, ToolChoice::Named(_)),
            choices: choices.collect(),
            seed,
            usage,
        };
        fields.finish(Some((request, answer)))
    }

    /// Returns the format of tool calls, if the answer may have any.
    fn tool_parser(&self, state: &ServerState, fields: &mut RequestFields) -> Option<ToolParserKind> {
        if self.conversation.tools.is_empty() {
            return None;
        }
        if state.texts.tool_parser.is_none() {
            let problem = Diagnostic::new("tools", "the chat template shows no known format of tool calls");
            fields.problems.push(problem.help("start the server with --tool-parser NAME"));
        }
        state.texts.tool_parser
    }

    /// Returns the grammar of the answer, compiled once to find its problems.
    fn grammar(
        &self,
        state: &ServerState,
        kind: Option<ToolParserKind>,
        starts_inside: bool,
    ) -> Result<Option<Grammar>, Diagnostics> {
        let is_called = |tool: &&Tool| match &self.conversation.tool_choice {
            ToolChoice::Named(name) => tool.name == *name,
            _ => true,
        };
        let called = self.conversation.tools.iter().filter(is_called);
        let called: Vec<ForcedTool<'_>> =
            called.map(|tool| ForcedTool { name: &tool.name, parameters: &tool.parameters }).collect();
        let forced = kind.filter(|_| self.conversation.tool_choice.is_forced());
        if forced.is_none() && self.settings.grammar.is_none() {
            return Ok(None);
        }
        let grammars = state.texts.grammars.as_ref().map_err(Clone::clone)?;
        let grammar = match (forced, &self.settings.grammar) {
            (Some(kind), _) => grammars.forced_calls(kind, &called, self.calls)?,
            (None, Some(grammar)) => grammar.grammar.clone(),
            (None, None) => return Ok(None),
        };
        let grammar = match state.texts.reasoning_parser {
            Some(kind) => grammars.after_reasoning(kind, starts_inside, &grammar)?,
            None => grammar,
        };
        grammars.compile(&grammar)?;
        Ok(Some(grammar))
    }

    fn shown(&self, state: &ServerState, kind: Option<ToolParserKind>) -> ShownTokens {
        if self.settings.shows_special {
            return ShownTokens::All;
        }
        let markers = kind.map_or(&[][..], ToolParserKind::special_texts).iter().copied();
        let tags = state.texts.reasoning_parser.into_iter().flat_map(|kind| kind.tags());
        let ids = markers.chain(tags).filter_map(|text| state.texts.tokenizer.id_of(text));
        ShownTokens::These(ids.filter(|id| state.texts.vocabulary.is_special(*id)).collect())
    }
}

impl ChatAnswer {
    /// Returns the parts that a token adds.
    pub(crate) fn token(&mut self, token: TokenEvent) -> ChatDelta {
        let TokenEvent { choice, id, text, log_probabilities } = token;
        self.usage.new_tokens += 1;
        let parser = self.choices[choice].parser.as_mut();
        let parts = parser.map(|parser| parser.push(&text)).unwrap_or_default();
        let parts = self.wanted(choice, parts);
        ChatDelta { choice, parts, token: log_probabilities.map(|found| (id, found)), end: None }
    }

    /// Returns the parts that the end of a choice adds.
    pub(crate) fn end(&mut self, EndEvent { choice, text, sequence }: EndEvent) -> ChatDelta {
        let text = last_text(&self.state, &sequence, &text);
        let mut parts = Vec::new();
        if let Some(mut parser) = self.choices[choice].parser.take() {
            parts.extend(parser.push(&text));
            parts.extend(parser.finish());
        }
        let parts = self.wanted(choice, parts);
        self.usage.sequence_ends(&sequence, choice);
        let ChatChoice { has_calls, .. } = self.choices[choice];
        let end = Some(ChatEnd { finish: sequence.finish, has_calls, is_named: self.is_named });
        ChatDelta { choice, parts, token: None, end }
    }

    /// Returns the parts without calls that the request does not want.
    fn wanted(&mut self, choice: usize, mut parts: Vec<AnswerPart>) -> Vec<AnswerPart> {
        let most = if self.calls == CallCount::One { 1 } else { usize::MAX };
        parts.retain(|part| match part {
            AnswerPart::Text(_) | AnswerPart::Reasoning(_) => true,
            AnswerPart::ToolCallStart { index, .. } | AnswerPart::ToolCallArguments { index, .. } => {
                self.choices[choice].has_calls = true;
                *index < most
            }
        });
        parts
    }

    /// Returns the number of choices.
    pub(crate) const fn len(&self) -> usize {
        self.choices.len()
    }

    pub(crate) const fn state(&self) -> &Arc<ServerState> {
        &self.state
    }
}
