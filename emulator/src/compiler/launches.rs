//! Parts of a kernel's source that are not C++ of this host: launches
//! `name<<<blocks, memory, stream>>>(…)` and the instruction `asm("trap")`.
//!
//! Output: the same text in C++, with the same lines. Comments and strings stay as they are.

use std::fmt::Write as _;

use super::text::{is_of_word, parts};

const TRAP: &str = "asm(\"trap\")";

/// Rewrites a source. Returns `None` if nothing changes.
pub(super) fn rewrite(text: &str) -> Option<String> {
    let without_traps = text.replace(TRAP, "AscendC::Trap()");
    let launching = launches(&without_traps);
    launching.or_else(|| text.contains(TRAP).then_some(without_traps))
}

fn launches(text: &str) -> Option<String> {
    let mut result = String::new();
    let (mut done, mut at) = (0, 0);
    while let Some(skip) = next(&text[at..]) {
        let open = at + skip;
        let Some(close) = text[open..].find(">>>").map(|close| open + close) else { break };
        let head = kernel(&text[done..open]);
        let configuration = parts(&text[open + 3..close]);
        at = close + 3;
        let ([blocks, stream] | [blocks, _, stream]) = configuration[..] else { continue };
        let name = &text[open - head..open];
        result += &text[done..open - head];
        let _ = write!(result, "ascend_host::Launching<&{name}>(({}), ({}))", blocks.trim(), stream.trim());
        done = at;
    }
    (done != 0).then(|| result + &text[done..])
}

/// Finds the next `<<<` outside comments and strings.
fn next(text: &str) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("<<<") {
            return Some(at);
        }
        at += if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with('"') {
            string(rest)
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
    }
    None
}

/// Length of the string that `text` begins with.
fn string(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, letter)| {
        let is_end = *letter == '"' && !is_escaped;
        is_escaped = *letter == '\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// Length of the kernel's name, with its template arguments, at the end of `text`.
fn kernel(text: &str) -> usize {
    let mut depth = 0_usize;
    let start = text.char_indices().rev().find(|(_, letter)| {
        match letter {
            '>' => depth += 1,
            '<' => depth = depth.saturating_sub(1),
            _ => return depth == 0 && !is_of_word(*letter) && !matches!(letter, ':' | '#'),
        }
        false
    });
    text.len() - start.map_or(0, |(at, letter)| at + letter.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_become_calls_on_their_lines() {
        let text = "// x<<<1, 2, 3>>>(y)\nint run(void *s) { return add<<<blocks(1, 2), nullptr, s>>>(x); }\n\
                    void other(void *s) { auto text = \"a<<<\\\"b\";\n    copy<float, 2><<<8, s>>>(x, 1 << 2); }\n";
        let expected = "// x<<<1, 2, 3>>>(y)\nint run(void *s) { return \
                        ascend_host::Launching<&add>((blocks(1, 2)), (s))(x); }\n\
                        void other(void *s) { auto text = \"a<<<\\\"b\";\n    \
                        ascend_host::Launching<&copy<float, 2>>((8), (s))(x, 1 << 2); }\n";
        assert_eq!(rewrite(text).as_deref(), Some(expected));
        assert_eq!(rewrite("void f() { asm(\"trap\"); }").as_deref(), Some("void f() { AscendC::Trap(); }"));
        assert_eq!(rewrite("int shifted = 1 << 2; // <<<"), None);
    }
}
