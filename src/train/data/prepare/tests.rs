//! Tests of prepared data: texts, conversations and their labels, bad lines.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::super::indexed::{IGNORE, bin_path, idx_path};
use super::super::pack::tests::options;
use super::super::source::{CorpusSource, TextFormat};
use super::super::{Batch, DataOptions, Loader};
use super::*;

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2")
}

/// Writes the shipped tokenizer with a chat template and the additional special tokens `ends`.
fn with_template(template: &str, ends: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    let text = fs::read_to_string(shipped().join("tokenizer.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let added = json["added_tokens"].as_array_mut().unwrap();
    for (at, content) in ends.iter().enumerate() {
        added.push(
            serde_json::json!({"id": 4096 + at, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}),
        );
    }
    fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    folder
}

fn written(folder: &TempDir, name: &str, text: &str) -> TextFile {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    TextFile {
        path,
        format: if name.ends_with(".jsonl") {
            TextFormat::JsonLines
        } else {
            TextFormat::Separated("\n\n".into())
        },
    }
}

/// Writes the files of `prepare`. Checks that label flags are written only if they exist.
fn write(prefix: &Path, from: &[TextFile], encoder: &Encoder) -> Result<PreparedCorpus, Error> {
    let (mut tokens, mut ignore) = (Vec::new(), Vec::new());
    let prepared = prepare(from, encoder, 0, &mut tokens, &mut ignore, &|_: Bytes| {})?;
    let pair = |prefix: &Path, index: &TokenIndex, bytes: &[u8]| {
        let mut idx = Vec::new();
        index.write(&mut idx).unwrap();
        fs::write(idx_path(prefix), idx).unwrap();
        fs::write(bin_path(prefix), bytes).unwrap();
    };
    pair(prefix, &prepared.index, &tokens);
    match &prepared.ignore {
        Some(index) => pair(Path::new(&format!("{}{IGNORE}", prefix.display())), index, &ignore),
        None => assert!(ignore.is_empty()),
    }
    Ok(prepared)
}

fn batches(source: CorpusSource) -> Vec<Batch> {
    let options = DataOptions { vocabulary: 5000, steps: 6, ..options(vec![source], 12, 2) };
    let mut loader = Loader::start(&options, 0).unwrap();
    (0..6).map(|_| loader.next().unwrap()).collect()
}

#[test]
fn texts_are_the_same_read_and_prepared() {
    let folder = TempDir::new().unwrap();
    let encoder = Arc::new(Encoder::open(&shipped(), 4096).unwrap());
    let text = "In the beginning God created the heaven and the earth.\n\nAnd the earth was without form,\nand void;\n\nAnd God said\n";
    for file in [
        written(&folder, "a.txt", text),
        written(
            &folder,
            "a.jsonl",
            &text
                .split("\n\n")
                .map(|text| format!("{}\n", serde_json::json!({"text": text})))
                .collect::<String>(),
        ),
    ] {
        let prefix = folder.path().join("prepared");
        let prepared = write(&prefix, std::slice::from_ref(&file), &encoder).unwrap();
        assert_eq!(
            (prepared.index.lengths.len(), prepared.index.dtype, prepared.ignored),
            (3, TokenType::U16, 0)
        );
        assert_eq!(
            prepared.tokens,
            prepared.index.lengths.iter().map(|length| u64::try_from(*length).unwrap()).sum::<u64>()
        );
        let bytes = fs::read(bin_path(&prefix)).unwrap();
        let ids: Vec<u32> = bytes.as_chunks().0.iter().map(|id| u16::from_le_bytes(*id).into()).collect();
        let expected: Vec<u32> = text
            .split("\n\n")
            .flat_map(|text| [encoder.tokenizer().encode(text).unwrap(), vec![0]].concat())
            .collect();
        assert_eq!(ids, expected, "each document, and the token that ends it");
        let direct = CorpusSource::Text { file, encoder: Arc::clone(&encoder) };
        assert_eq!(batches(direct), batches(CorpusSource::Indexed { prefix }));
    }
}

const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content.strip() + '<|im_end|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Returns the text of the learned tokens of a conversation, with `|` between separate ranges.
fn learned(folder: &TempDir, line: &str) -> Result<String, String> {
    let encoder = Encoder::open(folder.path(), 5000).unwrap();
    let prefix = folder.path().join("out");
    let prepared = write(&prefix, &[written(folder, "a.jsonl", line)], &encoder)
        .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))?;
    let bytes = fs::read(bin_path(&prefix)).unwrap();
    let ignore = fs::read(bin_path(Path::new(&format!("{}{IGNORE}", prefix.display())))).unwrap();
    assert_eq!(ignore.len() as u64, prepared.tokens);
    assert_eq!(ignore.iter().map(|flag| u64::from(*flag)).sum::<u64>(), prepared.ignored);
    let names = |id: u32| match id {
        4096 => "<|im_start|>".to_owned(),
        4097 => "<|im_end|>".to_owned(),
        id => encoder.tokenizer().decode(&[id]).unwrap(),
    };
    let mut text = String::new();
    let mut is_apart = false;
    for (id, flag) in bytes.as_chunks().0.iter().map(|id| u16::from_le_bytes(*id)).zip(ignore) {
        if flag == 0 {
            if is_apart && !text.is_empty() {
                text.push('|');
            }
            text.push_str(&names(id.into()));
        }
        is_apart = flag != 0;
    }
    Ok(text)
}

