//! Tokenizer, chat template, grammars and answer formats of a model.
//!
//! - Input: an opened model, and perhaps another chat template.
//! - Output: [`ModelTexts`].
//! - Invariant: a model without a chat template, or without stop ids for grammars, can still serve
//!   requests that need none.

use std::path::Path;
use std::sync::Arc;

use ascend_tp::Diagnostics;
use ascend_tp::base::Diagnostic;
use ascend_tp::generate::chat::ChatTemplate;
use ascend_tp::generate::tokenizer::Vocabulary;
use ascend_tp::generate::{Model, Tokenizer};

use crate::grammar::GrammarCompiler;
use crate::output::{ReasoningParserKind, ToolParserKind};

/// Tokenizer, template, grammars and parsers of a model.
#[derive(Clone, Debug)]
pub struct ModelTexts {
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) vocabulary: Arc<Vocabulary>,
    /// The chat template, or the reason why chat requests are refused.
    pub template: Result<ChatTemplate, Diagnostics>,
    /// The compiler of grammars, or the reason why requests with grammars are refused.
    pub grammars: Result<Arc<GrammarCompiler>, Diagnostics>,
    /// Format of tool calls, if the model makes any.
    pub tool_parser: Option<ToolParserKind>,
    /// Format of reasoning, if the model writes any.
    pub reasoning_parser: Option<ReasoningParserKind>,
}

impl ModelTexts {
    /// Opens the files of a model. `template` replaces its chat template. The formats of answers
    /// are those that the template shows.
    ///
    /// # Errors
    /// The model has no tokenizer, or `template` is no template.
    pub fn open(model: &Model, template: Option<&Path>) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let tokenizer = keep(model.tokenizer(), &mut problems);
        let opened = match template {
            None => ChatTemplate::open(&model.dir).map_err(|found| helped(&found)),
            Some(file) => ChatTemplate::open_file(&model.dir, file).inspect_err(|found| {
                problems.append(found.clone());
            }),
        };
        let (Some(tokenizer), true) = (tokenizer, problems.is_empty()) else { return Err(problems) };
        let vocabulary = tokenizer.vocabulary();
        let text = opened.as_ref().map_or("", ChatTemplate::text);
        Ok(Self {
            tool_parser: ToolParserKind::from_template(text),
            reasoning_parser: ReasoningParserKind::from_template(text),
            grammars: GrammarCompiler::new(&vocabulary, &model.stop_ids()).map(Arc::new),
            tokenizer,
            vocabulary: Arc::new(vocabulary),
            template: opened,
        })
    }
}

fn keep<T>(found: Result<T, Diagnostics>, problems: &mut Diagnostics) -> Option<T> {
    found.map_err(|found| problems.append(found)).ok()
}

/// Returns problems with the option that helps.
fn helped(found: &Diagnostics) -> Diagnostics {
    let mut problems = Diagnostics::new();
    for problem in found.items() {
        problems.push(problem.clone().help("start the server with --chat-template FILE"));
    }
    problems
}

/// Returns the problem of a chat request to a model without a template.
pub(crate) fn without_template(found: &Diagnostics) -> Diagnostics {
    let mut problems = Diagnostics::new();
    for problem in found.items() {
        let message = format!("needs a chat template: {}: {}", problem.place, problem.message);
        let help = problem.help.clone().unwrap_or_default();
        problems.push(Diagnostic::new("messages", message).help(help));
    }
    problems
}
