//! Tests of `ascend-tp data`: output files, messages, and refusals with exit code 2.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::{command, names, refused, root, succeeds};

const TEXT: &str =
    "In the beginning God created the heaven and the earth.\n\nAnd God said, Let there be light.\n";

struct Folder(TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(name, text)| fs::write(folder.path(name), text).unwrap());
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `data`; `SHIPPED` stands for the shipped tokenizer.
    fn run(&self, line: &str) -> Output {
        let shipped = root().join("models/kjv-qwen2");
        let words = line
            .split(' ')
            .map(|word| if word == "SHIPPED" { shipped.as_os_str() } else { OsStr::new(word) });
        let mut command = command();
        command.arg("data").args(words).current_dir(self.0.path()).output().unwrap()
    }

    fn succeeds(&self, line: &str) -> String {
        succeeds(&self.run(line))
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.succeeds(line)).unwrap()
    }

    /// Returns stderr after exit code 2 without new files.
    fn refused(&self, line: &str) -> Vec<String> {
        let before = names(self.0.path());
        let message = refused(&self.run(line));
        assert_eq!(names(self.0.path()), before, "{line}");
        message.lines().map(str::to_owned).collect()
    }
}

/// Checks the lines and their parts, separated by `…`.
#[track_caller]
fn says(lines: &[String], expected: &[&str]) {
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with("error: "), "{line}");
        assert!(expected.split('…').all(|part| line.contains(part)), "expected {expected}: {line}");
    }
}

