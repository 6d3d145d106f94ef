//! Parts of sequences on several cards (context parallel): which tokens each card has.
//!
//! Input → output: the tokens of a sequence and the cards of the axis [`CONTEXT`] → the order in
//! which tokens are given to the programs, which cut them into runs. Positions and masks are
//! inputs, so nothing else knows that tokens are not in their order. Invariants: every token is
//! there once; a card's share is a run of the first tokens and one of the last, as a token attends
//! to all before it, so that all cards have as much to attend to.

use crate::base::Remainder;

/// The axis over which the tokens of a sequence are dealt.
pub const CONTEXT: &str = "cp";

/// The tokens of a sequence as `cards` have them, one card's behind the other's: of `2 · cards`
/// runs, card `c` has number `c` from the front and from the back.
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

    /// Token `t` attends to `t + 1`.
    #[test]
    fn all_cards_attend_to_as_much() {
        for (tokens, cards) in [(4096, 2), (4096, 8), (96, 3)] {
            let attended: Vec<usize> = order(tokens, cards)
                .chunks(tokens / cards)
                .map(|own| own.iter().map(|token| token + 1).sum())
                .collect();
            assert!(attended.iter().all(|own| *own == attended[0]), "{attended:?}");
        }
        // Where runs differ by a token, no card has more than the others by what one token attends
        // to.
        let (tokens, cards) = (103, 4);
        let order = order(tokens, cards);
        let own = |card: usize| Remainder::Balanced.range(tokens, cards, card);
        let attended: Vec<usize> =
            (0..cards).map(|card| order[own(card)].iter().map(|token| token + 1).sum()).collect();
        let spread = attended.iter().max().unwrap() - attended.iter().min().unwrap();
        assert!(spread <= tokens, "{attended:?}");
    }
}
