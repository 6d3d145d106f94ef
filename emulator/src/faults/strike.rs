//! Effects of faults on a machine.

use crate::base::failure::{Failure, code};
use crate::faults::overlay::CallFault;
use crate::machine::Machine;
use crate::runtime::thread;
use crate::state::MachineState;

/// Such functions work even if the card is lost.
fn is_host_only(name: &str) -> bool {
    name.starts_with("aclDestroy") || name == "aclFinalize" || name == "aclFinalizeReference"
}

impl Machine {
    /// Fails if a fault strikes the call or its card is lost.
    pub(crate) fn before_call(&self, name: &str) -> Result<(), Failure> {
        if self.faults().passes_by(name) {
            return Ok(());
        }
        let card = {
            let state = self.lock();
            let context =
                thread::context(self.key()).and_then(|context| state.runtime.contexts.get(&context));
            let card = context.map(|context| context.card);
            if let Some(lost) = card.and_then(|card| state.runtime.cards[card as usize].lost.clone()) {
                return if is_host_only(name) { Ok(()) } else { Err(lost) };
            }
            card
        };
        match self.faults().count_call(name, card) {
            None => Ok(()),
            Some((CallFault::Error(code), at)) => {
                Err(Failure::new(code, format!("injected fault: code {code} at event {at}")))
            }
            Some((CallFault::Lose(card), at)) => Err(self.lose(card, name, at)),
            Some((CallFault::Kill, _)) => std::process::abort(),
        }
    }

    /// The card's streams fail, and its ranks leave their communicators. Returns the failure of all
    /// later calls on the card.
    fn lose(&self, card: u32, call: &str, at: u64) -> Failure {
        self.update(|state| {
            let rank = state
                .hccl
                .communicators
                .first_rank_of_card(card)
                .map_or(String::new(), |rank| format!("rank {rank} on "));
            let what = format!("{rank}card {card} is lost (injected fault at event {at}, {call})");
            let failure = Failure::new(code::LOST_HEARTBEAT, what);
            state.runtime.cards[card as usize].lost = Some(failure.clone());
            state.leave_communicators_on_card(card, "was lost (injected fault)");
            for stream in state.streams_of_card(card) {
                state.end_stream(stream, &failure);
                if let Some(stream) = state.runtime.streams.get(&stream) {
                    stream.wake();
                }
            }
            state.scheduler.has_progressed = true;
            failure
        })
    }

    /// A restored card is empty, as after a reset.
    pub(super) fn revive(&self, card: u32) {
        self.update(|state| state.empty_card(card, "was destroyed when its card was lost"));
        self.memory().free_card(card, self.here().as_ref());
    }
}

impl MachineState {
    fn empty_card(&mut self, card: u32, why: &str) {
        let contexts: Vec<u64> =
            self.runtime.contexts.iter().filter(|(_, c)| c.card == card).map(|(id, _)| *id).collect();
        for context in contexts {
            self.remove_context(context, why);
        }
        self.runtime.events.retain(|_, event| event.card != card);
        self.runtime.notifies.retain(|_, notify| notify.card != card);
        let state = &mut self.runtime.cards[card as usize];
        state.default_context = None;
        (state.references, state.events, state.notifies) = (0, 0, 0);
        state.lost = None;
    }
}
