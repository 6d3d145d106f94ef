//! The chat template of a build without the feature `text`: there is none, so nothing can be asked
//! of it.

use std::path::Path;
use std::time::SystemTime;

use super::{Answers, Message};
use crate::base::{Diagnostic, Diagnostics};

/// A model's chat template, which this build cannot open.
#[derive(Debug)]
pub enum ChatTemplate {}

impl ChatTemplate {
    /// Says that there is none.
    ///
    /// # Errors
    /// Always.
    pub fn open(dir: &Path) -> Result<Self, Diagnostics> {
        Err(Diagnostic::new(dir.display().to_string(), "this build reads no chat templates")
            .help("build ascend-tp with its feature `text`")
            .into())
    }

    /// Returns the template with another time of `strftime_now`.
    #[must_use]
    pub const fn with_time(self, _time: SystemTime) -> Self {
        match self {}
    }

    /// Sets a variable.
    ///
    /// # Errors
    /// There are none, as there is no template.
    pub const fn set_variable(&mut self, _name: &str, _json: &str) -> Result<(), Diagnostics> {
        match *self {}
    }

    /// Finds the answers of a conversation.
    ///
    /// # Errors
    /// There are none, as there is no template.
    pub(crate) const fn answers(&self, _messages: &[Message]) -> Result<Answers, Diagnostics> {
        match *self {}
    }

    /// The text of a conversation, up to where the model's answer begins.
    ///
    /// # Errors
    /// There are none, as there is no template.
    pub const fn render(&self, _messages: &[Message]) -> Result<String, Diagnostics> {
        match *self {}
    }

    /// The text of a conversation as it was.
    ///
    /// # Errors
    /// There are none, as there is no template.
    pub const fn transcript(&self, _messages: &[Message]) -> Result<String, Diagnostics> {
        match *self {}
    }

    /// Returns the name of the template's file.
    #[must_use]
    pub const fn file(&self) -> &'static str {
        match *self {}
    }
}
