//! Faults of a machine, and errors in their description.

use std::time::Duration;

/// Selects the `at`-th matching call since the injection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calls {
    /// Number of the matching call; 1 is the first.
    pub at: u64,
    /// Counts only calls of this C function; `None` counts all functions.
    pub function: Option<String>,
    /// Counts only calls of threads on which this card is current; `None` counts all.
    pub card: Option<u32>,
}

impl Calls {
    /// Selects the `at`-th call of any function.
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

/// Verification of transferred data by the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// Wrong data arrives unnoticed, as on a link without checksums.
    Absent,
    /// Wrong data fails the collective on every rank.
    Verified,
}

/// A fault of a machine.
///
/// Its text form (`ASCEND_EMULATOR=…,fault=TEXT`) is its name and fields. Examples:
/// `error:at=3:code=507015:call=HcclAllReduce:card=1`, `slow:card=2:us=500`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The `at`-th allocation (on `card`, if given) fails as on a full card.
    OutOfMemory {
        /// Number of the allocation; 1 is the first.
        at: u64,
        /// Only allocations on this card count.
        card: Option<u32>,
    },
    /// A call returns an error code without being executed.
    Error {
        /// Selects the call that fails.
        calls: Calls,
        /// A code of AscendCL (translated for HCCL and aclnn), or of the function's own library.
        code: i32,
    },
    /// The current card of the calling thread is lost. Every later call on the card fails, its
    /// streams fail, and its ranks leave their communicators. Lifting the fault resets the card.
    CardLost {
        /// Selects the call, among threads with a current card.
        calls: Calls,
    },
    /// The process ends immediately, without unwinding.
    Kill {
        /// Selects the call that ends the process.
        calls: Calls,
    },
    /// Every entry of the card's streams starts later.
    Slow {
        /// The card that becomes slow.
        card: u32,
        /// Delay of each entry.
        delay: Duration,
    },
    /// The `at`-th entry that the card starts does not end. It runs when the fault is lifted, or
    /// fails at the watchdog's limit with `ACL_ERROR_RT_AICORE_TIMEOUT`.
    Stuck {
        /// Number of the entry; 1 is the first.
        at: u64,
        /// The card with the stuck entry.
        card: u32,
        /// The watchdog's limit; `None` means the limit of `aclrtSetOpExecuteTimeOut`.
        limit: Option<Duration>,
    },
    /// From the `at`-th collective with both cards on, every such collective fails.
    LinkDown {
        /// Number of the collective; 1 is the first.
        at: u64,
        /// The two cards that the link connects.
        cards: [u32; 2],
    },
    /// One bit is flipped in the `at`-th collective that the card receives.
    BitFlip {
        /// Number of the collective; 1 is the first.
        at: u64,
        /// The card that receives the data.
        card: u32,
        /// Seed that selects the bit.
        seed: u64,
        /// Verification of the received data.
        checksum: Checksum,
    },
}

/// Reason why a machine cannot have a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// The text does not describe a fault.
    #[error("fault {text:?}: {reason}")]
    Text {
        /// The text that could not be parsed.
        text: String,
        /// The error in the text.
        reason: String,
    },
    /// The machine has no such card.
    #[error("fault {fault}: there is no card {card}; this machine has cards 0 to {last}")]
    Card {
        /// Text of the fault.
        fault: String,
        /// The card in the text.
        card: u32,
        /// The last card of the machine.
        last: usize,
    },
    /// The fault has `at=0`; events are counted from 1.
    #[error("fault {fault}: at is 0; events are counted from 1")]
    Zeroth {
        /// Text of the fault.
        fault: String,
    },
    /// No C function has this name.
    #[error("fault {fault}: there is no C function {function}")]
    Function {
        /// Text of the fault.
        fault: String,
        /// The function name in the text.
        function: String,
    },
    /// A link connects a card to itself.
    #[error("fault {fault}: a link joins two cards, not card {card} to itself")]
    Loop {
        /// Text of the fault.
        fault: String,
        /// The card that is named twice.
        card: u32,
    },
    /// The error code is 0, which means success.
    #[error("fault {fault}: code 0 means success")]
    Success {
        /// Text of the fault.
        fault: String,
    },
    /// The machine's communicators already share memory with other processes.
    #[error(
        "fault {fault}: communicators of this machine share memory with other processes, so faults of transfers must \
         exist before the communicators; inject it before HcclCommInitRootInfo, or set fault=… in ASCEND_EMULATOR"
    )]
    TooLate {
        /// Text of the fault.
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
    pub(crate) fn strikes_transfers(&self) -> bool {
        matches!(self, Self::LinkDown { .. } | Self::BitFlip { .. })
    }
}

/// The two phases of an operator are separate functions.
fn is_function(name: &str) -> bool {
    let mut symbols = ascend_tp_sys::Table::SYMBOLS.iter().chain(ascend_tp_sys::DROPIN_SYMBOLS);
    symbols.any(|(symbol, _, _)| *symbol == name)
}
