//! The prompts of a command, from options, files or standard input, as plain text or as chat
//! messages.

use std::io::Read as _;
use std::path::Path;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::generate::chat::Message;
use ascend_tp::generate::tokenizer::Tokenizer;

use super::arguments::GenerateOptions;

const DEFAULT: &str = "In the beginning";

#[derive(Debug)]
pub(super) struct PromptInput {
    pub(super) text: String,
    pub(super) ids: Vec<u32>,
    /// The option of the prompt, for messages.
    pub(super) place: String,
}

fn texts(options: &GenerateOptions, problems: &mut Diagnostics) -> Vec<(String, String)> {
    let given = options.prompts.iter().enumerate();
    let mut texts: Vec<(String, String)> =
        given.map(|(index, text)| (format!("--prompt {}", index + 1), text.clone())).collect();
    for path in &options.prompt_files {
        let place = format!("--prompt-file {}", path.display());
        match read(path) {
            Ok(text) => texts.push((place, text)),
            Err(error) => problems.push(Diagnostic::new(place, "cannot be read").found(error)),
        }
    }
    if options.prompts.is_empty() && options.prompt_files.is_empty() {
        texts.push(("--prompt 1".to_owned(), DEFAULT.to_owned()));
    }
    texts
}

/// Reads a file or standard input, without the final newline.
fn read(path: &Path) -> std::io::Result<String> {
    if path != Path::new("-") {
        return Ok(without_last_newline(std::fs::read_to_string(path)?));
    }
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text)?;
    Ok(without_last_newline(text))
}

/// Removes the final newline, which editors add to a file.
fn without_last_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

/// Encodes all prompts and adds their problems to `problems`.
pub(super) fn read_all(
    options: &GenerateOptions,
    folder: &Path,
    tokenizer: Option<&Tokenizer>,
    problems: &mut Diagnostics,
) -> Vec<PromptInput> {
    let template = options.chat.then(|| options.template.open(folder)).transpose();
    let template = template.unwrap_or_else(|found| {
        problems.append(found);
        None
    });
    let texts = texts(options, problems);
    // The missing tokenizer or template has been reported.
    let (Some(tokenizer), true) = (tokenizer, template.is_some() == options.chat) else { return Vec::new() };
    let mut asked = Vec::with_capacity(texts.len());
    for (place, text) in texts {
        let encoded = match &template {
            None => tokenizer.encode(&text),
            Some(template) => {
                let system = options.system.iter().map(|system| Message::new("system", system));
                let messages: Vec<Message> = system.chain([Message::new("user", &text)]).collect();
                template.render(&messages).and_then(|text| tokenizer.encode_whole(&text))
            }
        };
        match encoded {
            Ok(ids) => asked.push(PromptInput { text, ids, place }),
            Err(found) => found.items().iter().for_each(|problem| {
                problems.push(Diagnostic { place: format!("{place}: {}", problem.place), ..problem.clone() });
            }),
        }
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_at_the_end_of_a_file_is_dropped() {
        let texts = ["a", "a\n", "a\n\n", "a\r\n", "a\r", "\na", "\n", ""];
        let read = texts.map(|text| without_last_newline(text.to_owned()));
        assert_eq!(read, ["a", "a", "a\n", "a", "a\r", "\na", "", ""]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "And God said\n").unwrap();
        assert_eq!(super::read(file.path()).unwrap(), "And God said");
    }
}
