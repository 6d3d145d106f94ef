//! The blocks `{% generation %}` of a chat template.
//!
//! Input: the text of a template. Output: the text without the tags, because minijinja does not
//! know them. A block calls the function [`FUNCTION`] instead, which can mark the start and the end
//! of the content. Tags in comments and in `raw` blocks are kept.

/// Name of the function that a block calls.
pub(super) const FUNCTION: &str = "assistant_generation";

/// The text of a template with replaced blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rewritten {
    pub(super) text: String,
    /// Number of replaced blocks.
    pub(super) blocks: usize,
}

/// Replaces `{% generation %}` by `{% call … %}`, and the end tag accordingly.
pub(super) fn rewrite(template: &str) -> Rewritten {
    let mut rewritten = Rewritten { text: String::with_capacity(template.len()), blocks: 0 };
    let mut rest = template;
    let mut is_raw = false;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        rewritten.text.push_str(before);
        let closed_by = match from.as_bytes().get(1) {
            Some(b'#') if !is_raw => "#}",
            Some(b'{') if !is_raw => "}}",
            Some(b'%') => "%}",
            _ => "{",
        };
        let length = if closed_by == "{" { 1 } else { end_of(from, closed_by) };
        let (part, behind) = from.split_at(length);
        let tag = if closed_by == "%}" {
            part.strip_prefix("{%").and_then(|part| part.strip_suffix("%}"))
        } else {
            None
        };
        match tag.map(|tag| tag.trim_matches(['-', '+']).trim()) {
            Some("raw") => is_raw = true,
            Some("endraw") => is_raw = false,
            Some("generation") if !is_raw => {
                rewritten.blocks += 1;
                rewritten.text.push_str(&part.replacen("generation", &format!("call {FUNCTION}()"), 1));
                rest = behind;
                continue;
            }
            Some("endgeneration") if !is_raw => {
                rewritten.text.push_str(&part.replacen("endgeneration", "endcall", 1));
                rest = behind;
                continue;
            }
            _ => {}
        }
        // A raw block is read tag by tag, because text in it may look like a tag.
        let taken = if is_raw && tag.is_some_and(|tag| tag.trim_matches(['-', '+']).trim() != "raw") {
            1
        } else {
            length
        };
        rewritten.text.push_str(&from[..taken]);
        rest = &from[taken..];
    }
    rewritten.text.push_str(rest);
    rewritten
}

/// Returns the length of a tag including its closing characters. Closing characters in quotes are
/// ignored. Without an end, the tag is the rest of the text.
fn end_of(tag: &str, closed_by: &str) -> usize {
    let mut quote = None;
    let mut is_escaped = false;
    for (offset, c) in tag.char_indices().skip(2) {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        match quote {
            Some(open) => match c {
                '\\' => is_escaped = true,
                c if c == open => quote = None,
                _ => {}
            },
            None if tag[offset..].starts_with(closed_by) => return offset + closed_by.len(),
            None if matches!(c, '\'' | '"') && closed_by != "#}" => quote = Some(c),
            None => {}
        }
    }
    tag.len()
}
