//! AscendCL: events and notifies shared between processes of one host.

use std::ffi::c_char;
use std::sync::Arc;

use ascend_tp_sys::{aclrtEvent, aclrtIpcEventHandle, aclrtNotify};

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::Machine;
use crate::memory::ipc::{IpcName, KEY_BYTES};
use crate::memory::raw::{load_array, load_text};
use crate::runtime::budget::{MAX_EVENTS, MAX_NOTIFIES};
use crate::runtime::event::{self, EventKind, EventState};
use crate::runtime::notify::Notify;
use crate::runtime::signal::SharedWord;

/// `ACL_RT_NOTIFY_EXPORT_FLAG_DISABLE_PID_VALIDATION`: any process may import the notify.
const NO_LIST: u64 = 2;
/// `ACL_RT_NOTIFY_IMPORT_FLAG_ENABLE_PEER_ACCESS`, from the importing to the exporting card.
const WITH_PEER_ACCESS: u64 = 2;

fn check_flags(flags: u64, other: u64, name: &str) -> Result<(), Failure> {
    if flags == 0 || flags == other {
        return Ok(());
    }
    Err(Failure::new(
        code::INVALID_PARAM,
        format!("flags is {flags:#x}; it must be 0 (default) or {other} ({name})"),
    ))
}

impl Machine {
    pub(super) fn aclrtIpcGetEventHandle(
        &self,
        event: aclrtEvent,
        handle: Out<aclrtIpcEventHandle>,
    ) -> Result<(), Failure> {
        let id = HandleKind::Event.decode(event)?;
        let word = {
            let mut state = self.lock();
            state.event(id)?;
            state.shared_word(id).ok_or_else(|| {
                let what = format!(
                    "event {id} belongs to this process alone: create it by aclrtCreateEventExWithFlag with ACL_EVENT_IPC"
                );
                Failure::new(code::PARAM_INVALID, what)
            })?
        };
        let mut answer = aclrtIpcEventHandle { reserved: [0; 64] };
        for (into, from) in answer.reserved.iter_mut().zip(word.name().key()) {
            *into = from.cast_signed() as c_char;
        }
        handle.set("handle", answer)
    }

    /// The new event of the current device refers to another process's event.
    pub(super) fn aclrtIpcOpenEventHandle(
        &self,
        handle: aclrtIpcEventHandle,
        event: Out<aclrtEvent>,
    ) -> Result<(), Failure> {
        if event.is_null() {
            return Err(Failure::null("event"));
        }
        let card = self.current_card()?;
        let bytes: Vec<u8> = handle
            .reserved
            .iter()
            .take_while(|byte| **byte != 0)
            .flat_map(|byte| byte.to_ne_bytes())
            .collect();
        let name = IpcName::of_key(&String::from_utf8_lossy(&bytes))?;
        let (signal, _) = self.imported_signal(name, "an event")?;
        let id = self.update(|state| {
            let on_card = &mut state.runtime.cards[card as usize];
            if on_card.events >= MAX_EVENTS {
                let what = format!("card {card} has all its {MAX_EVENTS} events in use; destroy some");
                return Err(Failure::new(code::NO_EVENT, what));
            }
            on_card.events += 1;
            let id = state.fresh_number();
            state.runtime.events.insert(
                id,
                EventState { card, kind: EventKind::ExWithFlag, flags: event::IPC, latest: None },
            );
            state.runtime.signals.insert(id, signal);
            Ok(id)
        })?;
        event.set("event", HandleKind::Event.encode(id))
    }

    pub(super) unsafe fn aclrtNotifyGetExportKey(
        &self,
        notify: aclrtNotify,
        key: Out<c_char>,
        len: usize,
        flags: u64,
    ) -> Result<(), Failure> {
        if key.is_null() {
            return Err(Failure::null("key"));
        }
        if len < KEY_BYTES {
            return Err(Failure::new(
                code::INVALID_PARAM,
                format!("len is {len}; it must be {KEY_BYTES} at least"),
            ));
        }
        check_flags(flags, NO_LIST, "DISABLE_PID_VALIDATION")?;
        let id = HandleKind::Notify.decode(notify)?;
        let word = self.export_notify(id, flags == 0)?;
        // SAFETY: the C caller passes 65 characters or more.
        unsafe { key.of::<[u8; KEY_BYTES]>() }.set("key", word.name().key())
    }

    fn export_notify(&self, id: u64, validates: bool) -> Result<Arc<SharedWord>, Failure> {
        let card = {
            let state = self.lock();
            if let Some(word) = state.shared_word(id) {
                return Ok(word);
            }
            state.runtime.notifies.get(&id).ok_or_else(|| HandleKind::Notify.gone(id))?.card
        };
        let signal = self.shared_signal(card, false, validates)?;
        self.update(|state| {
            let notify = state.runtime.notifies.get_mut(&id).ok_or_else(|| HandleKind::Notify.gone(id))?;
            let Some(is_set) = notify.export() else {
                let what = format!("notify {id}: a stream waits for it; export it before it is used");
                return Err(Failure::new(code::PARAM_INVALID, what));
            };
            state.runtime.signals.insert(id, signal);
            if is_set {
                state.set_notify(id);
            }
            state.shared_word(id).ok_or_else(|| HandleKind::Notify.gone(id))
        })
    }

    pub(super) unsafe fn aclrtNotifySetImportPid(
        &self,
        notify: aclrtNotify,
        pid: *mut i32,
        num: usize,
    ) -> Result<(), Failure> {
        let id = HandleKind::Notify.decode(notify)?;
        // SAFETY: the C caller passes NULL or `num` numbers.
        let pids = unsafe { load_array("pid", pid, num) }?;
        let word = self.lock().shared_word(id).ok_or_else(|| {
            let what = format!("notify {id} has not been exported; call aclrtNotifyGetExportKey first");
            Failure::new(code::PARAM_INVALID, what)
        })?;
        word.admit(&pids)
    }

    pub(super) unsafe fn aclrtNotifyImportByKey(
        &self,
        notify: Out<aclrtNotify>,
        key: *const c_char,
        flags: u64,
    ) -> Result<(), Failure> {
        if notify.is_null() {
            return Err(Failure::null("notify"));
        }
        check_flags(flags, WITH_PEER_ACCESS, "ENABLE_PEER_ACCESS")?;
        let card = self.current_card()?;
        // SAFETY: the C caller passes NULL or a C string.
        let name = IpcName::of_key(&unsafe { load_text("key", key) }?)?;
        let (signal, on) = self.imported_signal(name, "a notify")?;
        let id = self.update(|state| {
            let on_card = &mut state.runtime.cards[card as usize];
            if on_card.notifies >= MAX_NOTIFIES {
                let what = format!("card {card} has all its {MAX_NOTIFIES} notifies in use; destroy some");
                return Err(Failure::new(code::NO_NOTIFY, what));
            }
            on_card.notifies += 1;
            if flags == WITH_PEER_ACCESS && on != card {
                on_card.peers.insert(on);
            }
            let id = state.fresh_number();
            state.runtime.notifies.insert(id, Notify::new(card));
            state.runtime.signals.insert(id, signal);
            Ok(id)
        })?;
        notify.set("notify", HandleKind::Notify.encode(id))
    }
}