#[test]
fn what_assistants_say_is_learned() {
    let folder = with_template(CHATML, &["<|im_start|>", "<|im_end|>"]);
    let line = r#"{"messages": [{"role": "system", "content": "Be."}, {"role": "user", "content": "who created the heaven"},
        {"role": "assistant", "content": " God, in the beginning.\n"}, {"role": "user", "content": "and the earth"},
        {"role": "assistant", "content": "God."}]}"#;
    let found = learned(&folder, &line.replace('\n', " ")).unwrap();
    assert_eq!(found, "God, in the beginning.<|im_end|>|God.<|im_end|>");
    // All tokens of texts in the same file are learned, before and after a conversation.
    let mixed =
        format!("{{\"text\": \"the king\"}}\n{}\n{{\"text\": \"the king\"}}", line.replace('\n', " "));
    assert_eq!(
        learned(&folder, &mixed).unwrap(),
        "the king|God, in the beginning.<|im_end|>|God.<|im_end|>|the king"
    );
}

#[test]
fn an_answer_of_weight_zero_is_not_learned() {
    let folder = with_template(CHATML, &["<|im_start|>", "<|im_end|>"]);
    let line = r#"{"messages": [{"role": "user", "content": "who"}, {"role": "assistant", "content": "the king", "weight": 0}, {"role": "user", "content": [{"type": "text", "text": "no"}]}, {"role": "assistant", "content": "God", "weight": 1}]}"#;
    assert_eq!(learned(&folder, line).unwrap(), "God<|im_end|>");
    let line = line.replace("\"weight\": 0", "\"weight\": 1");
    assert_eq!(learned(&folder, &line).unwrap(), "the king<|im_end|>|God<|im_end|>");
    let line = r#"{"conversations": [{"from": "human", "value": "who"}, {"from": "gpt", "value": "God"}]}"#;
    assert_eq!(learned(&folder, line).unwrap(), "God<|im_end|>");
    let line = r#"{"instruction": "who", "input": "created", "output": "God"}"#;
    assert_eq!(learned(&folder, line).unwrap(), "God<|im_end|>");
}

#[test]
fn a_template_sees_all_keys_of_a_message() {
    let template = "{% for m in messages %}{{ '<|im_start|>' + m.role + (m.name or '') }}{% if m.content %}{{ m.content }}{% endif %}\
        {% for call in m.tool_calls or [] %}{{ call.function.name }}{% endfor %}{{ '<|im_end|>' }}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}";
    let folder = with_template(template, &["<|im_start|>", "<|im_end|>"]);
    let line = r#"{"messages": [{"role": "user", "name": "Ann", "content": "who"}, {"role": "user", "content": "and", "tool_calls": [{"function": {"name": "king"}}]}, {"role": "assistant", "content": "God"}]}"#;
    let encoder = Encoder::open(folder.path(), 5000).unwrap();
    write(&folder.path().join("out"), &[written(&folder, "a.jsonl", line)], &encoder).unwrap();
    let bytes = fs::read(folder.path().join("out.bin")).unwrap();
    let ids: Vec<u32> = bytes.as_chunks().0.iter().map(|id| u16::from_le_bytes(*id).into()).collect();
    assert_eq!(encoder.tokenizer().decode(&ids).unwrap(), "userAnnwhouserandkingassistantGod");
}

#[test]
fn of_a_prompt_and_its_completion_the_completion_is_learned() {
    let folder = with_template(CHATML, &["<|im_start|>", "<|im_end|>"]);
    let line = r#"{"prompt": "In the beginning God", "completion": " created the heaven"}"#;
    // The shipped tokenizer ends texts with a special token, which decoding removes.
    assert_eq!(learned(&folder, line).unwrap(), " created the heaven");
    let prefix = folder.path().join("out");
    let bytes = fs::read(bin_path(&prefix)).unwrap();
    let ids: Vec<u32> = bytes.as_chunks().0.iter().map(|id| u16::from_le_bytes(*id).into()).collect();
    let tokenizer = Encoder::open(folder.path(), 5000).unwrap();
    let whole = tokenizer.tokenizer().encode("In the beginning God created the heaven").unwrap();
    assert_eq!(ids, [whole, vec![0]].concat());
    let flags = fs::read(bin_path(Path::new(&format!("{}{IGNORE}", prefix.display())))).unwrap();
    assert_eq!(flags.last(), Some(&0), "the end is learned");
}

