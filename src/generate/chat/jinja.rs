//! Chat templates in Jinja, with the variables of transformers.
//!
//! Input: the folder of a checkpoint, and optionally another template file. Output: a
//! [`ChatTemplate`], which writes conversations.

use std::collections::BTreeMap;
use std::io::ErrorKind as IoErrorKind;
use std::ops::Range;
use std::path::Path;
use std::time::SystemTime;

use minijinja::value::Kwargs;
use minijinja::{Environment, Error, State, Value};
use serde_json::Value as Json;

use super::environment::{TemplateClock, environment};
use super::{Message, MessageField, blocks, json};
use crate::base::{Diagnostic, Diagnostics};
use crate::weights::file;

const FILE: &str = "chat_template.jinja";
const CONFIG: &str = "tokenizer_config.json";
const TOKENS: &str = "special_tokens_map.json";
/// File of the second template in transformers, for requests with tools.
const TOOL_USE_FILE: &str = "additional_chat_templates/tool_use.jinja";

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// Names of special tokens that are variables of templates.
const TOKEN_NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Noncharacters that mark the start and the end of a generation block. They occur in no text.
const MARKS: [char; 2] = ['\u{FDD0}', '\u{FDD1}'];

/// A chat template with its variables.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    /// Templates `default` and, if there is one, `tool_use`.
    environment: Environment<'static>,
    file: String,
    /// Texts of all templates.
    text: String,
    has_tool_use: bool,
    /// Whether the template has generation blocks.
    has_blocks: bool,
    /// Special tokens, and variables of the caller.
    variables: BTreeMap<String, Value>,
}

struct TemplateTexts {
    file: String,
    default: String,
    tool_use: Option<String>,
}

impl ChatTemplate {
    /// Opens the template of the folder `dir`: `chat_template.jinja`, or else the template in
    /// `tokenizer_config.json`.
    ///
    /// # Errors
    /// The folder has no template, or the text is not a Jinja template.
    pub fn open(dir: &Path) -> Result<Self, Diagnostics> {
        let config = read_json(dir, CONFIG)?;
        Self::of(template_texts(dir, &config)?, dir, &config)
    }

    /// Opens the template in `file`, with the special tokens of the folder `dir`.
    ///
    /// # Errors
    /// The file cannot be read, or is not a Jinja template.
    pub fn open_file(dir: &Path, file: &Path) -> Result<Self, Diagnostics> {
        let name = file.display().to_string();
        let default =
            file::read_text(file).map_err(|error| Diagnostic::new(&name, "cannot be read").found(error))?;
        let texts = TemplateTexts { file: name, default, tool_use: None };
        Self::of(texts, dir, &read_json(dir, CONFIG)?)
    }

    /// Compiles templates, with the special tokens of the folder `dir` and its configuration
    /// `config`.
    fn of(texts: TemplateTexts, dir: &Path, config: &Json) -> Result<Self, Diagnostics> {
        let file = texts.file;
        let refused =
            |error: Error| Diagnostic::new(&file, "the chat template is not a Jinja template").found(error);
        let mut environment = environment(TemplateClock::System).map_err(refused)?;
        environment.add_function(blocks::FUNCTION, generation);
        let default = blocks::rewrite(&texts.default);
        environment.add_template_owned(DEFAULT, default.text).map_err(refused)?;
        let has_tool_use = texts.tool_use.is_some();
        let text = texts.default + texts.tool_use.as_deref().unwrap_or_default();
        if let Some(text) = texts.tool_use {
            environment.add_template_owned(TOOL_USE, blocks::rewrite(&text).text).map_err(refused)?;
        }
        let variables = special_tokens(&read_json(dir, TOKENS)?, config);
        Ok(Self { environment, file, text, has_tool_use, has_blocks: default.blocks > 0, variables })
    }

    /// Returns the template with a fixed time for `strftime_now`, shown in the system's time zone.
    #[must_use]
    pub fn with_time(mut self, time: SystemTime) -> Self {
        TemplateClock::Fixed(time).set(&mut self.environment);
        self
    }

