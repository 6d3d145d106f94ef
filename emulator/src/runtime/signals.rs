//! Operations of streams on signals of this and other processes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::Machine;
use crate::memory::ipc::IpcName;
use crate::runtime::objects::Runtime;
use crate::runtime::signal::{Recheck, SharedWord, Signal, SignalAction, SignalWord};
use crate::runtime::stream::WaitReason;
use crate::state::MachineState;

impl MachineState {
    pub(crate) fn reach_signal(&mut self, id: u64, act: SignalAction, stream: u64, by: WaitReason) {
        let Some(signal) = self.runtime.signals.get_mut(&id) else {
            self.settle(stream, Err(HandleKind::Event.gone(id)));
            return;
        };
        match act {
            SignalAction::Set(value) => signal.word.raise(value),
            SignalAction::Clear => signal.word.clear(),
            SignalAction::Await(_) | SignalAction::Take if !signal.word.grants(act) => {
                signal.waiting.push_back((stream, act));
                match signal.watch(id) {
                    Ok(()) => self.begin_wait(stream, by),
                    Err(failure) => {
                        self.leave_signal(id, stream);
                        self.settle(stream, Err(failure));
                    }
                }
                return;
            }
            SignalAction::Await(_) | SignalAction::Take => self.drop_limit(stream),
        }
        self.settle(stream, Ok(()));
        self.recheck_signal(id);
    }

    /// The stream will never reach the action. A record still releases waiting streams.
    pub(crate) fn discard_signal(&mut self, id: u64, act: SignalAction) {
        if let (Some(signal), SignalAction::Set(value)) = (self.runtime.signals.get_mut(&id), act) {
            signal.word.raise(value);
            self.recheck_signal(id);
        }
    }

    /// Releases satisfied waits. Returns whether the thread on the futex must continue.
    pub(crate) fn recheck_signal(&mut self, id: u64) -> bool {
        let Runtime { signals, streams, .. } = &mut self.runtime;
        let Some(signal) = signals.get_mut(&id) else { return false };
        signal.waiting.retain(|(stream, _)| streams.contains_key(stream));
        let (mut over, mut waiting) = (Vec::new(), VecDeque::new());
        for (stream, act) in signal.waiting.drain(..) {
            if signal.word.grants(act) {
                over.push(stream);
            } else {
                waiting.push_back((stream, act));
            }
        }
        signal.waiting = waiting;
        signal.is_watched &= !signal.waiting.is_empty();
        let goes_on = signal.is_watched;
        for stream in over {
            self.settle(stream, Ok(()));
        }
        goes_on
    }

    pub(crate) fn leave_signal(&mut self, id: u64, stream: u64) {
        if let Some(signal) = self.runtime.signals.get_mut(&id) {
            signal.waiting.retain(|(waiting, _)| *waiting != stream);
        }
    }

    pub(crate) fn remove_signal(&mut self, id: u64, kind: HandleKind) {
        let Some(signal) = self.runtime.signals.remove(&id) else { return };
        for (stream, _) in signal.waiting {
            self.settle(stream, Err(kind.gone(id)));
        }
        if let SignalWord::Shared(word) = signal.word {
            // The sleeping thread then ends.
            word.bell.wake();
        }
    }

    pub(crate) fn shared_word(&self, id: u64) -> Option<Arc<SharedWord>> {
        self.runtime.signals.get(&id).and_then(|signal| signal.shared().cloned())
    }

    /// Work of `card` must have access to the creating card.
    pub(crate) fn require_reach(&self, id: u64, card: u32) -> Result<(), Failure> {
        let Some(on) = self.shared_word(id).map(|word| word.card) else { return Ok(()) };
        if on == card || self.runtime.cards[card as usize].peers.contains(&on) {
            return Ok(());
        }
        let what = format!(
            "it was exported on device {on}; call aclrtDeviceEnablePeerAccess({on}) on device {card} first, or import it \
             with the flag for that"
        );
        Err(Failure::new(code::PARAM_INVALID, what))
    }
}

impl Machine {
    pub(crate) fn own_signal(&self) -> Signal {
        Signal::new(SignalWord::Own(0), self.recheck())
    }

    /// Other processes may import the signal. Fails in strict and timed mode.
    pub(crate) fn shared_signal(&self, card: u32, is_set: bool, validates: bool) -> Result<Signal, Failure> {
        self.require_one_process()?;
        let word = SharedWord::create(card, u32::from(is_set), validates)?;
        Ok(Signal::new(SignalWord::Shared(Arc::new(word)), self.recheck()))
    }

    /// `what` names the expected kind.
    pub(crate) fn imported_signal(&self, name: IpcName, what: &str) -> Result<(Signal, u32), Failure> {
        self.require_one_process()?;
        let word = SharedWord::open(name, what)?;
        let card = word.card;
        Ok((Signal::new(SignalWord::Shared(Arc::new(word)), self.recheck()), card))
    }

    fn recheck(&self) -> Recheck {
        let machine = self.weak();
        Recheck(Arc::new(move |id| {
            machine.upgrade().is_some_and(|machine| machine.update(|state| state.recheck_signal(id)))
        }))
    }

    fn require_one_process(&self) -> Result<(), Failure> {
        if self.turnstile().is_none() {
            return Ok(());
        }
        let what = "events and notifies shared between processes are not modelled in strict and timed mode, which order one \
                    process";
        Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what))
    }
}
