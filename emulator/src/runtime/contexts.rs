//! Devices and contexts that the program sets, resets, creates and destroys.

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::Machine;
use crate::runtime::context::{CardContext, Reset};
use crate::runtime::options::ContextParameters;
use crate::runtime::stream::{self, StreamQueue};
use crate::runtime::thread;
use crate::state::MachineState;

impl MachineState {
    pub(crate) fn card_of_ordinal(&self, ordinal: i32) -> Result<u32, Failure> {
        match u32::try_from(ordinal) {
            Ok(card) if (card as usize) < self.runtime.cards.len() => {
                self.runtime.cards[card as usize].lost.clone().map_or(Ok(card), Err)
            }
            _ => {
                let what = format!(
                    "no device {ordinal}: this machine has devices 0 to {}",
                    self.runtime.cards.len() - 1
                );
                Err(Failure::new(code::INVALID_DEVICE, what))
            }
        }
    }

    pub(crate) fn current(&self, current: Option<u64>) -> Result<(u64, &CardContext), Failure> {
        let id = current.ok_or_else(stream::no_context)?;
        let context = self.runtime.contexts.get(&id).ok_or_else(|| stream::context_gone(id))?;
        Ok((id, context))
    }

    pub(crate) fn create_context(&mut self, card: u32) -> Result<u64, Failure> {
        self.require_initialized()?;
        let id = self.fresh_number();
        let default_stream = self.create_stream(id, card, 0, 0, true)?;
        let parameters = ContextParameters::default();
        self.runtime
            .contexts
            .insert(id, CardContext { card, default_stream, stops_on_failure: false, parameters });
        Ok(id)
    }

    pub(crate) fn create_stream(
        &mut self,
        context: u64,
        card: u32,
        priority: u32,
        flags: u32,
        is_default: bool,
    ) -> Result<u64, Failure> {
        self.require_streams(card, 1, "a stream")?;
        let state = &mut self.runtime.cards[card as usize];
        let ordinal = state.streams_made;
        state.streams += 1;
        state.streams_made += 1;
        let id = self.fresh_number();
        self.runtime
            .streams
            .insert(id, StreamQueue::new(context, card, priority, flags, is_default, ordinal));
        Ok(id)
    }

    /// Returns the context's card if it was the card's last context.
    pub(crate) fn remove_context(&mut self, id: u64, why: &str) -> Option<u32> {
        let context = self.runtime.contexts.remove(&id)?;
        self.remove_graphs_of(id, why);
        let streams: Vec<u64> =
            self.runtime.streams.iter().filter(|(_, s)| s.context == id).map(|(id, _)| *id).collect();
        for stream in streams {
            self.remove_stream(stream, why);
        }
        let is_last = self.runtime.contexts.values().all(|other| other.card != context.card);
        if is_last {
            self.leave_communicators_on_card(context.card, why);
        }
        is_last.then_some(context.card)
    }

    /// `aclnnInit` counts as initialization too (aclnn reference).
    pub(crate) fn require_initialized(&self) -> Result<(), Failure> {
        if self.runtime.initialized > 0 || self.runtime.has_operators {
            return Ok(());
        }
        Err(Failure::new(code::UNINITIALIZED, "aclInit has not been called, or aclFinalize has"))
    }
}

impl Machine {
    /// The first call creates the card's default context.
    pub(crate) fn set_device(&self, ordinal: i32) -> Result<(), Failure> {
        let context = self.update(|state| {
            state.require_initialized()?;
            let card = state.card_of_ordinal(ordinal)?;
            let context = match state.runtime.cards[card as usize].default_context {
                Some(context) => context,
                None => state.create_context(card)?,
            };
            let state = &mut state.runtime.cards[card as usize];
            state.default_context = Some(context);
            state.references += 1;
            Ok(context)
        })?;
        thread::set_context(self.key(), Some(context));
        Ok(())
    }

    /// The last release destroys the card's default context.
    pub(crate) fn reset_device(&self, ordinal: i32, how: Reset) -> Result<(), Failure> {
        let emptied = self.update(|state| {
            let card = state.card_of_ordinal(ordinal)?;
            let reset = &mut state.runtime.cards[card as usize];
            let Some(context) = reset.default_context else {
                let what = format!("device {card} is not set; each reset needs an aclrtSetDevice before it");
                return Err(Failure::new(code::INVALID_DEVICE, what));
            };
            reset.references = if how == Reset::Force { 0 } else { reset.references - 1 };
            if reset.references > 0 {
                return Ok(None);
            }
            reset.default_context = None;
            Ok(state.remove_context(context, "was destroyed when its device was reset"))
        })?;
        if let Some(card) = emptied {
            self.report_leaks_of_card(card);
            self.memory().free_card(card, self.here().as_ref());
        }
        Ok(())
    }

    pub(crate) fn destroy_context(&self, id: u64) -> Result<(), Failure> {
        self.update(|state| {
            let Some(context) = state.runtime.contexts.get(&id) else {
                return Err(HandleKind::Context.gone(id));
            };
            if state.runtime.cards[context.card as usize].default_context == Some(id) {
                let card = context.card;
                let what = format!(
                    "context {id} is the default context of card {card}; call aclrtResetDevice instead"
                );
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            state.remove_context(id, "was destroyed with its context");
            Ok(())
        })?;
        if thread::context(self.key()) == Some(id) {
            thread::set_context(self.key(), None);
        }
        Ok(())
    }

    pub(crate) fn current_card(&self) -> Result<u32, Failure> {
        self.lock().current(thread::context(self.key())).map(|(_, context)| context.card)
    }
}
