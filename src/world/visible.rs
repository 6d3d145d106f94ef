//! Which cards a process sees, as CANN reads `ASCEND_RT_VISIBLE_DEVICES`.
//!
//! Input → output: the variable's text → the physical cards, whose positions are the numbers the process uses.
//! Source: CANN 8.1 environment variable reference, `ASCEND_RT_VISIBLE_DEVICES`: numbers in ascending order between
//! commas; only what stands before the first other character counts.

/// The physical cards of a list such as `4,5,7`. Reading stops where CANN stops: at the first thing that is not a number, and at one that
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