    /// Sets a variable of the template, such as `tools`, `documents` or `enable_thinking`, to a
    /// JSON value.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn set_variable(&mut self, name: &str, json: &str) -> Result<(), Diagnostics> {
        let value = json::loads(json).map_err(|error| {
            Diagnostic::new(format!("template variable {name}"), "is not JSON").found(error)
        })?;
        self.variables.insert(name.to_owned(), value);
        Ok(())
    }

    /// Returns the text of a conversation, up to the start of the model's answer.
    ///
    /// # Errors
    /// The template refuses the conversation.
    pub fn render(&self, messages: &[Message]) -> Result<String, Diagnostics> {
        self.write(&self.values(messages)?, GenerationPrompt::Added).map(without_marks)
    }

    /// Returns the text of a finished conversation, without a generation prompt.
    ///
    /// # Errors
    /// The template refuses the conversation.
    pub fn transcript(&self, messages: &[Message]) -> Result<String, Diagnostics> {
        self.write(&self.values(messages)?, GenerationPrompt::Absent).map(without_marks)
    }

    /// Returns the name of the template's file, for messages.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the Jinja text of the template, with that of its variant for tools.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text of a conversation and the byte ranges of the generation blocks; `None` if
    /// the template has no blocks.
    pub(super) fn generation_blocks(&self, messages: &[Message]) -> Result<Option<MarkedText>, Diagnostics> {
        if !self.has_blocks {
            return Ok(None);
        }
        self.write(&self.values(messages)?, GenerationPrompt::Absent).map(|text| Some(MarkedText::of(&text)))
    }

    fn values(&self, messages: &[Message]) -> Result<Vec<Value>, Diagnostics> {
        messages.iter().map(|message| self.value(message)).collect()
    }

    /// Returns a message as a value of the template, with its keys in their order.
    fn value(&self, message: &Message) -> Result<Value, Diagnostics> {
        let mut keys =
            vec![("role", json::quoted(&message.role)), ("content", json::quoted(&message.content))];
        for MessageField { name, json } in &message.fields {
            json::loads(json).map_err(|error| {
                Diagnostic::new(format!("{}: message key {name}", self.file), "is not JSON").found(error)
            })?;
            match keys.iter_mut().find(|(key, _)| key == name) {
                Some((_, old)) => old.clone_from(json),
                None => keys.push((name, json.clone())),
            }
        }
        let keys: Vec<String> =
            keys.iter().map(|(key, json)| format!("{}:{json}", json::quoted(key))).collect();
        json::loads(&format!("{{{}}}", keys.join(","))).map_err(|error| {
            Diagnostic::new(&self.file, "a message cannot be given to the template").found(error).into()
        })
    }

    /// Renders messages. The text contains the marks of generation blocks.
    fn write(&self, messages: &[Value], prompt: GenerationPrompt) -> Result<String, Diagnostics> {
        let mut variables: BTreeMap<&str, Value> = BTreeMap::new();
        variables.insert("tools", Value::from(()));
        variables.insert("documents", Value::from(()));
        variables.extend(self.variables.iter().map(|(name, value)| (name.as_str(), value.clone())));
        variables.insert("messages", Value::from(messages.to_vec()));
        variables
            .entry("add_generation_prompt")
            .or_insert_with(|| Value::from(prompt == GenerationPrompt::Added));
        let has_tools = variables.get("tools").is_some_and(|tools| !tools.is_none());
        let name = if self.has_tool_use && has_tools { TOOL_USE } else { DEFAULT };
        let rendered =
            self.environment.get_template(name).and_then(|template| template.render(Value::from(variables)));
        rendered.map_err(|error| {
            Diagnostic::new(&self.file, "the chat template refuses the messages").found(error).into()
        })
    }
}

/// Whether the text ends with a generation prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GenerationPrompt {
    Added,
    Absent,
}

/// A text, and the ranges that generation blocks wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MarkedText {
    pub(super) text: String,
    /// Ranges of the blocks, in bytes of the text.
    pub(super) blocks: Vec<Range<usize>>,
}

impl MarkedText {
    fn of(marked: &str) -> Self {
        let mut rendered = Self { text: String::with_capacity(marked.len()), blocks: Vec::new() };
        let mut start = 0;
        for c in marked.chars() {
            match c {
                c if c == MARKS[0] => start = rendered.text.len(),
                c if c == MARKS[1] => rendered.blocks.push(start..rendered.text.len()),
                c => rendered.text.push(c),
            }
        }
        rendered
    }
}

