//! Fault injection: errors of cards, links and calls that a program injects and lifts again.
//!
//! - Modules: `fault` (the faults), `text` (their text form), `overlay` (counting of events),
//!   `strike` (effects), `delay` (entries held by a slow or stuck card).
//! - Invariants: events are counted from the injection, starting at 1. Functions that report errors
//!   are never struck. A lifted fault leaves no trace in the data: buffers contain the result of
//!   the last successful operator, and a lost card is as after a reset.

pub(crate) mod delay;
mod delays;
pub(crate) mod fault;
pub(crate) mod injected;
pub(crate) mod overlay;
mod strike;
mod text;

#[cfg(test)]
mod tests {
    use super::fault::{Fault, FaultError};

    #[test]
    fn impossible_faults_are_refused_by_name() {
        let cards = 2;
        let refusal =
            |text: &str| text.parse::<Fault>().expect("a fault").check(cards).expect_err("impossible");
        assert_eq!(
            refusal("slow:card=2:us=5").to_string(),
            "fault slow:card=2:us=5: there is no card 2; this machine has cards 0 to 1"
        );
        assert!(matches!(refusal("out-of-memory:at=0"), FaultError::Zeroth { .. }));
        assert!(matches!(refusal("link-down:at=1:cards=1-1"), FaultError::Loop { card: 1, .. }));
        assert!(matches!(refusal("kill:at=1:call=HcclNothing"), FaultError::Function { .. }));
        assert!(matches!(refusal("error:at=1:code=0"), FaultError::Success { .. }));
        assert_eq!("error:at=1:code=7:call=aclnnAdd".parse::<Fault>().expect("a fault").check(cards), Ok(()));
    }
}
