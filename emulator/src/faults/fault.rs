//! Faults that a machine can have, and what is wrong with a description of one.
//!
//! Input: a description, the cards and the mode of a machine. Output: whether it can be laid over that machine. Does not:
//! strike (see `overlay`, `delay`).

use std::time::Duration;

/// Which call of the C ABI a fault strikes: the `at`-th since the injection among those that match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calls {
    /// 1 is the first.
    pub at: u64,
    /// Only calls of this C function; None counts all.
    pub function: Option<String>,
    /// Only calls of threads on which this card is current; None counts all.
    pub card: Option<u32>,
}

impl Calls {
    /// The `at`-th call, whatever it is.
    #[must_use]
    pub fn nth(at: u64) -> Self {
        Self { at, function: None, card: None }
    }

    /// Counts only calls of one C function.
    #[must_use]
    pub fn of(self, function: &str) -> Self {
        Self { function: Some(function.to_owned()), ..self }
    }

    /// Counts only calls of threads on which `card` is current.
    #[must_use]
    pub fn on(self, card: u32) -> Self {
        Self { card: Some(card), ..self }
    }
}

/// Whether a transfer carries a checksum that its receiver verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// Wrong data arrives unnoticed, as on a wire without one.
    Absent,
    /// Wrong data fails the collective on every rank.
    Verified,
}

/// What goes wrong.
///
/// As text (in `ASCEND_EMULATOR=…,fault=TEXT`, and from [`Display`](std::fmt::Display)) a fault is its name and fields, for
/// example `error:at=3:code=507015:call=HcclAllReduce:card=1` or `slow:card=2:us=500`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The `at`-th allocation of device memory (on `card`, if given) fails as on a full card.
    OutOfMemory {
        /// 1 is the first.
        at: u64,
        /// Only allocations on this card count.
        card: Option<u32>,
    },
    /// A call is not made and returns an error code.
    Error {
        /// Which calls of the function it strikes.
        calls: Calls,
        /// A code of AscendCL (translated for functions of HCCL and aclnn), or one of the function's own library.
        code: i32,
    },
    /// The card current on the thread that makes the call is lost: this and every later call on it fail, its streams
    /// fail, its ranks leave their communicators. Lifted, the card is as after a reset.
    CardLost {
        /// Which call; calls of threads without a current card do not count.
        calls: Calls,
    },
    /// The process ends at once, without unwinding.
    Kill {
        /// Which calls of the function it strikes.
        calls: Calls,
    },
    /// Every entry of the card's streams starts this much later.
    Slow {
        /// The card it happens on.
        card: u32,
        /// How much later.
        delay: Duration,
    },
    /// The `at`-th entry that a stream of the card begins does not end: until the fault is lifted (it then runs), or
    /// until the watchdog's limit (it then fails with `ACL_ERROR_RT_AICORE_TIMEOUT`).
    Stuck {
        /// 1 is the first.
        at: u64,
        /// The card it happens on.
        card: u32,
        /// The watchdog's limit; if none is given, that of `aclrtSetOpExecuteTimeOut`.
        limit: Option<Duration>,
    },
    /// From the `at`-th collective on that both cards take part in, none moves data: all its ranks get an error.
    LinkDown {
        /// 1 is the first.
        at: u64,
        /// The link's ends.
        cards: [u32; 2],
    },
    /// One bit of what the card receives in its `at`-th receiving collective is flipped.
    BitFlip {
        /// 1 is the first.
        at: u64,
        /// The receiving card.
        card: u32,
        /// Picks the bit.
        seed: u64,
        /// Whether the receiver notices.
        checksum: Checksum,
    },
}

/// Why a fault cannot be laid over a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// The text is not a fault.
    #[error("fault {text:?}: {reason}")]
    Text {
        /// What could not be read.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The machine has no such card.
    #[error("fault {fault}: there is no card {card}; this machine has cards 0 to {last}")]
    Card {
        /// The fault as it was written.
        fault: String,
        /// The card it names.
        card: u32,
        /// The last card there is.
        last: usize,
    },
    /// Events are counted from 1.
    #[error("fault {fault}: at is 0; events are counted from 1")]
    Zeroth {
        /// The fault as it was written.
        fault: String,
    },
    /// No function of this name exists.
    #[error("fault {fault}: there is no C function {function}")]
    Function {
        /// The fault as it was written.
        fault: String,
        /// The name it gives.
        function: String,
    },
    /// A link has two ends.
    #[error("fault {fault}: a link joins two cards, not card {card} to itself")]
    Loop {
        /// The fault as it was written.
        fault: String,
        /// The card it happens on.
        card: u32,
    },
    /// An error code that means success.
    #[error("fault {fault}: code 0 means success")]
    Success {
        /// The fault as it was written.
        fault: String,
    },
    /// Data of collectives already travels where this process does not see all of it.
    #[error(
        "fault {fault}: communicators of this machine share memory with other processes, and what strikes data on its way \
         has to be laid over it before they are made; inject it before HcclCommInitRootInfo, or give it as fault=… in \
         ASCEND_EMULATOR"
    )]
    TooLate {
        /// The fault as it was written.
        fault: String,
    },
}

impl Fault {
    pub(super) fn calls(&self) -> Option<&Calls> {
        match self {
            Self::Error { calls, .. } | Self::CardLost { calls } | Self::Kill { calls } => Some(calls),
            _ => None,
        }
    }

    fn cards(&self) -> Vec<u32> {
        match self {
            Self::OutOfMemory { card, .. } => card.iter().copied().collect(),
            Self::Error { calls, .. } | Self::CardLost { calls } | Self::Kill { calls } => {
                calls.card.iter().copied().collect()
            }
            Self::Slow { card, .. } | Self::Stuck { card, .. } | Self::BitFlip { card, .. } => vec![*card],
            Self::LinkDown { cards, .. } => cards.to_vec(),
        }
    }

    fn at(&self) -> u64 {
        match self {
            Self::OutOfMemory { at, .. } | Self::Stuck { at, .. } => *at,
            Self::LinkDown { at, .. } | Self::BitFlip { at, .. } => *at,
            Self::Error { calls, .. } | Self::CardLost { calls } | Self::Kill { calls } => calls.at,
            Self::Slow { .. } => 1,
        }
    }

    /// Whether a machine of `cards` cards can have this fault.
    pub(super) fn check(&self, cards: usize) -> Result<(), FaultError> {
        let fault = self.to_string();
        if self.at() == 0 {
            return Err(FaultError::Zeroth { fault });
        }
        if let Some(card) = self.cards().into_iter().find(|card| *card as usize >= cards) {
            return Err(FaultError::Card { fault, card, last: cards - 1 });
        }
        if let Some(function) = self.calls().and_then(|calls| calls.function.clone())
            && !is_function(&function)
        {
            return Err(FaultError::Function { fault, function });
        }
        match self {
            Self::LinkDown { cards: [a, b], .. } if a == b => Err(FaultError::Loop { fault, card: *a }),
            Self::Error { code: 0, .. } => Err(FaultError::Success { fault }),
            _ => Ok(()),
        }
    }
}

impl Fault {
    /// Whether it strikes data on its way between cards.
    pub(crate) fn strikes_transfers(&self) -> bool {
        matches!(self, Self::LinkDown { .. } | Self::BitFlip { .. })
    }
}

/// Whether the C ABI has a function of this name; an operator's two phases are functions of their own.
fn is_function(name: &str) -> bool {
    let mut symbols = ascend_tp_sys::Table::SYMBOLS.iter().chain(ascend_tp_sys::DROPIN_SYMBOLS);
    symbols.any(|(symbol, _, _)| *symbol == name)
}
