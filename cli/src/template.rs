//! The options of chat templates.
//!
//! Input: the options and the folder of a model or tokenizer. Output: the chat template with its
//! variables. All wrong options are reported together.

use std::path::{Path, PathBuf};

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::generate::chat::ChatTemplate;
use clap::Args;

/// Options of the chat template and its variables.
#[derive(Clone, Debug, Args)]
pub(super) struct TemplateOptions {
    /// File with a chat template in Jinja [default: the template in the tokenizer's folder]
    #[arg(long, value_name = "FILE", help_heading = "Chat template")]
    chat_template: Option<PathBuf>,
    /// JSON file with the list of tools for the chat template
    #[arg(long, value_name = "FILE", help_heading = "Chat template")]
    tools: Option<PathBuf>,
    /// Disable thinking of a reasoning model: sets enable_thinking to false for the chat template
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, help_heading = "Chat template")]
    no_thinking: bool,
    /// Variable of the chat template, such as date_string='"01 Jan 2025"' (vLLM:
    /// chat_template_kwargs). Can be repeated
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long = "template-arg", value_name = "KEY=JSON", help_heading = "Chat template")]
    template_args: Vec<String>,
}

impl TemplateOptions {
    /// Returns whether all options have their defaults.
    pub(super) fn is_default(&self) -> bool {
        let Self { chat_template, tools, no_thinking, template_args } = self;
        chat_template.is_none() && tools.is_none() && !no_thinking && template_args.is_empty()
    }

    /// Opens the chat template like [`Self::open`], or returns `None` if all options have their
    /// defaults.
    pub(super) fn open_changed(&self, folder: &Path) -> Result<Option<ChatTemplate>, Diagnostics> {
        if self.is_default() { Ok(None) } else { self.open(folder).map(Some) }
    }

    /// Opens the chat template and sets its variables.
    pub(super) fn open(&self, folder: &Path) -> Result<ChatTemplate, Diagnostics> {
        let mut template = match &self.chat_template {
            Some(file) => ChatTemplate::open_file(folder, file)?,
            None => ChatTemplate::open(folder)?,
        };
        let mut problems = Diagnostics::new();
        if let Some(path) = &self.tools {
            let set = read_tools(path)
                .map_err(Diagnostics::from)
                .and_then(|tools| template.set_variable("tools", &tools));
            set.unwrap_or_else(|found| problems.append(found));
        }
        if self.no_thinking {
            template.set_variable("enable_thinking", "false")?;
        }
        for argument in &self.template_args {
            let problem = |message: &str| Diagnostic::new(format!("--template-arg {argument}"), message);
            let expected = "KEY=JSON, with a text in quotes: date_string='\"01 Jan 2025\"'";
            match argument.split_once('=') {
                None => problems.push(problem("not a variable with a value").expected(expected)),
                Some((name, json)) => {
                    if template.set_variable(name, json).is_err() {
                        problems.push(problem("the value is not JSON").expected(expected).found(json));
                    }
                }
            }
        }
        problems.into_result(template)
    }
}

fn read_tools(path: &Path) -> Result<String, Diagnostic> {
    let problem = |message: &str| Diagnostic::new(format!("--tools {}", path.display()), message);
    let text = std::fs::read_to_string(path).map_err(|error| problem("cannot be read").found(error))?;
    match serde_json::from_str(&text) {
        Ok(serde_json::Value::Array(_)) => Ok(text),
        Ok(_) => {
            Err(problem("is not a list")
                .expected("a JSON list of tools, each with a name and its parameters"))
        }
        Err(error) => Err(problem("is not JSON").found(error)),
    }
}
