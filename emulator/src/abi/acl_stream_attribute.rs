//! AscendCL: attributes of streams, and limits of cores per stream. None changes a result.

use ascend_tp_sys::{aclrtDevResLimitType, aclrtStream, aclrtStreamAttr, aclrtStreamAttrValue};

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::Machine;
use crate::runtime::stream::StreamQueue;
use crate::runtime::thread;

fn unknown(attribute: aclrtStreamAttr) -> Failure {
    let what = format!(
        "stm_attr_type {}: expected FAILURE_MODE 1, FLOAT_OVERFLOW_CHECK 2, USER_CUSTOM_TAG 3, CACHE_OP_INFO 4 or \
         PRIORITY 5",
        attribute.0
    );
    Failure::new(code::INVALID_PARAM, what)
}

fn switch(value: u32) -> Result<bool, Failure> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Failure::new(code::INVALID_PARAM, format!("value {value} is neither 0 (off) nor 1 (on)"))),
    }
}

impl Machine {
    fn change_stream<R>(
        &self,
        handle: aclrtStream,
        change: impl FnOnce(&mut StreamQueue) -> R,
    ) -> Result<R, Failure> {
        let id = self.stream(handle)?;
        self.update(|state| {
            let stream = state.runtime.streams.get_mut(&id).ok_or_else(|| HandleKind::Stream.gone(id))?;
            Ok(change(stream))
        })
    }

    pub(super) unsafe fn aclrtSetStreamAttribute(
        &self,
        stream: aclrtStream,
        stm_attr_type: aclrtStreamAttr,
        value: Out<aclrtStreamAttrValue>,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes NULL or a value.
        let value = unsafe { value.get("value") }?;
        if stm_attr_type == aclrtStreamAttr::ACL_STREAM_ATTR_FAILURE_MODE {
            // SAFETY: the attribute selects this member.
            return self.set_failure_mode(stream, unsafe { value.failureMode });
        }
        // SAFETY: the members of the other attributes are one 32-bit number.
        let number = unsafe { value.streamPriority };
        match stm_attr_type {
            aclrtStreamAttr::ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK => {
                self.aclrtSetStreamOverflowSwitch(stream, number)
            }
            aclrtStreamAttr::ACL_STREAM_ATTR_USER_CUSTOM_TAG => {
                self.change_stream(stream, |stream| stream.attributes.overflow_tag = number)
            }
            aclrtStreamAttr::ACL_STREAM_ATTR_CACHE_OP_INFO => {
                let is_on = switch(number)?;
                self.change_stream(stream, |stream| stream.attributes.caches_op_info = is_on)
            }
            aclrtStreamAttr::ACL_STREAM_ATTR_PRIORITY => {
                super::acl_stream::check_priority(number)?;
                self.change_stream(stream, |stream| stream.priority = number)
            }
            other => Err(unknown(other)),
        }
    }

    pub(super) fn aclrtGetStreamAttribute(
        &self,
        stream: aclrtStream,
        stm_attr_type: aclrtStreamAttr,
        value: Out<aclrtStreamAttrValue>,
    ) -> Result<(), Failure> {
        let id = self.stream(stream)?;
        let mut answer = aclrtStreamAttrValue { reserve: [0; 4] };
        {
            let state = self.lock();
            let stream = state.runtime.streams.get(&id).ok_or_else(|| HandleKind::Stream.gone(id))?;
            let attributes = &stream.attributes;
            match stm_attr_type {
                aclrtStreamAttr::ACL_STREAM_ATTR_FAILURE_MODE => {
                    let stops =
                        state.runtime.contexts.get(&stream.context).is_some_and(|of| of.stops_on_failure);
                    answer.failureMode = u64::from(stops);
                }
                aclrtStreamAttr::ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK => {
                    answer.overflowSwitch = u32::from(!attributes.is_overflow_check_off);
                }
                aclrtStreamAttr::ACL_STREAM_ATTR_USER_CUSTOM_TAG => {
                    answer.userCustomTag = attributes.overflow_tag;
                }
                aclrtStreamAttr::ACL_STREAM_ATTR_CACHE_OP_INFO => {
                    answer.cacheOpInfoSwitch = u32::from(attributes.caches_op_info);
                }
                aclrtStreamAttr::ACL_STREAM_ATTR_PRIORITY => answer.streamPriority = stream.priority,
                other => return Err(unknown(other)),
            }
        }
        value.set("value", answer)
    }

    pub(super) fn aclrtSetStreamOverflowSwitch(&self, stream: aclrtStream, flag: u32) -> Result<(), Failure> {
        let is_on = switch(flag)?;
        self.change_stream(stream, |stream| stream.attributes.is_overflow_check_off = !is_on)
    }

    pub(super) fn aclrtGetStreamOverflowSwitch(
        &self,
        stream: aclrtStream,
        flag: Out<u32>,
    ) -> Result<(), Failure> {
        let is_off = self.change_stream(stream, |stream| stream.attributes.is_overflow_check_off)?;
        flag.set("flag", u32::from(!is_off))
    }

    pub(super) fn aclrtSetStreamResLimit(
        &self,
        stream: aclrtStream,
        type_: aclrtDevResLimitType,
        value: u32,
    ) -> Result<(), Failure> {
        self.check_core_limit(type_, value)?;
        self.change_stream(stream, |stream| stream.attributes.core_limits[type_.0 as usize] = Some(value))
    }

    pub(super) fn aclrtGetStreamResLimit(
        &self,
        stream: aclrtStream,
        type_: aclrtDevResLimitType,
        value: Out<u32>,
    ) -> Result<(), Failure> {
        let id = self.stream(stream)?;
        value.set("value", self.core_limit(type_, Some(id))?)
    }

    pub(super) fn aclrtResetStreamResLimit(&self, stream: aclrtStream) -> Result<(), Failure> {
        self.change_stream(stream, |stream| stream.attributes.core_limits = [None; 2])
    }

    pub(super) fn aclrtUseStreamResInCurrentThread(&self, stream: aclrtStream) -> Result<(), Failure> {
        let id = self.stream(stream)?;
        thread::set_limits_of(self.key(), Some(id));
        Ok(())
    }

    pub(super) fn aclrtUnuseStreamResInCurrentThread(&self, stream: aclrtStream) -> Result<(), Failure> {
        self.stream(stream)?;
        thread::set_limits_of(self.key(), None);
        Ok(())
    }

    pub(super) fn aclrtGetResInCurrentThread(
        &self,
        type_: aclrtDevResLimitType,
        value: Out<u32>,
    ) -> Result<(), Failure> {
        value.set("value", self.core_limit(type_, thread::limits_of(self.key()))?)
    }

    /// A limit of the stream precedes the limit of the current card.
    fn core_limit(&self, kind: aclrtDevResLimitType, stream: Option<u64>) -> Result<u32, Failure> {
        let (most, card) = (self.cores(kind)?, self.current_card()?);
        let state = self.lock();
        let of_stream = stream
            .and_then(|stream| state.runtime.streams.get(&stream))
            .and_then(|stream| stream.attributes.core_limits[kind.0 as usize]);
        Ok(of_stream.or(state.runtime.cards[card as usize].core_limits[kind.0 as usize]).unwrap_or(most))
    }
}