fn without_marks(text: String) -> String {
    if text.contains(MARKS) { text.replace(MARKS, "") } else { text }
}

/// Writes the content of a generation block between marks.
#[expect(clippy::needless_pass_by_value, reason = "minijinja gives named arguments by value")]
fn generation(state: &mut State<'_, '_>, named: Kwargs) -> Result<String, Error> {
    let content: Value = named.get("caller")?;
    Ok(format!("{}{}{}", MARKS[0], content.call(state, &[])?, MARKS[1]))
}

fn template_texts(dir: &Path, config: &Json) -> Result<TemplateTexts, Diagnostics> {
    let written = &config["chat_template"];
    if let Some(default) = read(dir, FILE)? {
        return Ok(TemplateTexts { file: FILE.to_owned(), default, tool_use: read(dir, TOOL_USE_FILE)? });
    }
    if let Some(default) = named_template(written, DEFAULT).or(written.as_str()) {
        let tool_use = named_template(written, TOOL_USE).map(str::to_owned);
        return Ok(TemplateTexts { file: CONFIG.to_owned(), default: default.to_owned(), tool_use });
    }
    Err(Diagnostic::new(dir.display().to_string(), "has no chat template")
        .expected(format!("{FILE}, or chat_template in {CONFIG}"))
        .help("continue plain text without --chat, or take the folder of a model that was made to chat")
        .into())
}

fn named_template<'a>(several: &'a Json, name: &str) -> Option<&'a str> {
    let mut templates = several.as_array()?.iter();
    templates.find(|template| template["name"] == name)?["template"].as_str()
}

/// Returns the special tokens of a folder. Values of `tokenizer_config.json` take precedence.
fn special_tokens(map: &Json, config: &Json) -> BTreeMap<String, Value> {
    let mut tokens = BTreeMap::new();
    for file in [map, config] {
        let named = TOKEN_NAMES.iter().map(|name| (*name, &file[*name]));
        let extra = file["extra_special_tokens"].as_object().into_iter().flatten();
        for (name, token) in named.chain(extra.map(|(name, token)| (name.as_str(), token))) {
            // A token is a text, or an object with a text.
            if let Some(text) = token.as_str().or_else(|| token["content"].as_str()) {
                tokens.insert(name.to_owned(), Value::from(text));
            }
        }
    }
    tokens
}

/// Returns the JSON of a file; null if the file does not exist.
fn read_json(dir: &Path, name: &str) -> Result<Json, Diagnostics> {
    match read(dir, name)? {
        None => Ok(Json::Null),
        Some(text) => serde_json::from_str(&text)
            .map_err(|error| Diagnostic::new(name, "is not JSON").found(error).into()),
    }
}