#[test]
fn texts_become_indexed_data_and_are_shown() {
    let folder = Folder::new(&[("a.txt", TEXT), ("b.jsonl", "{\"text\": \"the king\"}\n")]);
    let report = folder.succeeds(r"prepare a.txt b.jsonl --separator \n\n --tokenizer SHIPPED --out corpus");
    assert!(report.starts_with("corpus: 3 documents, ") && report.ends_with(" tokens in u16\n"), "{report}");
    assert_eq!(
        names(folder.0.path()),
        ["a.txt", "b.jsonl", "corpus.bin", "corpus.idx", "corpus.prepared.json"]
    );

    let bin = fs::read(folder.path("corpus.bin")).unwrap();
    let idx = fs::read(folder.path("corpus.idx")).unwrap();
    assert_eq!(&idx[..18], b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08");
    assert_eq!(idx.len(), 34 + 12 * 3 + 8 * 4);
    assert_eq!(&bin[bin.len() - 2..], [0, 0], "the token that ends a text");

    let found = folder.json("inspect corpus.idx --json --documents 2 --tokenizer SHIPPED");
    assert_eq!((found["documents"].as_u64(), found["dtype"].as_str()), (Some(3), Some("u16")));
    assert_eq!(found["tokens"].as_u64(), Some(bin.len() as u64 / 2));
    assert_eq!(found["texts"][1], "And God said, Let there be light.\n");
    assert_eq!(found["first"].as_array().unwrap().len(), 2);
    assert_eq!((found["smallest_id"].as_u64(), found["ignored"].is_null()), (Some(0), true));
    let text = folder.succeeds("inspect corpus --tokenizer SHIPPED");
    for part in ["documents    3\n", "lengths      shortest ", "document 2: ", "\"the king\""] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The same text as one document.
    let report = folder.json("prepare a.txt --tokenizer SHIPPED --out corpus --json");
    assert_eq!((report["documents"].as_u64(), report["ignored"].as_u64()), (Some(1), Some(0)));
    assert_eq!(report["files"], serde_json::json!(["corpus.bin", "corpus.idx", "corpus.prepared.json"]));
}

#[test]
fn messages_say_what_is_not_learned() {
    let tokenizer = fs::read_to_string(root().join("models/kjv-qwen2/tokenizer.json")).unwrap();
    let folder = Folder::new(&[
        ("tokenizer.json", &tokenizer),
        (
            "chat_template.jinja",
            "{% for m in messages %}{{ m.role }}: {{ m.content }}<|endoftext|>{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}",
        ),
        (
            "chats.jsonl",
            "{\"messages\": [{\"role\": \"user\", \"content\": \"who\"}, {\"role\": \"assistant\", \"content\": \"God\"}]}\n",
        ),
        ("a.txt", TEXT),
    ]);
    let report = folder.json("prepare chats.jsonl --tokenizer . --out chats --json");
    assert_eq!(report["files"].as_array().unwrap().len(), 5);
    let (tokens, ignored) = (report["tokens"].as_u64().unwrap(), report["ignored"].as_u64().unwrap());
    let flags = fs::read(folder.path("chats.ignore.bin")).unwrap();
    assert_eq!((flags.len() as u64, flags.iter().map(|flag| u64::from(*flag)).sum()), (tokens, ignored));
    assert!(ignored > 0 && flags.ends_with(&[0]), "the answer and its end are learned: {flags:?}");
    assert_eq!(folder.json("inspect chats --json")["ignored"].as_u64(), Some(ignored));
    assert!(folder.succeeds("inspect chats").contains("not learned  "));
    // New data replaces old data completely.
    folder.succeeds("prepare a.txt --tokenizer . --out chats");
    assert!(
        !names(folder.0.path()).iter().any(|name| name.contains("ignore")),
        "{:?}",
        names(folder.0.path())
    );
}

#[test]
fn conversations_are_written_with_the_template_of_the_options() {
    let chat = |extra: &str| {
        format!(
            "{{\"messages\": [{{\"role\": \"user\", \"content\": \"who\"}}, {{\"role\": \"assistant\", \"content\": \"God\"}}]{extra}}}\n"
        )
    };
    let template = "{% if tools %}{{ tools[0].name }}. {% endif %}{{ day }}{{ enable_thinking | tojson }}\
        {% for m in messages %}{% if m.role == 'assistant' %}A:{% endif %}{{ m.content }}<|endoftext|>{% endfor %}\
        {% if add_generation_prompt %}A:{% endif %}";
    let folder = Folder::new(&[
        ("mine.jinja", template),
        ("tools.json", r#"[{"name": "light"}]"#),
        ("chats.jsonl", &(chat("") + &chat(r#", "tools": [{"name": "king"}]"#))),
    ]);
    let without = root().join("models/tiny-qwen2");
    let line = format!("prepare chats.jsonl --tokenizer {} --out chats", without.display());
    let message = folder.refused(&line).join("\n");
    assert!(message.contains("has no chat template"), "{message}");
    folder.succeeds(
        "prepare chats.jsonl --tokenizer SHIPPED --out chats --chat-template mine.jinja --tools tools.json \
         --no-thinking --template-arg day=\"day\"",
    );
    let texts = folder.json("inspect chats --json")["texts"].clone();
    assert_eq!(texts[0], "light. dayfalsewhoA:God");
    assert_eq!(texts[1], "king. dayfalsewhoA:God", "the tools of the line");
    says(
        &folder.refused(
            "prepare chats.jsonl --tokenizer SHIPPED --out b --chat-template mine.jinja --template-arg day",
        ),
        &["--template-arg day: not a variable with a value"],
    );
}

#[test]
fn inspect_takes_the_tokenizer_that_prepare_recorded() {
    let folder = Folder::new(&[("a.txt", &TEXT.repeat(30))]);
    folder.succeeds("tokenizer a.txt --vocab-size 290 --out made");
    folder.succeeds("prepare a.txt --tokenizer made --out a");
    let found = folder.json("inspect a --json");
    assert!(TEXT.starts_with(found["texts"][0].as_str().unwrap()), "{found}");
    folder.succeeds("tokenizer a.txt --vocab-size 280 --out made");
    let output = folder.run("inspect a");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("has another tokenizer: expected 290 ids, found 280; pass --tokenizer DIR"),
        "{said}"
    );
    assert!(String::from_utf8(output.stdout).unwrap().contains("document 0: "));
    fs::remove_dir_all(folder.path("made")).unwrap();
    let said = String::from_utf8(folder.run("inspect a").stderr).unwrap();
    assert!(
        said.contains("the recorded tokenizer cannot be used") && said.contains("no tokenizer in this"),
        "{said}"
    );
}

#[test]
fn inspect_reports_ids_below_zero() {
    let folder = Folder::new(&[("a.txt", TEXT)]);
    folder.succeeds("prepare a.txt --tokenizer SHIPPED --out a");
    let mut idx = fs::read(folder.path("a.idx")).unwrap();
    idx[17] = 3;
    fs::write(folder.path("a.idx"), idx).unwrap();
    let mut bin = fs::read(folder.path("a.bin")).unwrap();
    bin[2..4].fill(0xff);
    fs::write(folder.path("a.bin"), bin).unwrap();
    let text = folder.succeeds("inspect a");
    for row in [
        "  ids          -1 to ",
        "  ids below 0  1 token, the first at document 0, token 1; no model has such ids\n",
    ] {
        assert!(text.contains(row), "{row}: {text}");
    }
}

#[test]
fn bad_lines_are_skipped_up_to_a_number() {
    let folder = Folder::new(&[("a.jsonl", "{\"text\": \"good\"}\n{\"text\": 1}\n{\"tex")]);
    let output = folder.run("prepare a.jsonl --skip-bad-lines 2 --tokenizer SHIPPED --out a --json");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("2 bad lines were skipped\n  a.jsonl: line 2: not a document"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["documents"].as_u64(), report["skipped_lines"].as_u64()), (Some(1), Some(2)));
    let said = folder.refused("prepare a.jsonl --skip-bad-lines 1 --tokenizer SHIPPED --out b");
    says(
        &said,
        &["a.jsonl: line 2", "a.jsonl: line 3", "bad lines: too many to skip: expected at most 1, found 2"],
    );
}

#[test]
fn a_tokenizer_is_made_and_used() {
    let folder = Folder::new(&[("a.txt", &TEXT.repeat(30))]);
    let report = folder.json("tokenizer a.txt --vocab-size 290 --out made --json");
    assert_eq!((report["size"].as_u64(), report["documents"].as_u64()), (Some(290), Some(1)));
    let prepared = folder.json("prepare a.txt --tokenizer made --out a --json");
    assert!(prepared["tokens"].as_u64().unwrap() < TEXT.len() as u64 * 30 / 2);
    let found = folder.json("inspect a --tokenizer made --json");
    assert!(TEXT.starts_with(found["texts"][0].as_str().unwrap()), "{found}");
    let output = folder.run("tokenizer a.txt --vocab-size 5000 --out made");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("5000 tokens were asked for; the texts have words for "), "{said}");
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("made: "));
}

#[test]
fn bad_texts_are_refused_all_at_once_and_leave_nothing() {
    let folder =
        Folder::new(&[("a.jsonl", "{\"text\": \"good\"}\n{\"text\": 1}\n{\"tex"), ("table.csv", "a,b")]);
    fs::write(folder.path("b.txt"), b"ab\xff").unwrap();
    says(
        &folder.refused("prepare a.jsonl table.csv absent.txt --tokenizer nowhere --out no/such"),
        &[
            "table.csv: no data of a known kind: expected FILE.txt or FILE.jsonl, found a file of another name",
            "nowhere: no tokenizer in this folder",
            "--out: no/such.bin: cannot be written",
            "--out: no/such.idx: cannot be written",
            "--out: no/such.ignore.bin: cannot be written",
            "--out: no/such.ignore.idx: cannot be written",
            "--out: no/such.prepared.json: cannot be written",
        ],
    );
    says(
        &folder.refused("prepare a.jsonl b.txt absent.txt --tokenizer SHIPPED --out corpus"),
        &[
            "a.jsonl: line 2: not a document: expected {\"text\"…found `text`: expected a string, found 1",
            "a.jsonl: line 3: not a document…found EOF while parsing",
            "b.txt: line 1, byte 3: not a text: expected UTF-8",
            "absent.txt: cannot be read: found No such file",
        ],
    );
    says(
        &folder.refused("tokenizer a.jsonl absent.jsonl --vocab-size 100 --out made"),
        &[
            "a.jsonl: line 2",
            "a.jsonl: line 3",
            "vocabulary size: too few tokens: expected at least 257…found 100",
            "absent.jsonl: cannot be read",
        ],
    );
    let usage = folder.refused(r"prepare b.txt --tokenizer SHIPPED --out corpus --separator \x").join("\n");
    assert!(usage.contains("expected n, r, t or \\ after a \\, found x"), "{usage}");
    assert!(folder.refused("prepare --tokenizer SHIPPED --out corpus").join("\n").contains("<FILE>..."));
    fs::create_dir(folder.path("taken.bin")).unwrap();
    says(
        &folder.refused("prepare a.jsonl --tokenizer SHIPPED --out taken"),
        &["--out: taken.bin: cannot be written: found is a directory"],
    );
}

#[test]
fn more_than_ten_of_a_kind_are_counted() {
    let folder = Folder::new(&[("a.jsonl", &"{\"text\": \"good\"}\nbad\n".repeat(50))]);
    let lines = folder.refused("prepare a.jsonl --tokenizer SHIPPED --out corpus");
    assert_eq!(lines.len(), 11, "{lines:#?}");
    assert!(lines[9].starts_with("error: a.jsonl: line 20: not a document"), "{}", lines[9]);
    assert_eq!(lines[10], "error: not a document: 40 more of these, the last at a.jsonl: line 100");
}

#[test]
fn broken_data_is_refused() {
    let folder = Folder::new(&[("a.txt", TEXT)]);
    says(&folder.refused("inspect corpus"), &["corpus.idx: cannot be read", "corpus.bin: cannot be read"]);
    folder.succeeds("prepare a.txt --tokenizer SHIPPED --out corpus");
    let bin = fs::read(folder.path("corpus.bin")).unwrap();
    fs::write(folder.path("corpus.bin"), &bin[..bin.len() - 3]).unwrap();
    says(
        &folder.refused("inspect corpus --tokenizer nowhere"),
        &[
            "nowhere: no tokenizer in this folder",
            "corpus.idx: its lengths do not fit the .bin: expected a .bin of…bytes for…tokens in u16, found",
        ],
    );
    let idx = fs::read(folder.path("corpus.idx")).unwrap();
    for (length, expected) in [
        (20, "corpus.idx: cut off: expected at least 34 bytes"),
        (idx.len() - 1, "corpus.idx: its counts do not fit its length"),
    ] {
        fs::write(folder.path("corpus.idx"), &idx[..length]).unwrap();
        says(&folder.refused("inspect corpus"), &[expected]);
    }
}
