//! The positions of the assistant's answers in the text of a conversation.
//!
//! Input: a template and messages. Output: the text of the conversation and the span of each
//! answer. Invariants: the text is exactly the template's text. A span that rendering does not
//! prove is refused, never guessed.
//!
//! A template with `{% generation %}` blocks marks the spans itself. For other templates, the
//! answer is replaced by a mark. The text after the mark is the text after the answer. The answer
//! starts where the text before the mark differs from the generation prompt. For example, the
//! prompt of a reasoning model continues with `<think>`, but the turn continues with its content.

use super::jinja::{ChatTemplate, MarkedText};
use super::{AnswerSpan, Answers, Message};
use crate::base::{Diagnostic, Diagnostics};

const ASSISTANT: &str = "assistant";

/// Fields of a message that templates write like the content. The mark replaces them.
const CONTENT_FIELDS: [&str; 3] = ["content", "reasoning_content", "reasoning"];

impl ChatTemplate {
    /// Finds the answers of a conversation.
    ///
    /// # Errors
    /// The template refuses the conversation, there is no answer, or the span of an answer cannot
    /// be found.
    pub(crate) fn answers(&self, messages: &[Message]) -> Result<Answers, Diagnostics> {
        let refused = |message: &str| Diagnostic::new(self.file(), message);
        if messages.iter().all(|message| message.role != ASSISTANT) {
            return Err(refused("there is nothing to learn from messages without one of an assistant").into());
        }
        if let Some(MarkedText { text, blocks }) = self.generation_blocks(messages)? {
            if blocks.is_empty() {
                return Err(refused("its generation blocks write nothing of these messages").into());
            }
            let spans = blocks.into_iter().map(|bytes| AnswerSpan { bytes, has_end: true }).collect();
            return Ok(Answers { text, spans });
        }
        let text = self.transcript(messages)?;
        let Some(marks) = free_marks(messages, &text) else {
            return Err(refused("the messages have every character of Unicode's private use").into());
        };
        let conversation = RenderedConversation { template: self, messages, text: &text, marks };
        let spoken = (0..messages.len()).filter(|at| messages[*at].role == ASSISTANT);
        let spans = spoken.map(|at| conversation.span(at)).collect::<Result<_, _>>()?;
        Ok(Answers { text, spans })
    }
}

/// Returns two private-use characters that occur neither in the messages nor in their text.
fn free_marks(messages: &[Message], text: &str) -> Option<[char; 2]> {
    let has = |message: &Message, mark: char| {
        message.content.contains(mark) || message.fields.iter().any(|field| field.json.contains(mark))
    };
    let is_free = |mark: &char| !text.contains(*mark) && !messages.iter().any(|message| has(message, *mark));
    let mut free = ('\u{E000}'..='\u{F8FF}').filter(is_free);
    Some([free.next()?, free.next()?])
}

struct RenderedConversation<'a> {
    template: &'a ChatTemplate,
    messages: &'a [Message],
    /// Text of the whole conversation.
    text: &'a str,
    /// Two unused characters: a mark for the answer, and a mark for the message before it.
    marks: [char; 2],
}

/// The text before and after an answer.
struct Around {
    before: String,
    after: String,
}

