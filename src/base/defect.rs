//! Faults of compiler passes, injected to test the verifiers.
//!
//! Input → output: a pass marks a place with [`defect!`] → in unit tests, the fault that the test
//! selected; in all other builds, no code. Invariants: a fault strikes once, at the occasion that
//! the test selected, on the thread that selected it. Not here: what a fault changes. That code is
//! at its place in the pass.

/// Marks a place where a test can inject a fault. The second argument runs if the fault strikes.
/// `let x = y` shadows `x`. A fault that is marked `always` strikes at every occasion.
macro_rules! defect {
    (always $name:ident, $change:expr) => {
        #[cfg(test)]
        if $crate::base::defect::is_injected($crate::base::defect::Defect::$name) {
            $change;
        }
    };
    ($name:ident, let $changed:ident = $value:expr) => {
        #[cfg(test)]
        let $changed = if $crate::base::defect::strikes($crate::base::defect::Defect::$name) {
            $value
        } else {
            $changed
        };
    };
    ($name:ident, $change:expr) => {
        #[cfg(test)]
        if $crate::base::defect::strikes($crate::base::defect::Defect::$name) {
            $change;
        }
    };
}
pub(crate) use defect;

#[cfg(test)]
pub(crate) use injected::{Defect, is_injected, strikes};

#[cfg(test)]
mod injected {
    use std::cell::Cell;

    macro_rules! defects {
        ($($name:ident)*) => {
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            pub(crate) enum Defect { $($name),* }

            impl Defect {
                pub(crate) const ALL: &[Self] = &[$(Self::$name),*];
            }
        };
    }

    defects! {
        // placement
        PartialForgotten ShardOnOtherDim OperandAsItLies
        // collective
        ReshardMissing CopyInOtherLayout StepMissing StepsSwapped StepOnFewerAxes StepWithOtherReduction StepAlongOtherDim
        FusedWhileShared FusedAlongOtherDim SharedMemberMissing SharedMembersSwapped SharedTooEarly
        // schedule::emit
        CollectiveMissing CollectiveTwice CollectiveInOtherGroup CollectiveOnComputeStream CountsTurned OtherReduction
        WindowOfNeighbour WindowsTurned LaunchMissing LaunchesSwapped CopyMissing ZeroMissing LeaderEverywhere StateElsewhere
        DenseForgotten PartOfNeighbour OutputMissing TapTooEarly
        JoinedWindowsSwapped JoinedOpMissing
        RingToOtherNeighbour RingWithOtherMask
        TransferMissing TransferToOtherStage TransferOfOtherMicroBatch TaskMissing
        // schedule::with_exchange, schedule::overlap
        ConflictForgotten ExchangesSwappedOnOneRank
        // schedule::memory
        LivesEndEarly LifeEndsEarly LifeBeginsLate OffsetLower BufferShorter
        // schedule::order
        EventMissing RecordTooEarly WaitTooLate ReadForgotten WriteForgotten CoresForgotten
    }

    /// The fault that strikes on this thread.
    #[derive(Clone, Copy)]
    struct InjectedDefect {
        defect: Defect,
        /// Occasions before the one at which it strikes.
        before: usize,
        occasions: usize,
    }

    thread_local! {
        static INJECTED: Cell<Option<InjectedDefect>> = const { Cell::new(None) };
    }

    /// Returns whether a fault strikes here, and counts the occasion.
    pub(crate) fn strikes(defect: Defect) -> bool {
        INJECTED.with(|cell| {
            let Some(injected) = cell.get().filter(|injected| injected.defect == defect) else {
                return false;
            };
            cell.set(Some(InjectedDefect { occasions: injected.occasions + 1, ..injected }));
            injected.occasions == injected.before
        })
    }

    /// Returns whether a fault is injected, and counts the occasion.
    pub(crate) fn is_injected(defect: Defect) -> bool {
        let is_first = strikes(defect);
        is_first || INJECTED.with(Cell::get).is_some_and(|it| it.defect == defect && it.before != usize::MAX)
    }

    /// Runs `work` on this thread with a fault that strikes after `before` occasions. Returns its
    /// result and the number of occasions. `usize::MAX` only counts.
    pub(super) fn inject<T>(defect: Defect, before: usize, work: impl FnOnce() -> T) -> (T, usize) {
        INJECTED.with(|cell| cell.set(Some(InjectedDefect { defect, before, occasions: 0 })));
        let made = work();
        let occasions = INJECTED.with(Cell::take).map_or(0, |injected| injected.occasions);
        (made, occasions)
    }
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests;