#[test]
fn so_many_bad_lines_are_skipped_and_one_more_is_an_error() {
    let folder = with_template(CHATML, &["<|im_start|>", "<|im_end|>"]);
    let encoder = Encoder::open(folder.path(), 5000).unwrap();
    // The third line is a conversation without an answer.
    let lines = "{\n{\"text\": \"the king\"}\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n{\"text\": 7}\n";
    let files =
        [written(&folder, "a.jsonl", lines), written(&folder, "b.jsonl", "{\"text\": \"God\"}\n[]\n")];
    let run = |limit| {
        let (mut tokens, mut ignore) = (Vec::new(), Vec::new());
        let prepared = prepare(&files, &encoder, limit, &mut tokens, &mut ignore, &|_: Bytes| {})?;
        Ok::<_, Error>((prepared, tokens))
    };
    let (prepared, tokens) = run(4).unwrap();
    assert_eq!((prepared.skipped.count, prepared.index.lengths.len()), (4, 2));
    assert!(
        prepared
            .skipped
            .problems
            .to_string()
            .contains("a.jsonl: line 3: chat_template.jinja: there is nothing")
    );
    let expected: Vec<u8> = ["the king", "God"]
        .into_iter()
        .flat_map(|text| [encoder.tokenizer().encode(text).unwrap(), vec![0]].concat())
        .flat_map(|id| u16::try_from(id).unwrap().to_le_bytes())
        .collect();
    assert_eq!(tokens, expected);
    let message = run(3).unwrap_err().to_string();
    assert!(message.contains("bad lines: too many to skip: expected at most 3, found 4"), "{message}");
    for place in ["a.jsonl: line 1", "a.jsonl: line 3", "a.jsonl: line 4", "b.jsonl: line 2"] {
        assert!(message.contains(place), "{place}: {message}");
    }
}

/// As in Qwen3's template, earlier answers lose their thoughts, and the last answer gets empty
/// ones.
#[test]
fn a_template_may_write_earlier_answers_otherwise() {
    let template = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}\
        {% if loop.last %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}\
        {{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    let folder = with_template(template, &["<|im_start|>", "<|im_end|>"]);
    let line = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>why</think>God"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "King"}]}"#;
    assert_eq!(learned(&folder, line).unwrap(), "God<|im_end|>|<think>\n\n</think>\n\nKing<|im_end|>");
}

/// A template in the style of `QwQ`: the generation prompt opens a thought, but turns have no
/// thought.
const QWQ: &str = "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' + m.content.split('</think>')[-1].lstrip('\\n') + '<|im_end|>\\n' }}\
{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}";

/// A template in the style of the `DeepSeek-R1` distills.
const DISTILL: &str = "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '<|im_start|>' + m.content }}{% endif %}\
{% if m.role == 'assistant' %}{% set content = m.content %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}\
{{ '<|assistant|>' + content + '<|im_end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|><think>\\n' }}{% endif %}";

#[test]
fn answers_of_reasoning_models_are_found() {
    // The last answer starts with `<`, like the rest of the generation prompt.
    let line = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nwhy\n</think>\n\nGod"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "<king"}]}"#;
    let folder = with_template(QWQ, &["<|im_start|>", "<|im_end|>"]);
    assert_eq!(learned(&folder, line).unwrap(), "God<|im_end|>|<king<|im_end|>");
    let folder = with_template(DISTILL, &["<|im_start|>", "<|im_end|>", "<|assistant|>"]);
    assert_eq!(learned(&folder, line).unwrap(), "\n\nGod<|im_end|>|<king<|im_end|>");
}

/// Thoughts are kept until the next question, so an earlier turn of the whole conversation differs
/// from the same turn in the generation prompt.
#[test]
fn answers_after_turns_that_lose_their_thoughts_are_found() {
    let template = "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}\
        {% for m in messages %}{% set content = m.content %}{% if loop.index0 < ns.last %}{% set content = content.split('</think>')[-1] %}{% endif %}\
        {{ '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    let folder = with_template(template, &["<|im_start|>", "<|im_end|>"]);
    let line = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>ask</think>call"}, {"role": "tool", "content": "7"}, {"role": "assistant", "content": "<think>so</think>God"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "<think>b</think>king"}]}"#;
    assert_eq!(
        learned(&folder, line).unwrap(),
        "call<|im_end|>|God<|im_end|>|<think>b</think>king<|im_end|>"
    );
}

#[test]
fn generation_blocks_say_what_is_learned() {
    let template = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}\
        {% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}";
    let folder = with_template(template, &["<|im_start|>", "<|im_end|>"]);
    let line = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "God"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "king"}]}"#;
    assert_eq!(learned(&folder, line).unwrap(), "God<|im_end|>|king<|im_end|>");
}