impl RenderedConversation<'_> {
    fn span(&self, message_index: usize) -> Result<AnswerSpan, Diagnostics> {
        let found = match self.by_mark(message_index)? {
            Some(span) => Some(span),
            None => self.by_turn(message_index)?,
        };
        found.ok_or_else(|| {
            Diagnostic::new(
                self.template.file(),
                "the start or the end of an answer cannot be found by rendering",
            )
            .expected(format!(
                "message {} to begin as the prompt for an answer begins, and nothing else to change with it",
                message_index + 1
            ))
            .found(format!("{:?}", self.text))
            .help("mark the answers in the template with {% generation %} and {% endgeneration %}")
            .into()
        })
    }

    /// Finds the span of an answer by the text around a mark that replaces it.
    fn by_mark(&self, at: usize) -> Result<Option<AnswerSpan>, Diagnostics> {
        let marked = Message::new(ASSISTANT, self.marks[0]);
        let Some(Around { before, after }) = self.around(self.messages, at, marked) else { return Ok(None) };
        let Some(start) = self.start(at, &before) else { return Ok(None) };
        let Some(end) = self.text.len().checked_sub(after.len()) else { return Ok(None) };
        let is_proven =
            start <= end && self.text.starts_with(&before[..start]) && self.text.ends_with(&after);
        Ok(is_proven.then_some(AnswerSpan { bytes: start..end, has_end: false }))
    }

    /// Finds the span of an answer with tool calls. Later messages need the calls, so the answer
    /// ends with its turn.
    fn by_turn(&self, message_index: usize) -> Result<Option<AnswerSpan>, Diagnostics> {
        let message = &self.messages[message_index];
        if message.fields.is_empty() {
            return Ok(None);
        }
        let turn = self.template.transcript(&self.messages[..=message_index])?;
        let turn = turn.trim_end();
        let mut marked = Message { content: self.marks[0].into(), ..message.clone() };
        marked.fields.retain(|field| !CONTENT_FIELDS.contains(&field.name.as_str()));
        let start = match self.around(self.messages, message_index, marked) {
            Some(Around { before, .. }) => {
                self.start(message_index, &before).filter(|start| self.text.starts_with(&before[..*start]))
            }
            None => {
                let prompt = self.template.render(&self.messages[..message_index])?;
                self.text.starts_with(&prompt).then_some(prompt.len())
            }
        };
        let start = start.filter(|start| *start <= turn.len() && self.text.starts_with(turn));
        Ok(start.map(|start| AnswerSpan { bytes: start..turn.len(), has_end: true }))
    }

    /// Replaces the message at `at` by `marked`, and returns the text around the mark. Returns
    /// `None` unless the template writes the mark exactly once.
    fn around(&self, messages: &[Message], at: usize, marked: Message) -> Option<Around> {
        let mut messages = messages.to_vec();
        messages[at] = marked;
        let text = self.template.transcript(&messages).ok()?;
        let (before, after) = text.split_once(self.marks[0])?;
        (!after.contains(self.marks[0]))
            .then(|| Around { before: before.to_owned(), after: after.to_owned() })
    }

    /// Returns the start of an answer, given `before`, the text before the mark that replaces it.
    fn start(&self, message_index: usize, before: &str) -> Option<usize> {
        let asked = &self.messages[..message_index];
        let prompt = self.template.render(asked).ok()?;
        let common = common_prefix(&prompt, before);
        if common == prompt.len() {
            return Some(common);
        }
        let plain = self.template.transcript(asked).ok()?;
        if before.starts_with(&plain) && common >= plain.len() {
            return Some(common);
        }
        self.start_after_message(message_index, before)
    }

    /// Finds the start of an answer if the template changes earlier messages when the conversation
    /// continues. Only the text after the previous message is compared.
    fn start_after_message(&self, message_index: usize, before: &str) -> Option<usize> {
        let mut messages = self.messages.to_vec();
        let previous = messages.get_mut(message_index.checked_sub(1)?)?;
        // Many templates trim white space.
        let words = previous.content.trim_end().len();
        previous.content.insert(words, self.marks[1]);
        let answer = Message::new(ASSISTANT, self.marks[0]);
        let behind = |text: &str| text.rsplit_once(self.marks[1]).map(|(_, behind)| behind.to_owned());
        let prompt = behind(&self.template.render(&messages[..message_index]).ok()?)?;
        let plain = behind(&self.template.transcript(&messages[..message_index]).ok()?)?;
        let header = behind(&self.around(&messages, message_index, answer)?.before)?;
        let common = common_prefix(&prompt, &header);
        let is_proven = common == prompt.len() || (header.starts_with(&plain) && common >= plain.len());
        (is_proven && before.ends_with(&header)).then(|| before.len() - header.len() + common)
    }
}

