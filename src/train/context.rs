//! Context parallelism: distribution of the tokens of a sequence over cards.
//!
//! A card has a range of early tokens and a range of late tokens. This balances attention, because
//! a token attends to all earlier tokens. Positions and masks are inputs, so no other code depends
//! on the order.

use crate::base::Remainder;

/// Name of the context-parallel mesh axis.
pub const CONTEXT: &str = "cp";

/// Returns the tokens of a sequence in card order. Out of `2 · cards` ranges, card `c` has range
/// `c` from the front and from the back.
#[must_use]
pub fn order(tokens: usize, cards: usize) -> Vec<usize> {
    let (mut front, mut back) = (0, tokens);
    let mut order = Vec::with_capacity(tokens);
    for card in 0..cards {
        let own = Remainder::Balanced.range(tokens, cards, card).len();
        let (first, last) = (own.div_ceil(2), own / 2);
        order.extend((front..front + first).chain(back - last..back));
        (front, back) = (front + first, back - last);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_there_once_and_cards_have_a_front_and_a_back() {
        assert_eq!(order(8, 2), [0, 1, 6, 7, 2, 3, 4, 5]);
        assert_eq!(order(7, 3), [0, 1, 6, 2, 5, 3, 4]);
        assert_eq!(order(5, 1), [0, 1, 2, 3, 4]);
        for (tokens, cards) in [(64, 4), (13, 4), (3, 3), (100, 7)] {
            let mut all = order(tokens, cards);
            all.sort_unstable();
            assert!(all.into_iter().eq(0..tokens), "{tokens} over {cards}");
        }
    }

    #[test]
    fn all_cards_attend_to_as_much() {
        for (tokens, cards) in [(4096, 2), (4096, 8), (96, 3)] {
            let attended: Vec<usize> = order(tokens, cards)
                .chunks(tokens / cards)
                .map(|own| own.iter().map(|token| token + 1).sum())
                .collect();
            assert!(attended.iter().all(|own| *own == attended[0]), "{attended:?}");
        }
        // Uneven ranges differ by a token, and cards by the work of at most one token.
        let (tokens, cards) = (103, 4);
        let order = order(tokens, cards);
        let own = |card: usize| Remainder::Balanced.range(tokens, cards, card);
        let attended: Vec<usize> =
            (0..cards).map(|card| order[own(card)].iter().map(|token| token + 1).sum()).collect();
        let spread = attended.iter().max().unwrap() - attended.iter().min().unwrap();
        assert!(spread <= tokens, "{attended:?}");
    }
}
