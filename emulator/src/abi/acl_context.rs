//! AscendCL: devices, contexts, peers and memory information.

use ascend_tp_sys::{aclrtContext, aclrtDeviceStatus, aclrtFloatOverflowMode, aclrtMemAttr, aclrtStream};

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::Machine;
use crate::runtime::context::Reset;
use crate::runtime::state_callback::CallbackSubject;
use crate::runtime::thread;

/// `aclrtDeviceState`, which callbacks of the program receive.
#[derive(Debug, Clone, Copy)]
enum DeviceState {
    SetPre = 0,
    SetPost = 1,
    ResetPre = 2,
    ResetPost = 3,
}

impl Machine {
    pub(super) fn aclrtGetDeviceCount(&self, count: Out<u32>) -> Result<(), Failure> {
        count.set("count", self.config().cards as u32)
    }

    pub(super) fn aclrtSetDevice(&self, device_id: i32) -> Result<(), Failure> {
        self.tell_device_state(device_id, DeviceState::SetPre)?;
        self.set_device(device_id)?;
        self.tell_device_state(device_id, DeviceState::SetPost)
    }

    fn tell_device_state(&self, device_id: i32, state: DeviceState) -> Result<(), Failure> {
        let card = self.lock().card_of_ordinal(device_id)?;
        self.state_callbacks().tell(CallbackSubject::Devices, card as usize, state as u32);
        Ok(())
    }

    fn reset_and_tell(&self, device_id: i32, how: Reset) -> Result<(), Failure> {
        self.tell_device_state(device_id, DeviceState::ResetPre)?;
        self.reset_device(device_id, how)?;
        self.tell_device_state(device_id, DeviceState::ResetPost)
    }

    pub(super) fn aclrtResetDevice(&self, device_id: i32) -> Result<(), Failure> {
        self.reset_and_tell(device_id, Reset::OneReference)
    }

    pub(super) fn aclrtResetDeviceForce(&self, device_id: i32) -> Result<(), Failure> {
        self.reset_and_tell(device_id, Reset::Force)
    }

    pub(super) fn aclrtGetDevice(&self, device_id: Out<i32>) -> Result<(), Failure> {
        // Quiet: programs check with this call whether a device is set.
        let card = self.current_card().map_err(Failure::quiet)?;
        device_id.set("device_id", card.cast_signed())
    }

    pub(super) fn aclrtSynchronizeDevice(&self) -> Result<(), Failure> {
        let outcome = self.synchronize_card(self.current_card()?, None);
        self.check_zones();
        outcome
    }

    pub(super) fn aclrtSynchronizeDeviceWithTimeout(&self, timeout: i32) -> Result<(), Failure> {
        let outcome = self.synchronize_card(self.current_card()?, super::acl_stream::timeout_of_ms(timeout)?);
        self.check_zones();
        outcome
    }

    pub(super) fn aclrtGetMemInfo(
        &self,
        attr: aclrtMemAttr,
        free: Out<usize>,
        total: Out<usize>,
    ) -> Result<(), Failure> {
        // Programs ask before they set a device; the first device answers.
        let card = match thread::context(self.key()) {
            Some(_) => self.current_card()?,
            None => self.lock().card_of_ordinal(0)?,
        };
        // The DDR kinds apply to chips without HBM.
        let is_hbm = match attr {
            aclrtMemAttr::ACL_HBM_MEM | aclrtMemAttr::ACL_HBM_MEM_HUGE | aclrtMemAttr::ACL_HBM_MEM_NORMAL => {
                true
            }
            aclrtMemAttr::ACL_DDR_MEM | aclrtMemAttr::ACL_DDR_MEM_HUGE | aclrtMemAttr::ACL_DDR_MEM_NORMAL => {
                false
            }
            other => {
                let what = format!(
                    "memory attribute {} is none of ACL_DDR_MEM… 0, 2, 3 and ACL_HBM_MEM… 1, 4, 5",
                    other.0
                );
                return Err(Failure::new(code::INVALID_PARAM, what));
            }
        };
        let usage = self.memory().usage()[card as usize];
        let (free_bytes, total_bytes) =
            if is_hbm { (usage.total_bytes - usage.used_bytes, usage.total_bytes) } else { (0, 0) };
        free.set("free", free_bytes as usize)?;
        total.set("total", total_bytes as usize)
    }

    /// `flags` is reserved.
    pub(super) fn aclrtGetPrimaryCtxState(
        &self,
        device_id: i32,
        _flags: Out<u32>,
        active: Out<i32>,
    ) -> Result<(), Failure> {
        let is_active = {
            let state = self.lock();
            let card = state.card_of_ordinal(device_id)?;
            state.runtime.cards[card as usize].default_context.is_some()
        };
        active.set("active", i32::from(is_active))
    }