#[test]
fn a_template_without_special_tokens_ends_answers_with_their_words() {
    let template = "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}";
    let folder = with_template(template, &[]);
    let line = r#"{"messages": [{"role": "user", "content": "who"}, {"role": "assistant", "content": "the king"}, {"role": "user", "content": "and"}]}"#;
    assert_eq!(learned(&folder, line).unwrap(), " the king");
}

#[test]
fn conversations_that_cannot_be_learned_from_are_refused_by_line() {
    let folder = with_template(CHATML, &["<|im_start|>", "<|im_end|>"]);
    let silent = r#"{"messages": [{"role": "user", "content": "who"}]}"#;
    let message = learned(&folder, &format!("{silent}\n{silent}")).unwrap_err();
    assert_eq!(
        message.lines().collect::<Vec<_>>(),
        [1, 2].map(|line| format!(
            "a.jsonl: line {line}: chat_template.jinja: there is nothing to learn from messages without one of an assistant"
        ))
    );
    let line =
        r#"{"messages": [{"role": "user", "content": "who"}, {"role": "assistant", "content": "God"}]}"#;
    // The text after an answer depends on the answer here, so its end cannot be found.
    let echo = with_template(
        "{% for m in messages %}{{ m.role + ':' + m.content + '\\n' }}{% if loop.last %}{{ messages[1].content }}{% endif %}{% endfor %}",
        &[],
    );
    let message = learned(&echo, line).unwrap_err();
    assert!(message.contains("the start or the end of an answer cannot be found by rendering"), "{message}");
    assert!(message.contains("mark the answers in the template with {% generation %}"), "{message}");
    let refusing = with_template("{{ raise_exception('no') }}", &[]);
    assert!(
        learned(&refusing, line)
            .unwrap_err()
            .contains("a.jsonl: line 1: chat_template.jinja: the chat template refuses")
    );
    let none = with_template("", &[]);
    fs::remove_file(none.path().join("chat_template.jinja")).unwrap();
    assert!(learned(&none, line).unwrap_err().contains("has no chat template"));
}

#[test]
fn a_tokenizer_must_be_able_to_end_a_text() {
    let folder = with_template(CHATML, &[]);
    assert_eq!(Encoder::open(folder.path(), 4096).unwrap().tokenizer().size(), 4096);
    let config = |text: &str| {
        fs::write(folder.path().join("tokenizer_config.json"), text).unwrap();
        Encoder::open(folder.path(), 4096).map(drop).map_err(|error| error.to_string())
    };
    config(r#"{"eos_token": {"content": "<|endoftext|>"}}"#).unwrap();
    config(r#"{"eos_token": null}"#).unwrap();
    let message = config(r#"{"eos_token": "</s>"}"#).unwrap_err();
    assert!(
        message.contains("the tokenizer has no token to end a text with")
            && message.ends_with("found eos_token </s>"),
        "{message}"
    );
    assert!(config("{").unwrap_err().contains("tokenizer_config.json: is not JSON"));
}

#[test]
fn a_text_too_large_to_encode_is_refused() {
    let folder = TempDir::new().unwrap();
    let encoder = Encoder::open(&shipped(), 4096).unwrap();
    let file = written(&folder, "a.txt", &"x".repeat((64 << 20) + 1));
    let message = write(&folder.path().join("out"), &[file], &encoder).unwrap_err().to_string();
    assert!(
        message.contains(
            "a.txt: document 1: text: a document too large to be made into ids at once: expected at most 64.0 MiB"
        ),
        "{message}"
    );
}

#[test]
fn all_files_are_read_before_anything_is_refused() {
    let folder = TempDir::new().unwrap();
    let encoder = Encoder::open(&shipped(), 4096).unwrap();
    let absent = TextFile { path: folder.path().join("absent.txt"), format: TextFormat::Whole };
    let files = [written(&folder, "a.jsonl", "{\n"), absent, written(&folder, "b.jsonl", "7\n")];
    let message = write(&folder.path().join("out"), &files, &encoder).unwrap_err().to_string();
    for part in
        ["a.jsonl: line 1: not a document", "absent.txt: cannot be read", "b.jsonl: line 1: not a document"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    let nothing = written(&folder, "c.txt", "\n\n\n\n");
    let message = write(&folder.path().join("out"), &[nothing], &encoder).unwrap_err().to_string();
    assert_eq!(message, "all texts: the texts have no document");
}
