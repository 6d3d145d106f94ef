//! Tests of the parsers: each format, and every way to split a text into pieces.

use proptest::prelude::{Just, ProptestConfig, Strategy, any};
use proptest::{collection, prop_assert, prop_assert_eq, prop_oneof, proptest, sample};

use super::{AnswerFormat, AnswerParser, AnswerPart, ReasoningParserKind, ToolParserKind};

/// The concatenated parts of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    text: String,
    reasoning: String,
    /// Name and arguments of each call.
    calls: Vec<(String, String)>,
    ids: Vec<String>,
}

impl Answer {
    fn of(format: AnswerFormat, pieces: &[&str]) -> Self {
        let mut parser = AnswerParser::new(format);
        let mut parts: Vec<AnswerPart> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
        parts.extend(parser.finish());
        let mut answer = Self::default();
        for part in parts {
            match part {
                AnswerPart::Text(text) => answer.text += &text,
                AnswerPart::Reasoning(text) => answer.reasoning += &text,
                AnswerPart::ToolCallStart { index, id, name } => {
                    assert_eq!(index, answer.calls.len());
                    answer.calls.push((name, String::new()));
                    answer.ids.push(id);
                }
                AnswerPart::ToolCallArguments { index, fragment } => {
                    assert_eq!(index + 1, answer.calls.len());
                    answer.calls[index].1 += &fragment;
                }
            }
        }
        answer
    }

    fn show(&self) -> String {
        let calls = self.calls.iter().map(|(name, arguments)| format!(" {name}({arguments})"));
        format!("{:?} {:?}{}", self.reasoning, self.text, calls.collect::<String>())
    }
}

fn tools(kind: ToolParserKind) -> AnswerFormat {
    AnswerFormat { tools: Some(kind), ..AnswerFormat::default() }
}

fn parsed(kind: ToolParserKind, text: &str) -> String {
    Answer::of(tools(kind), &[text]).show()
}

fn characters(text: &str) -> Vec<&str> {
    text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]).collect()
}

