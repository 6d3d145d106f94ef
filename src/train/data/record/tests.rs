//! Tests of lines in published formats, and of bad lines.

use super::*;

fn turns_of(line: &str) -> Vec<Turn> {
    match parse(line.as_bytes()) {
        Ok(Some(WrittenDocument::Messages(conversation))) => conversation.turns,
        other => panic!("{other:?}"),
    }
}

/// Returns a line per message: role, text, further keys, and a note if the message is not learned.
fn shown(line: &str) -> Vec<String> {
    let show = |Turn { message: Message { role, content, fields }, is_learned }: Turn| {
        let fields: String = fields.iter().map(|field| format!(" {}={}", field.name, field.json)).collect();
        format!("{role}: {content:?}{fields}{}", if is_learned { "" } else { " weight 0" })
    };
    turns_of(line).into_iter().map(show).collect()
}

#[test]
fn the_chat_format_of_openai_is_read() {
    let line = r#"{"messages": [{"role": "system", "content": null, "tool_calls": [{"b": 1, "a": {"z": 0.5}}]},
        {"role": "user", "name": "Ann", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "x", "weight": 0, "tool_calls": null},
        {"role": "assistant", "content": "y", "weight": 1},
        {"role": "tool", "tool_call_id": "c1", "content": ""}], "parallel_tool_calls": false, "tools": []}"#;
    assert_eq!(
        shown(line),
        [
            r#"system: "" content=null tool_calls=[{"b": 1, "a": {"z": 0.5}}]"#,
            r#"user: "a\nb" name="Ann""#,
            r#"assistant: "x" weight 0"#,
            r#"assistant: "y""#,
            r#"tool: "" tool_call_id="c1""#,
        ]
    );
}

#[test]
fn tools_of_a_line_are_given_to_the_template() {
    let tools = |tools: &str| {
        let line = format!(r#"{{"messages": [{{"role": "user", "content": "a"}}], "tools": {tools}}}"#);
        match parse(line.as_bytes()) {
            Ok(Some(WrittenDocument::Messages(conversation))) => Ok(conversation.tools),
            other => Err(other.unwrap_err()),
        }
    };
    let list = r#"[{"type": "function", "a": 1}]"#;
    assert_eq!(tools(list), Ok(Some(list.to_owned())));
    assert_eq!(tools(r#""[{\"type\": \"function\", \"a\": 1}]""#), Ok(Some(list.to_owned())));
    for none in ["null", "[]", r#""""#, r#""[]""#] {
        assert_eq!(tools(none), Ok(None), "{none}");
    }
    assert_eq!(tools("{}"), Err("`tools`: expected a list, found {}".to_owned()));
    assert!(tools(r#""[""#).unwrap_err().starts_with("`tools`: not JSON"));
}

#[test]
fn sharegpt_is_read() {
    let line = r#"{"id": "1", "system": "Be.", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "weight": 0},
        {"from": "observation", "value": "c"}, {"role": "assistant", "content": "d"}]}"#;
    assert_eq!(
        shown(line),
        [
            r#"system: "Be.""#,
            r#"user: "a""#,
            r#"assistant: "b" weight 0"#,
            r#"tool: "c""#,
            r#"assistant: "d""#
        ]
    );
}

#[test]
fn alpaca_is_read() {
    assert_eq!(
        shown(r#"{"instruction": "Add.", "input": "1 2", "output": "3"}"#),
        [r#"user: "Add.\n1 2""#, r#"assistant: "3""#]
    );
    let line =
        r#"{"instruction": "Add.", "input": "", "output": "3", "system": "Be.", "history": [["q", "a"]]}"#;
    assert_eq!(
        shown(line),
        [r#"system: "Be.""#, r#"user: "q""#, r#"assistant: "a""#, r#"user: "Add.""#, r#"assistant: "3""#]
    );
    let text = parse(br#"{"instruction": "Add.", "output": "3", "text": "all"}"#).unwrap();
    assert_eq!(text, Some(WrittenDocument::Text("all".to_owned())), "a text is the whole document");
}

#[test]
fn prompts_and_completions_are_read() {
    let found = parse(br#"{"prompt": "a", "completion": " b"}"#).unwrap();
    let expected = WrittenDocument::Completion { prompt: "a".to_owned(), completion: " b".to_owned() };
    assert_eq!(found, Some(expected));
    let line = r#"{"prompt": [{"role": "assistant", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}"#;
    assert_eq!(shown(line), [r#"assistant: "a" weight 0"#, r#"assistant: "b""#]);
}

#[test]
fn what_is_no_document_says_why() {
    for (line, expected) in [
        ("[[{\"role\": \"user\"}]]", "no JSON object"),
        (r#"{"text": 5}"#, "`text`: expected a string, found 5"),
        (r#"{"text": "a", "text": "b"}"#, "duplicate key `text`"),
        (r#"{"text": "a", "conversations": []}"#, "both `text` and `conversations`"),
        (r#"{"instruction": "a", "prompt": "b"}"#, "both `instruction` and `prompt`"),
        (r#"{"text": null, "messages": [[]]}"#, "messages: message 1: expected an object, found []"),
        (r#"{"messages": "a"}"#, r#"`messages`: expected a list, found "a""#),
        (
            r#"{"messages": [{"role": "user", "content": null}]}"#,
            "messages: message 1: missing key `content`, and no `tool_calls` instead",
        ),
        (
            r#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#,
            "messages: message 1: part 1: expected a part of type `text`, found `image_url`",
        ),
        (
            r#"{"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]}"#,
            "messages: message 1: `weight`: expected 0 or 1, found 0.5",
        ),
        (
            r#"{"conversations": [{"from": "narrator", "value": "a"}]}"#,
            "conversations: message 1: `from`: expected one",
        ),
        (r#"{"instruction": "a"}"#, "missing key `output`"),
        (
            r#"{"instruction": "a", "output": "b", "history": [["a"]]}"#,
            "`history`: item 1: expected two strings",
        ),
        (r#"{"prompt": "a"}"#, "missing key `completion`"),
        (r#"{"prompt": "a", "completion": []}"#, r#"or two lists of messages, found "a" and []"#),
        (r#"{"other": 1}"#, "neither `text` nor `messages`"),
    ] {
        let found = parse(line.as_bytes()).unwrap_err();
        assert!(found.contains(expected), "{line}: {found}");
    }
    assert_eq!(parse(b"{\"text\": \"a\xff\"}").unwrap_err(), "bytes that are not UTF-8 at column 12");
    let deep = format!("{{\"text\": {}1{}}}", "[".repeat(500), "]".repeat(500));
    assert!(parse(deep.as_bytes()).unwrap_err().starts_with("recursion limit exceeded"));
}
