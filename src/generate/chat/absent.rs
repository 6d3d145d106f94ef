//! The chat template of a build without the feature `text`. It can never be opened.

use std::path::Path;
use std::time::SystemTime;

use super::{Answers, Message};
use crate::base::{Diagnostic, Diagnostics};

/// A chat template, which this build cannot open.
#[derive(Clone, Debug)]
pub enum ChatTemplate {}

impl ChatTemplate {
    /// Returns an error, because this build has no templates.
    ///
    /// # Errors
    /// Always.
    pub fn open(dir: &Path) -> Result<Self, Diagnostics> {
        Err(Diagnostic::new(dir.display().to_string(), "this build reads no chat templates")
            .help("build ascend-tp with its feature `text`")
            .into())
    }

    /// Returns an error, because this build has no templates.
    ///
    /// # Errors
    /// Always.
    pub fn open_file(_dir: &Path, file: &Path) -> Result<Self, Diagnostics> {
        Self::open(file)
    }

    /// Returns the template with another time of `strftime_now`.
    #[must_use]
    pub const fn with_time(self, _time: SystemTime) -> Self {
        match self {}
    }

    /// Sets a variable of the template.
    ///
    /// # Errors
    /// Never, because no template exists.
    pub const fn set_variable(&mut self, _name: &str, _json: &str) -> Result<(), Diagnostics> {
        match *self {}
    }

    /// Finds the answers of a conversation.
    ///
    /// # Errors
    /// Never, because no template exists.
    pub(crate) const fn answers(&self, _messages: &[Message]) -> Result<Answers, Diagnostics> {
        match *self {}
    }

    /// Returns the text of a conversation, up to the start of the model's answer.
    ///
    /// # Errors
    /// Never, because no template exists.
    pub const fn render(&self, _messages: &[Message]) -> Result<String, Diagnostics> {
        match *self {}
    }

    /// Returns the text of a finished conversation.
    ///
    /// # Errors
    /// Never, because no template exists.
    pub const fn transcript(&self, _messages: &[Message]) -> Result<String, Diagnostics> {
        match *self {}
    }

    /// Returns the name of the template's file.
    #[must_use]
    pub const fn file(&self) -> &str {
        match *self {}
    }
}
