//! What a session can serve: checks of requests before they wait for the cards.
//!
//! - Input: a [`Request`].
//! - Output: the ids of its prompt, or all problems.
//! - Invariant: a request without problems can be served.

use std::sync::Arc;

use crate::base::{Diagnostic, Diagnostics};
use crate::config::AdapterSet;
use crate::program::models::Head;

use super::grammar::ConstraintCompiler;
use super::request::{Prompt, Request};
use super::tokenizer::Tokenizer;

/// Limits of a session.
#[derive(Clone, Debug)]
pub(super) struct RequestLimits {
    /// Number of ids of the model.
    pub(super) vocabulary: usize,
    /// Maximum number of tokens of a sequence. It is at most what the cache holds.
    pub(super) context: usize,
    pub(super) head: Head,
    /// Whether the session has programs for the log-probabilities of prompts.
    pub(super) scores_prompts: bool,
    /// The adapters that requests can choose.
    pub(super) adapters: Arc<AdapterSet>,
    /// Compiles the grammars of requests.
    pub(super) constraints: Option<Arc<dyn ConstraintCompiler>>,
    /// The tokenizer, or the reason it could not be loaded.
    pub(super) tokenizer: Result<Arc<Tokenizer>, Diagnostics>,
}

impl RequestLimits {
    /// Returns whether both sessions serve the same requests.
    pub(super) fn are_those_of(&self, other: &Self) -> bool {
        let key = |limits: &Self| {
            let Self { vocabulary, context, head, scores_prompts, .. } = *limits;
            (
                vocabulary,
                context,
                head,
                scores_prompts,
                Arc::clone(&limits.adapters),
                limits.constraints.is_some(),
                limits.tokenizer.is_ok(),
            )
        };
        key(self) == key(other)
    }

    /// Returns the ids of a request's prompt. `place` names the request in problems.
    pub(super) fn check(&self, place: &str, request: &Request, problems: &mut Diagnostics) -> Vec<u32> {
        let within = |found: Diagnostics, problems: &mut Diagnostics| {
            for problem in found.items() {
                problems.push(Diagnostic { place: format!("{place}: {}", problem.place), ..problem.clone() });
            }
        };
        for checked in [request.sampling.check(), request.sampling.check_ids(self.vocabulary)] {
            checked.unwrap_or_else(|found| within(found, problems));
        }
        if let Some(most) = request.max_new_tokens.filter(|most| *most < request.sampling.min_tokens) {
            let problem = Diagnostic::new(place, "min_tokens is above the maximum number of new tokens");
            problems.push(problem.expected(format!("at most {most}")).found(request.sampling.min_tokens));
        }
        if self.head == Head::LastToken && !request.is_likeliest() {
            let problem =
                Diagnostic::new(place, "needs logits, but the session returns only the likeliest token");
            problems.push(problem.help("make the session with head(Head::LastLogits)"));
        }
        if request.prompt_log_probabilities.is_some() && !self.scores_prompts {
            let problem = Diagnostic::new(place, "the session returns no log-probabilities of prompts");
            problems.push(problem.help("make the session with prompt_log_probabilities()"));
        }
        if let Some(name) = request.adapter.as_deref().filter(|name| self.adapters.index(name).is_none()) {
            let known: Vec<&str> = self.adapters.names().collect();
            let problem = Diagnostic::new(place, "chooses an adapter that the model does not have");
            let expected = if known.is_empty() { "none".to_owned() } else { known.join(" or ") };
            problems.push(problem.expected(expected).found(name));
        }
        match (&request.grammar, &self.constraints) {
            (None, _) => {}
            (Some(_), None) => {
                let problem = Diagnostic::new(place, "the session compiles no grammars");
                problems.push(problem.help("make the session with constraints(compiler)"));
            }
            (Some(_), Some(_)) if request.ignore_eos => {
                problems.push(Diagnostic::new(place, "a grammar and ignore_eos exclude each other"));
            }
            (Some(grammar), Some(compiler)) => {
                compiler.compile(grammar).map_or_else(|found| within(found, problems), drop);
            }
        }
        if request.stop_texts.iter().any(String::is_empty) {
            problems
                .push(Diagnostic::new(place, "an empty stop text ends every sequence").expected("a text"));
        }
        let needs_text = !request.stop_texts.is_empty() || matches!(request.prompt, Prompt::Text(_));
        if let (true, Err(missing)) = (needs_text, &self.tokenizer) {
            within(missing.clone(), problems);
        }
        let ids = match &request.prompt {
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Text(text) => match self.tokenizer.as_ref().map(|tokenizer| tokenizer.encode(text)) {
                Ok(Ok(ids)) => ids,
                Ok(Err(found)) => {
                    within(found, problems);
                    return Vec::new();
                }
                Err(_) => return Vec::new(),
            },
        };
        if ids.is_empty() {
            problems.push(Diagnostic::new(place, "has no token").help("give at least one word"));
        }
        if ids.len() >= self.context {
            let problem = Diagnostic::new(place, "is longer than the session supports");
            problems.push(problem.expected(format!("at most {} tokens", self.context - 1)).found(ids.len()));
        }
        let new = request.max_new_tokens.unwrap_or(1);
        if new == 0 || ids.len().saturating_add(new) > self.context.max(ids.len() + 1) {
            let problem = Diagnostic::new(place, "asks for no tokens, or for more than the session supports");
            let room = self.context.saturating_sub(ids.len());
            problems.push(problem.expected(format!("1 to {room} new tokens")).found(new));
        }
        if let Some(id) = ids.iter().find(|id| **id as usize >= self.vocabulary) {
            let problem = Diagnostic::new(place, "has a token id outside the vocabulary");
            problems.push(problem.expected(format!("below {}", self.vocabulary)).found(id));
        }
        ids
    }
}
