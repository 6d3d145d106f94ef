//! Records and waits of notifies.

use crate::base::failure::Failure;
use crate::base::handle::HandleKind;
use crate::runtime::signal::SignalAction;
use crate::runtime::stream::WaitReason;
use crate::state::MachineState;

impl MachineState {
    /// Releases the longest-waiting stream, or sets the flag.
    pub(crate) fn set_notify(&mut self, id: u64) {
        if self.runtime.signals.contains_key(&id) {
            return self.discard_signal(id, SignalAction::Set(1));
        }
        let Some(notify) = self.runtime.notifies.get_mut(&id) else { return };
        match notify.waiting.pop_front() {
            Some(stream) => self.settle(stream, Ok(())),
            None => notify.set = true,
        }
    }

    pub(crate) fn await_notify(&mut self, id: u64, stream: u64) {
        if self.runtime.signals.contains_key(&id) {
            return self.reach_signal(id, SignalAction::Take, stream, WaitReason::Notify(id));
        }
        match self.runtime.notifies.get_mut(&id) {
            Some(notify) if notify.set => {
                notify.set = false;
                self.drop_limit(stream);
                self.settle(stream, Ok(()));
            }
            Some(notify) => {
                notify.waiting.push_back(stream);
                self.begin_wait(stream, WaitReason::Notify(id));
            }
            None => self.settle(stream, Err(HandleKind::Notify.gone(id))),
        }
    }

    pub(crate) fn leave_notify(&mut self, id: u64, stream: u64) {
        self.leave_signal(id, stream);
        if let Some(notify) = self.runtime.notifies.get_mut(&id) {
            notify.waiting.retain(|waiting| *waiting != stream);
        }
    }

    pub(crate) fn remove_notify(&mut self, id: u64) -> Result<(), Failure> {
        let notify = self.runtime.notifies.remove(&id).ok_or_else(|| HandleKind::Notify.gone(id))?;
        self.remove_signal(id, HandleKind::Notify);
        for stream in notify.waiting {
            self.settle(stream, Err(HandleKind::Notify.gone(id)));
        }
        Ok(())
    }
}
