//! Parses `ASCEND_RT_VISIBLE_DEVICES` as in the CANN 8.1 environment variable reference: ascending
//! numbers separated by commas; reading stops at any other character.

/// Returns the physical cards of a list such as `4,5,7`, up to the first entry that is no number or
/// does not ascend.
#[must_use]
pub fn visible_cards(text: &str) -> Vec<usize> {
    let mut cards: Vec<usize> = Vec::new();
    for part in text.split(',') {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let Ok(card) = part[..digits].parse() else { break };
        if cards.last().is_some_and(|last| *last >= card) {
            break;
        }
        cards.push(card);
        if digits < part.len() {
            break;
        }
    }
    cards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_examples() {
        assert_eq!(visible_cards("1"), [1]);
        assert_eq!(visible_cards("1,2,3"), [1, 2, 3]);
        assert_eq!(visible_cards("1, 2,3"), [1], "a space ends the list");
        assert_eq!(visible_cards("1,2,-1,3"), [1, 2]);
        assert_eq!(visible_cards("4,5x,6"), [4, 5]);
        assert_eq!(visible_cards("3,2"), [3], "only ascending lists are supported");
        assert!(visible_cards("none").is_empty());
    }
}