/// Returns the length in bytes of the common prefix of two texts.
fn common_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use tempfile::TempDir;

    use super::super::MessageField;
    use super::*;

    fn fixtures() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chat")
    }

    fn open(name: &str) -> ChatTemplate {
        let folder = TempDir::new().unwrap();
        std::fs::copy(fixtures().join(format!("{name}.jinja")), folder.path().join("chat_template.jinja"))
            .unwrap();
        let config = r#"{"bos_token": "<s>", "eos_token": "</s>"}"#;
        std::fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        ChatTemplate::open(folder.path()).unwrap()
    }

    fn answers(template: &ChatTemplate, messages: &[Message]) -> Vec<String> {
        let found = template.answers(messages).unwrap_or_else(|error| panic!("{error}"));
        found.spans.into_iter().map(|span| found.text[span.bytes].to_owned()).collect()
    }

    fn turns(turns: &[(&str, &str)]) -> Vec<Message> {
        turns.iter().map(|(role, content)| Message::new(*role, *content)).collect()
    }

    /// Checks two answers with every template of the fixtures that can write the conversation.
    #[test]
    fn answers_of_all_templates_are_found() {
        let messages =
            turns(&[("user", "who"), ("assistant", "God"), ("user", "and"), ("assistant", "<think>")]);
        let mut expected = vec![
            ("chatml_plain", ["God", "<think>"]),
            ("coder_xml_tools", ["God", "<think>"]),
            ("deepseek_r1_distill", ["God", "<think>"]),
            ("gemma", ["God", "<think>"]),
            ("gemma3_parts", ["God", "<think>"]),
            ("glm4", ["\n<think></think>\nGod", "\n<think></think>\n<think>"]),
            ("granite_documents", ["God", "<think>"]),
            ("harmony_channels", ["<|channel|>final<|message|>God", "<|channel|>final<|message|><think>"]),
            ("hermes_tool_use", ["God", "<think>"]),
            ("llama2_sys", [" God", " <think>"]),
            ("llama31_tools", ["God", "<think>"]),
            ("llama32_date", ["God", "<think>"]),
            ("mistral_tools", [" God", " <think>"]),
            ("mistral_v1", ["God", "<think>"]),
            ("phi3", ["God", "<think>"]),
            ("phi4_mini", ["God", "<think>"]),
            ("qwen25_tools", ["God", "<think>"]),
            ("qwen3_thinking", ["God", "<think>\n\n</think>\n\n<think>"]),
            ("qwq_reasoning", ["God", "<think>"]),
            (
                "smol_generation",
                ["<|im_start|>assistant\nGod<|im_end|>\n", "<|im_start|>assistant\n<think><|im_end|>\n"],
            ),
            ("zephyr_lines", ["God", "<think>"]),
        ];
        for (name, expected) in &expected {
            assert_eq!(answers(&open(name), &messages), expected, "{name}");
        }
        // This template puts the documents before the generation prompt, but at the end of a
        // finished conversation. So the start of the answer cannot be found.
        let message = open("command_r_rag").answers(&messages).unwrap_err().to_string();
        assert!(
            message.contains("the start or the end of an answer cannot be found by rendering"),
            "{message}"
        );
        // The other two files are not templates of conversations.
        expected.extend(["command_r_rag", "expressions", "methods"].map(|name| (name, ["", ""])));
        let files = std::fs::read_dir(fixtures()).unwrap().map(|file| file.unwrap().path());
        let names = files.filter(|path| path.extension().is_some_and(|extension| extension == "jinja"));
        let mut names: Vec<String> =
            names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }

    #[test]
    fn answers_that_call_tools_are_whole() {
        let call = r#"[{"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}}]"#;
        let field = |name: &str, json: &str| MessageField { name: name.to_owned(), json: json.to_owned() };
        let mut messages = turns(&[
            ("user", "who"),
            ("assistant", ""),
            ("tool", "7"),
            ("assistant", "God"),
            ("user", "and"),
        ]);
        messages[1].fields = vec![field("tool_calls", call)];
        messages[2].fields = vec![field("tool_call_id", "\"abcdefghi\"")];
        for (name, expected) in [
            (
                "qwen25_tools",
                ["<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2}}\n</tool_call>", "God"],
            ),
            (
                "qwen3_thinking",
                ["<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2}}\n</tool_call>", "God"],
            ),
            ("llama31_tools", ["{\"name\": \"f\", \"parameters\": {\"b\": 1, \"a\": 2}}", "God"]),
            (
                "mistral_tools",
                [
                    "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2}, \"id\": \"abcdefghi\"}]</s>",
                    " God",
                ],
            ),
        ] {
            assert_eq!(answers(&open(name), &messages), expected, "{name}");
        }
    }
}
