//! The Jinja template of a checkpoint folder.

use std::collections::BTreeMap;
use std::io::ErrorKind as IoErrorKind;
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde_json::Value as Json;

use super::Message;
use crate::base::{Diagnostic, Diagnostics};
use crate::weights::file;

const FILE: &str = "chat_template.jinja";
const CONFIG: &str = "tokenizer_config.json";

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    file: &'static str,
    /// Texts of the special tokens that templates name.
    bos_token: String,
    eos_token: String,
}

impl ChatTemplate {
    /// The template in `chat_template.jinja`, or else in `tokenizer_config.json`, of the folder `dir`.
    ///
    /// # Errors
    /// There is none, or it is no Jinja template.
    pub fn open(dir: &Path) -> Result<Self, Diagnostics> {
        let config: Json = match read(dir, CONFIG)? {
            None => Json::Null,
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| Diagnostic::new(CONFIG, "is no JSON").found(error))?
            }
        };
        let (file, text) = match read(dir, FILE)? {
            Some(text) => (FILE, text),
            None => match template_of(&config["chat_template"]) {
                Some(text) => (CONFIG, text.to_owned()),
                None => {
                    return Err(Diagnostic::new(dir.display().to_string(), "has no chat template")
                        .expected(format!("{FILE}, or chat_template in {CONFIG}"))
                        .help("continue plain text without --chat, or take the folder of a model that was made to chat")
                        .into());
                }
            },
        };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| Diagnostic::new(file, "blocks cannot be trimmed").found(error))?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |text: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, text))
        });
        environment
            .add_template_owned("chat", text)
            .map_err(|error| Diagnostic::new(file, "the chat template is no Jinja template").found(error))?;
        let (bos_token, eos_token) = (token(&config["bos_token"]), token(&config["eos_token"]));
        Ok(Self { environment, file, bos_token, eos_token })
    }

    /// The text of a conversation, up to where the model's answer begins.
    ///
    /// # Errors
    /// The template refuses the conversation.
    pub fn render(&self, messages: &[Message]) -> Result<String, Diagnostics> {
        self.write(messages, true)
    }

    /// The text of a conversation as it was, with no answer to come.
    ///
    /// # Errors
    /// The template refuses the conversation.
    pub fn transcript(&self, messages: &[Message]) -> Result<String, Diagnostics> {
        self.write(messages, false)
    }

    /// The file that the template stands in, for messages.
    #[must_use]
    pub const fn file(&self) -> &'static str {
        self.file
    }

    fn write(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, Diagnostics> {
        let Self { environment, file, bos_token, eos_token } = self;
        let messages: Vec<BTreeMap<&str, Value>> = messages
            .iter()
            .map(|Message { role, content }| {
                BTreeMap::from([("role", Value::from(role)), ("content", Value::from(content))])
            })
            .collect();
        let template = environment.get_template("chat");
        let text = template
            .and_then(|template| template.render(context! { messages, bos_token, eos_token, add_generation_prompt }));
        text.map_err(|error| Diagnostic::new(*file, "the chat template refuses the messages").found(error).into())
    }
}

/// A template, or the one named `default` of several.
fn template_of(value: &Json) -> Option<&str> {
    let named = |value: &Json| value["name"] == "default";
    value.as_str().or_else(|| value.as_array()?.iter().find(|value| named(value))?["template"].as_str())
}

/// The text of a special token, which stands alone or in an object.
fn token(value: &Json) -> String {
    value.as_str().or_else(|| value["content"].as_str()).unwrap_or_default().to_owned()
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

    /// As the Qwen2.5 models have it, shortened.
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
        let found = template.render(&[Message::new("system", " Be brief. "), Message::new("user", "Hi")]).unwrap();
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
        assert!(broken.starts_with("chat_template.jinja: the chat template is no Jinja template"), "{broken}");
        let refusing = folder(&[(FILE, "{{ raise_exception('only users speak') }}")]);
        let refused = ChatTemplate::open(refusing.path()).unwrap().render(&[Message::new("system", "x")]).unwrap_err();
        assert!(refused.to_string().contains("only users speak"), "{refused}");
    }
}
