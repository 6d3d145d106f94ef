//! Text of C++: words, parentheses and lists of arguments. Comments and strings are not recognised.

/// The parenthesis was opened before the text.
pub(super) fn closing(text: &str) -> Option<usize> {
    let mut depth = 1_usize;
    text.char_indices().find_map(|(at, letter)| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// Splits at commas outside brackets.
pub(super) fn parts(params: &str) -> Vec<&str> {
    let (mut depth, mut start, mut all) = (0_i32, 0, Vec::new());
    for (at, letter) in params.char_indices() {
        match letter {
            '(' | '<' | '[' | '{' => depth += 1,
            ')' | '>' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                all.push(&params[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(&params[start..]);
    all.retain(|param| !matches!(param.trim(), "" | "void"));
    all
}

pub(super) fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

pub(super) fn last_word(text: &str) -> &str {
    let text = text.trim_end();
    let start = text.rfind(|letter| !is_of_word(letter)).map_or(0, |at| at + 1);
    &text[start..]
}