#[test]
fn reasoning_is_between_tags() {
    let think = Some(ReasoningParserKind::Think);
    let show = |starts_inside, text| {
        Answer::of(AnswerFormat { reasoning: think, starts_inside, ..AnswerFormat::default() }, &[text])
            .show()
    };
    assert_eq!(show(false, "<think>\na < b\n</think>\n\nYes.\n"), r#""a < b" "Yes.\n""#);
    assert_eq!(show(true, "\na < b\n</think>\n\nYes."), r#""a < b" "Yes.""#);
    assert_eq!(show(true, "<think>a</think>Yes."), r#""a" "Yes.""#);
    assert_eq!(show(false, " Write <think> first.</think>"), r#""" " Write <think> first.</think>""#);
    assert_eq!(show(false, "<think>never ends </thi"), r#""never ends </thi" """#);
    assert_eq!(show(true, ""), r#""" """#);
    assert_eq!(show(false, "<think>\n\n</think>\n\n"), r#""" """#);
    assert_eq!(show(false, "<thin"), r#""" "<thin""#);
    assert_eq!(show(false, "<think>a</think>b</think>c"), r#""a" "b</think>c""#);
}

#[test]
fn hermes_calls() {
    let show = |text: &str| parsed(ToolParserKind::Hermes, text);
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}</tool_call>\"}}\n</tool_call>";
    assert_eq!(show(call), r#""" "" f({"a": "}</tool_call>"})"#);
    assert_eq!(
        show(&format!("So:\n{call}\n{call}\n")),
        r#""" "So:" f({"a": "}</tool_call>"}) f({"a": "}</tool_call>"})"#
    );
    // Any order of keys, no arguments, quoted arguments.
    assert_eq!(
        show(r#"<tool_call>{"arguments": {"a": [1]}, "name": "f"}</tool_call>"#),
        r#""" "" f({"a": [1]})"#
    );
    assert_eq!(show(r#"<tool_call>{"type": "function", "name": "f"}</tool_call>done"#), r#""" "done" f({})"#);
    assert_eq!(
        show(r#"<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>"#),
        r#""" "" f({"a": 1})"#
    );
    let quoted = r#"{"a": "\"}]\\"}"#;
    let text = format!("<tool_call>{{\"name\": \"f\", \"arguments\": {quoted}}}</tool_call>");
    assert_eq!(show(&text), format!("\"\" \"\" f({quoted})"));
    // No calls.
    for text in [
        "<tool_call> f(1) </tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"other\": 1}</tool_call>",
        "<tool_call>{\"name\": \"\"}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"argu",
        "a < b <tool_",
        "  \n",
    ] {
        assert_eq!(show(text), format!("\"\" {text:?}"));
    }
    // Calls that end early or wrongly.
    assert_eq!(show("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1"), r#""" "" f({"a": 1)"#);
    assert_eq!(
        show("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_c"),
        r#""" "" f({"a": 1})"#
    );
    assert_eq!(
        show("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1]} end"),
        r#""" "]} end" f({"a": 1)"#
    );
    assert_eq!(
        show("<tool_call>{\"name\": \"f\", \"arguments\": {}} end"),
        r#""" "}} end" f({})"#.replace("}} end", "} end")
    );
    assert_eq!(show(&format!("<tool_call>{call}")), r#""" "<tool_call>" f({"a": "}</tool_call>"})"#);
}

#[test]
fn llama3_calls() {
    let show = |text: &str| parsed(ToolParserKind::Llama3, text);
    assert_eq!(show(r#"{"name": "f", "parameters": {"a": 1}}"#), r#""" "" f({"a": 1})"#);
    assert_eq!(
        show(r#" <|python_tag|>{"name": "f", "parameters": {}}; {"name": "g"}"#),
        r#""" "" f({}) g({})"#
    );
    assert_eq!(show(r#"Now <|python_tag|>{"name": "f", "parameters": {}}"#), r#""" "Now" f({})"#);
    assert_eq!(show(r#"{"name": "f", "parameters": {}}; then"#), r#""" "; then" f({})"#);
    for text in [
        "<|python_tag|>search.call(query=\"x\")",
        "{\"city\": \"Rome\"}",
        "Use {\"name\": \"f\", \"parameters\": {}}",
        "{",
        "<|python",
    ] {
        assert_eq!(show(text), format!("\"\" {text:?}"));
    }
}

#[test]
fn mistral_calls() {
    let show = |text: &str| parsed(ToolParserKind::Mistral, text);
    let list = [
        r#"[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, "#,
        r#"{"name": "g", "arguments": {}, "id": "abcdef123"}]"#,
    ];
    assert_eq!(show(&list.concat()), r#""" "" f({"a": 1}) g({})"#);
    assert_eq!(
        show(r#"So [TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g-2[CALL_ID]abcdef123[ARGS]{}"#),
        r#""" "So" f({"a": 1}) g-2({})"#
    );
    assert_eq!(show(r#"[TOOL_CALLS]f{"a": 1} end"#), r#""" "end" f({"a": 1})"#);
    for text in
        ["[TOOL_CALLS][]", "[TOOL_CALLS]f[ARGS] 1", "[TOOL_CALLS", "[TOOL_CALLS][{\"nam", "[1] [TOOL]"]
    {
        assert_eq!(show(text), format!("\"\" {text:?}"));
    }
    let answer = Answer::of(
        tools(ToolParserKind::Mistral),
        &[r#"[TOOL_CALLS][{"id": "abcdef123", "name": "f"}, {"name": "g"}]"#],
    );
    assert_eq!(answer.ids[0], "abcdef123");
    assert!(
        answer.ids[1].len() == 9 && answer.ids[1].chars().all(|c| c.is_ascii_alphanumeric()),
        "{:?}",
        answer.ids
    );
}

#[test]
fn deepseek_calls() {
    let show = |text: &str| parsed(ToolParserKind::DeepSeekV3, text);
    let v3 = |name: &str| {
        format!(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{{\"a\": 1}}\n```<｜tool▁call▁end｜>"
        )
    };
    let list = format!("Go.\n<｜tool▁calls▁begin｜>{}\n{}<｜tool▁calls▁end｜>", v3("f"), v3("g"));
    assert_eq!(show(&list), r#""" "Go." f({"a": 1}) g({"a": 1})"#);
    let v31 =
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>";
    assert_eq!(show(v31), r#""" "" function({"a": 1})"#);
    assert_eq!(show(&format!("{v31}<｜tool▁calls▁end｜> end")), r#""" "end" function({"a": 1})"#);
    let cut = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g";
    assert_eq!(show(&format!("{v31}{cut}")), format!("\"\" {cut:?} function({{\"a\": 1}})"));
    let text = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>g{}";
    assert_eq!(show(text), format!("\"\" {text:?}"));
}

#[test]
fn ids_are_different_and_follow_the_seed() {
    let text = "<tool_call>{\"name\": \"f\"}</tool_call>".repeat(2);
    let ids = |id_seed| Answer::of(AnswerFormat { id_seed, ..tools(ToolParserKind::Hermes) }, &[&text]).ids;
    assert_eq!(ids(1), ids(1));
    assert_ne!(ids(1), ids(2));
    assert_ne!(ids(1)[0], ids(1)[1]);
    assert!(ids(1)[0].starts_with("call_"));
}

#[test]
fn arguments_come_as_soon_as_their_text() {
    let mut parser = AnswerParser::new(tools(ToolParserKind::Hermes));
    assert_eq!(parser.push("Hi"), [AnswerPart::Text("Hi".to_owned())]);
    assert_eq!(parser.push(" <tool_call>{\"name\": \"f\", \"arguments\":"), []);
    let fragment = |text: &str| AnswerPart::ToolCallArguments { index: 0, fragment: text.to_owned() };
    let parts = parser.push(" {\"a\"");
    assert!(matches!(&parts[0], AnswerPart::ToolCallStart { index: 0, name, .. } if name == "f"));
    assert_eq!(parts[1..], [fragment("{\"a\"")]);
    assert_eq!(parser.push(": 1"), [fragment(": 1")]);
    assert_eq!(parser.push("}}</tool_call>"), [fragment("}")]);
}

#[test]
fn names_of_formats() {
    for kind in ToolParserKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    for kind in ReasoningParserKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    assert_eq!("deepseek_r1".parse(), Ok(ReasoningParserKind::Think));
    let error = "pythonic".parse::<ToolParserKind>().unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown tool parser: expected hermes, llama3_json, mistral, deepseek_v3 or deepseek_v31, \
         found `pythonic`"
    );
    assert!("x".parse::<ReasoningParserKind>().is_err());
}

#[test]
fn templates_tell_their_format() {
    let tools = ToolParserKind::from_template;
    assert_eq!(tools("{{ '<tool_call>\\n{\"name\": ' }}"), Some(ToolParserKind::Hermes));
    assert_eq!(tools("<tool_call>\n<function=f>"), None);
    assert_eq!(
        tools("<|start_header_id|> {\"name\": x, \"parameters\": dictionary of"),
        Some(ToolParserKind::Llama3)
    );
    assert_eq!(tools("{{ '[TOOL_CALLS][' }}"), Some(ToolParserKind::Mistral));
    assert_eq!(tools("<｜tool▁calls▁begin｜> ```json"), Some(ToolParserKind::DeepSeekV3));
    assert_eq!(tools("<｜tool▁calls▁begin｜>"), Some(ToolParserKind::DeepSeekV31));
    assert_eq!(tools("<|im_start|>"), None);
    let think = ReasoningParserKind::Think;
    assert_eq!(ReasoningParserKind::from_template("content.split('</think>')"), Some(think));
    assert_eq!(ReasoningParserKind::from_template("<|im_start|>"), None);
    assert!(think.starts_inside("<|Assistant|><think>\n") && !think.starts_inside("<think>\n\n</think>\n\n"));
}

/// Returns texts that consist of the parts of all formats, in any order.
fn texts() -> impl Strategy<Value = String> {
    let formats = ToolParserKind::ALL.into_iter().flat_map(|kind| kind.special_texts().iter().copied());
    let tags = ReasoningParserKind::ALL.into_iter().flat_map(ReasoningParserKind::tags);
    let syntax =
        ["{", "}", "[", "]", ",", ":", ";", "\"", "\\", " ", "\n", "<", "```json", "```", "function", "ß"];
    let keys = [
        "\"name\": \"f\"",
        "\"arguments\": {",
        "\"parameters\": {}",
        "\"id\": \"x\"",
        "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
    ];
    let parts: Vec<&str> = formats.chain(tags).chain(syntax).chain(keys).collect();
    let whole = [
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"ß\"]}}\n</tool_call>",
        "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\"}]",
        "[TOOL_CALLS]f[ARGS]{\"a\": {}}",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```\
         <｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
    ];
    let part = prop_oneof![
        6 => sample::select(parts.clone()).prop_map(str::to_owned),
        2 => sample::select(whole.to_vec()).prop_map(str::to_owned),
        // A part that ends early.
        2 => (sample::select(parts), any::<sample::Index>())
            .prop_map(|(part, end)| part.chars().take(end.index(part.chars().count())).collect()),
        1 => Just("é 中".to_owned()),
    ];
    collection::vec(part, 0..14).prop_map(|parts| parts.concat())
}

fn formats() -> impl Strategy<Value = AnswerFormat> {
    let reasoning =
        sample::select(vec![None, Some(ReasoningParserKind::Think), Some(ReasoningParserKind::Magistral)]);
    let tools: Vec<Option<ToolParserKind>> =
        ToolParserKind::ALL.into_iter().map(Some).chain([None]).collect();
    (reasoning, sample::select(tools), any::<bool>()).prop_map(|(reasoning, tools, starts_inside)| {
        AnswerFormat { reasoning, starts_inside, tools, id_seed: 0 }
    })
}

/// Returns whether `part` is `whole` with some characters removed.
fn is_subsequence(part: &str, whole: &str) -> bool {
    let mut whole = whole.chars();
    part.chars().all(|c| whole.any(|other| other == c))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_parts_do_not_depend_on_the_pieces(
        text in texts(),
        format in formats(),
        cuts in collection::vec(any::<sample::Index>(), 0..6),
    ) {
        let whole = Answer::of(format, &[&text]);
        prop_assert_eq!(&Answer::of(format, &characters(&text)), &whole);
        let characters = characters(&text);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(characters.len() + 1)).collect();
        cuts.extend([0, characters.len()]);
        cuts.sort_unstable();
        let pieces: Vec<String> = cuts.windows(2).map(|cut| characters[cut[0]..cut[1]].concat()).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(Answer::of(format, &pieces), whole);
    }

    #[test]
    fn nothing_is_lost_or_duplicated(text in texts(), format in formats()) {
        let answer = Answer::of(format, &[&text]);
        prop_assert!(is_subsequence(&answer.reasoning, &text));
        prop_assert!(is_subsequence(&answer.text, &text));
        // Syntax has no ß. Only arguments are quoted texts with it.
        let calls = answer.calls.iter().flat_map(|(name, arguments)| [name.as_str(), arguments]);
        let calls: String = calls.collect();
        let count = |text: &str| text.matches('ß').count();
        prop_assert_eq!(count(&answer.text) + count(&answer.reasoning) + count(&calls), count(&text));
    }

    #[test]
    fn any_text_without_markers_is_text(text in "[a-z \n<{\\[\"]{0,30}") {
        for kind in ToolParserKind::ALL {
            prop_assert_eq!(&Answer::of(tools(kind), &characters(&text)).text, &text);
        }
    }
}