fn read(dir: &Path, name: &str) -> Result<Option<String>, Diagnostics> {
    match file::read_text(&dir.join(name)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(None),
        Err(error) => Err(Diagnostic::new(name, "cannot be read").found(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> TempDir {
        let folder = TempDir::new().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    /// The template of the Qwen2.5 models, shortened.
    const CHATML: &str = "{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'].strip() + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
";

    #[test]
    fn a_conversation_is_written_as_the_template_says() {
        let folder = folder(&[(FILE, CHATML), (CONFIG, r#"{"chat_template": "not this one"}"#)]);
        let template = ChatTemplate::open(folder.path()).unwrap();
        assert_eq!(
            template.render(&[Message::new("user", "Hi")]).unwrap(),
            "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        );
        assert_eq!(
            template.transcript(&[Message::new("system", "Be."), Message::new("user", "Hi")]).unwrap(),
            "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        );
        let found =
            template.render(&[Message::new("system", " Be brief. "), Message::new("user", "Hi")]).unwrap();
        assert!(found.starts_with("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user"), "{found}");
    }

    #[test]
    fn a_template_may_stand_in_the_tokenizers_configuration() {
        let config = r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": [
            {"name": "tool_use", "template": "no"},
            {"name": "default", "template": "{{ bos_token }}{% for m in messages %}[{{ m['content'] }}]{{ eos_token }}{% endfor %}"}]}"#;
        let folder = folder(&[(CONFIG, config)]);
        let found = ChatTemplate::open(folder.path()).unwrap().render(&[Message::new("user", "a")]).unwrap();
        assert_eq!(found, "<s>[a]</s>");
    }

    #[test]
    fn what_cannot_be_rendered_is_said() {
        let none = ChatTemplate::open(folder(&[]).path()).unwrap_err().to_string();
        assert!(none.contains("has no chat template") && none.contains(FILE), "{none}");
        let broken = ChatTemplate::open(folder(&[(FILE, "{% if %}")]).path()).unwrap_err().to_string();
        assert!(
            broken.starts_with("chat_template.jinja: the chat template is not a Jinja template"),
            "{broken}"
        );
        let refusing = folder(&[(FILE, "{{ raise_exception('only users speak') }}")]);
        let refused =
            ChatTemplate::open(refusing.path()).unwrap().render(&[Message::new("system", "x")]).unwrap_err();
        assert!(refused.to_string().contains("only users speak"), "{refused}");
    }
    /// Compares all fixtures with the output of transformers. `tests/fixtures/chat/expected.py`
    /// makes the expected output.
    #[test]
    fn published_constructs_render_as_in_transformers() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chat");
        let read = |name: &str| json::loads(&std::fs::read_to_string(fixtures.join(name)).unwrap()).unwrap();
        let key = |value: &Value, name: &str| value.get_attr(name).unwrap();
        let cases: BTreeMap<String, Value> = read("cases.json")
            .try_iter()
            .unwrap()
            .map(|case| (key(&case, "name").to_string(), case))
            .collect();
        let noon = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_762_689_600);
        let mut compared = 0;
        for row in read("expected.json").try_iter().unwrap() {
            let text = std::fs::read_to_string(fixtures.join(key(&row, "template").to_string())).unwrap();
            let config = r#"{"bos_token": "<s>", "eos_token": "</s>"}"#;
            let folder = folder(&[(FILE, &text), (CONFIG, config)]);
            let mut template = ChatTemplate::open(folder.path()).unwrap().with_time(noon);
            let case = &cases[&key(&row, "case").to_string()];
            let variables = key(case, "variables");
            for name in variables.try_iter().unwrap() {
                template.variables.insert(name.to_string(), variables.get_item(&name).unwrap());
            }
            let messages: Vec<Value> = key(case, "messages").try_iter().unwrap().collect();
            let prompt = match key(&row, "add_generation_prompt").is_true() {
                true => GenerationPrompt::Added,
                false => GenerationPrompt::Absent,
            };
            let found = template.write(&messages, prompt);
            let place = format!("{} of {}", key(&row, "case"), key(&row, "template"));
            let error = key(&row, "error");
            match (key(&row, "text").as_str(), error.as_str().unwrap_or_default()) {
                (Some(text), _) => {
                    let marked = MarkedText::of(&found.unwrap_or_else(|error| panic!("{place}: {error}")));
                    assert_eq!(marked.text, text, "{place}");
                    let answers: Vec<Value> = key(&row, "answers").try_iter().unwrap().collect();
                    let blocks: Vec<&str> =
                        marked.blocks.into_iter().map(|block| &marked.text[block]).collect();
                    if !answers.is_empty() {
                        assert_eq!(
                            blocks,
                            answers.iter().map(|text| text.as_str().unwrap()).collect::<Vec<_>>()
                        );
                    }
                }
                // Iterating over None is an error in Python, but empty in minijinja.
                (None, "TypeError") if found.is_ok() => continue,
                (None, "TypeError" | "UndefinedError" | "RecursionError") => {
                    assert!(found.is_err(), "{place}");
                }
                (None, message) => {
                    let refused = found.unwrap_err().to_string();
                    assert!(refused.contains(message), "{place}: {refused}");
                }
            }
            compared += 1;
        }
        assert!(compared > 500, "{compared}");
    }

    #[test]
    fn variables_are_those_of_transformers() {
        let config =
            r#"{"eos_token": "</s>", "pad_token": null, "extra_special_tokens": {"image_token": "<i>"}}"#;
        let text = "{{ bos_token }}{{ eos_token }}{{ image_token }} {{ pad_token is defined }} {{ tools is none }} \
            {{ documents is none }} {{ enable_thinking is defined }} {{ date_string | default('-') }}";
        let folder = folder(&[(FILE, text), (CONFIG, config), (TOKENS, r#"{"bos_token": "<s>"}"#)]);
        let mut template = ChatTemplate::open(folder.path()).unwrap();
        assert_eq!(template.render(&[]).unwrap(), "<s></s><i> False True True False -");
        template.set_variable("tools", r#"[{"b": 1, "a": 2}]"#).unwrap();
        template.set_variable("enable_thinking", "false").unwrap();
        template.set_variable("date_string", "\"01 Jan\"").unwrap();
        assert_eq!(template.render(&[]).unwrap(), "<s></s><i> False False True True 01 Jan");
        let message = template.set_variable("tools", "[1").unwrap_err().to_string();
        assert!(message.starts_with("template variable tools: is not JSON: found EOF"), "{message}");
    }

    #[test]
    fn a_template_for_tools_is_taken_where_there_are_tools() {
        let config = r#"{"chat_template": [{"name": "default", "template": "plain"},
            {"name": "tool_use", "template": "{{ tools | tojson }}"}]}"#;
        let several = folder(&[(CONFIG, config)]);
        let mut template = ChatTemplate::open(several.path()).unwrap();
        assert_eq!(template.render(&[]).unwrap(), "plain");
        template.set_variable("tools", r#"[{"b": 1, "a": 2}]"#).unwrap();
        assert_eq!(template.render(&[]).unwrap(), r#"[{"b": 1, "a": 2}]"#);
    }

    #[test]
    fn a_template_without_a_fixed_time_has_todays_date() {
        let folder = folder(&[(FILE, "{{ strftime_now('%Y') }}")]);
        let year = ChatTemplate::open(folder.path()).unwrap().render(&[]).unwrap();
        assert!(year.parse::<u32>().is_ok_and(|year| year >= 2025), "{year}");
        let template = ChatTemplate::open(folder.path())
            .unwrap()
            .with_time(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(86_400));
        assert_eq!(template.render(&[]).unwrap(), "1970");
    }

    #[test]
    fn a_template_of_another_file_has_the_tokens_of_the_folder() {
        let folder = folder(&[
            (FILE, "not this one"),
            (CONFIG, r#"{"bos_token": "<s>"}"#),
            ("mine.jinja", "{{ bos_token }}{{ messages[0].content }}"),
            ("broken.jinja", "{% if %}"),
        ]);
        let open = |name: &str| ChatTemplate::open_file(folder.path(), &folder.path().join(name));
        assert_eq!(open("mine.jinja").unwrap().render(&[Message::new("user", "a")]).unwrap(), "<s>a");
        for (name, message) in [
            ("broken.jinja", ": the chat template is not a Jinja template"),
            ("absent.jinja", ": cannot be read"),
        ] {
            let refused = open(name).unwrap_err().to_string();
            assert!(refused.contains(&format!("{name}{message}")), "{refused}");
        }
    }

    #[test]
    fn further_keys_of_messages_are_seen() {
        let folder = folder(&[(FILE, "{% for m in messages %}{{ m | tojson }}{% endfor %}")]);
        let template = ChatTemplate::open(folder.path()).unwrap();
        let field = |name: &str, json: &str| MessageField { name: name.to_owned(), json: json.to_owned() };
        let fields = vec![field("tool_calls", r#"[{"z": 1, "a": 2}]"#), field("content", "null")];
        let message = Message { fields, ..Message::new("assistant", "") };
        assert_eq!(
            template.render(&[message]).unwrap(),
            r#"{"role": "assistant", "content": null, "tool_calls": [{"z": 1, "a": 2}]}"#
        );
        let message = Message { fields: vec![field("name", "x")], ..Message::new("tool", "") };
        let refused = template.render(&[message]).unwrap_err().to_string();
        assert!(refused.starts_with("chat_template.jinja: message key name: is not JSON"), "{refused}");
    }
}