    pub(super) fn aclrtQueryDeviceStatus(
        &self,
        device_id: i32,
        device_status: Out<aclrtDeviceStatus>,
    ) -> Result<(), Failure> {
        self.lock().card_of_ordinal(device_id)?;
        device_status.set("device_status", aclrtDeviceStatus::ACL_RT_DEVICE_STATUS_NORMAL)
    }

    pub(super) fn aclrtDeviceGetBareTgid(&self, pid: Out<i32>) -> Result<(), Failure> {
        pid.set("pid", std::process::id().cast_signed())
    }

    pub(super) fn aclrtSetDeviceSatMode(&self, mode: aclrtFloatOverflowMode) -> Result<(), Failure> {
        let card = self.current_card()?;
        let is_on = match mode {
            aclrtFloatOverflowMode::ACL_RT_OVERFLOW_MODE_INFNAN => false,
            aclrtFloatOverflowMode::ACL_RT_OVERFLOW_MODE_SATURATION => true,
            other => {
                let what = format!("overflow mode {} is neither SATURATION 0 nor INFNAN 1", other.0);
                return Err(Failure::new(code::INVALID_PARAM, what));
            }
        };
        self.saturation(card).set(is_on);
        Ok(())
    }

    pub(super) fn aclrtGetDeviceSatMode(&self, mode: Out<aclrtFloatOverflowMode>) -> Result<(), Failure> {
        let answer = if self.saturation(self.current_card()?).is_on() {
            aclrtFloatOverflowMode::ACL_RT_OVERFLOW_MODE_SATURATION
        } else {
            aclrtFloatOverflowMode::ACL_RT_OVERFLOW_MODE_INFNAN
        };
        mode.set("mode", answer)
    }

    pub(super) fn aclrtDeviceCanAccessPeer(
        &self,
        can_access_peer: Out<i32>,
        device_id: i32,
        peer_device_id: i32,
    ) -> Result<(), Failure> {
        let (card, peer) = {
            let state = self.lock();
            (state.card_of_ordinal(device_id)?, state.card_of_ordinal(peer_device_id)?)
        };
        if card == peer {
            let what = format!("device {card} is asked about itself; a peer is another device");
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        can_access_peer.set("can_access_peer", 1)
    }

    pub(super) fn aclrtDeviceEnablePeerAccess(&self, peer_device_id: i32, flags: u32) -> Result<(), Failure> {
        if flags != 0 {
            return Err(Failure::new(code::INVALID_PARAM, format!("flags is {flags}, it must be 0")));
        }
        let card = self.current_card()?;
        self.update(|state| {
            let peer = state.card_of_ordinal(peer_device_id)?;
            if peer == card {
                let what = format!("device {card} cannot be its own peer");
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            state.runtime.cards[card as usize].peers.insert(peer);
            Ok(())
        })
    }

    pub(super) fn aclrtDeviceDisablePeerAccess(&self, peer_device_id: i32) -> Result<(), Failure> {
        let card = self.current_card()?;
        self.update(|state| {
            let peer = state.card_of_ordinal(peer_device_id)?;
            if !state.runtime.cards[card as usize].peers.remove(&peer) {
                let what = format!("peer access from device {card} to device {peer} is not enabled");
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            Ok(())
        })
    }

    pub(super) fn aclrtCreateContext(
        &self,
        context: Out<aclrtContext>,
        device_id: i32,
    ) -> Result<(), Failure> {
        if context.is_null() {
            return Err(Failure::null("context"));
        }
        let id = self.update(|state| {
            let card = state.card_of_ordinal(device_id)?;
            state.create_context(card)
        })?;
        // The context becomes current (AscendCL guide, aclrtCreateContext).
        thread::set_context(self.key(), Some(id));
        context.set("context", HandleKind::Context.encode(id))
    }

    pub(super) fn aclrtDestroyContext(&self, context: aclrtContext) -> Result<(), Failure> {
        self.destroy_context(HandleKind::Context.decode(context)?)
    }

    pub(super) fn aclrtSetCurrentContext(&self, context: aclrtContext) -> Result<(), Failure> {
        let id = HandleKind::Context.decode(context)?;
        if !self.lock().runtime.contexts.contains_key(&id) {
            return Err(HandleKind::Context.gone(id));
        }
        thread::set_context(self.key(), Some(id));
        Ok(())
    }

    pub(super) fn aclrtGetCurrentContext(&self, context: Out<aclrtContext>) -> Result<(), Failure> {
        let (id, _) = {
            let state = self.lock();
            let (id, context) = state.current(thread::context(self.key()))?;
            (id, context.card)
        };
        context.set("context", HandleKind::Context.encode(id))
    }

    pub(super) fn aclrtCtxGetCurrentDefaultStream(&self, stream: Out<aclrtStream>) -> Result<(), Failure> {
        let id = self.stream(std::ptr::null_mut())?;
        stream.set("stream", HandleKind::Stream.encode(id))
    }
}
