//! HCCL: creates, queries and destroys communicators.

use std::ffi::{CStr, c_char};

use ascend_tp_sys::{
    HcclComm, HcclCommConfig, HcclConfig, HcclConfigValue, HcclResult, HcclRootInfo, aclrtStream,
    hccl_result_name,
};

use crate::abi::out::{FromC, Out};
use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::base::report::ReportKind;
use crate::hccl::communicator::CommunicatorMember;
use crate::hccl::rendezvous::root_info;
use crate::hccl::rules::check_deterministic;
use crate::machine::Machine;
use crate::memory::allocation_table::{Charge, MemoryShare};
use crate::memory::raw::load_array;

const CONFIG_MAGIC: u32 = 0xf0f0_f0f0;
/// The caller is outside the new group.
const OUTSIDE: u64 = 0xffff_ffff;

#[derive(Debug, Default)]
struct CommConfig {
    name: Option<String>,
    /// Size of one of the two buffers; `None` is the default.
    buffer_bytes: Option<u64>,
}

fn ptr_failure(argument: &str) -> Failure {
    Failure::new(code::HCCL_PTR, format!("argument {argument} is NULL"))
}

fn output<T>(argument: &str, place: Out<T>, value: T) -> Result<(), Failure> {
    place.set(argument, value).map_err(|_| ptr_failure(argument))
}

impl Machine {
    pub(super) fn HcclGetRootInfo(&self, root_info: Out<HcclRootInfo>) -> Result<(), Failure> {
        self.current_card()?;
        let process = self.network().process()?.clone();
        let number = self.update(|state| state.issue_root());
        let info = HcclRootInfo { internal: root_info::encode(&process, number)?.map(|byte| byte as c_char) };
        output("root_info", root_info, info)
    }

    pub(super) unsafe fn HcclCommInitRootInfo(
        &self,
        n_ranks: u32,
        root_info: *const HcclRootInfo,
        rank: u32,
        comm: Out<HcclComm>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller upholds this contract.
        unsafe { self.init_root_info(n_ranks, root_info, rank, CommConfig::default(), comm) }
    }

    pub(super) unsafe fn HcclCommInitRootInfoConfig(
        &self,
        n_ranks: u32,
        root_info: *const HcclRootInfo,
        rank: u32,
        config: *const HcclCommConfig,
        comm: Out<HcclComm>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller upholds this contract.
        let config = unsafe { load_config(config) }?;
        // SAFETY: as above.
        unsafe { self.init_root_info(n_ranks, root_info, rank, config, comm) }
    }

    unsafe fn init_root_info(
        &self,
        n_ranks: u32,
        root_info: *const HcclRootInfo,
        rank: u32,
        config: CommConfig,
        comm: Out<HcclComm>,
    ) -> Result<(), Failure> {
        if comm.is_null() {
            return Err(ptr_failure("comm"));
        }
        let invalid = |what: String| Failure::new(code::HCCL_PARA, what);
        if n_ranks == 0 || rank >= n_ranks {
            return Err(invalid(format!(
                "rank {rank} of {n_ranks}: ranks are 0 to nRanks - 1 and nRanks is at least 1"
            )));
        }
        // SAFETY: the C caller passes NULL or one root info.
        let info = unsafe { load_array("root_info", root_info.cast::<u8>(), size_of::<HcclRootInfo>()) };
        let info = info.map_err(|_| ptr_failure("root_info"))?;
        let (process, root) = root_info::decode(&info)?;
        let card = self.current_card()?;
        self.lock().require_streams_of_communicator(card)?;
        let buffer = self.communicator_buffer(card, config.buffer_bytes)?;
        let member = self.gather(&process, root, n_ranks, rank, card, config.name)?;
        self.update(|state| state.keep_buffer(member, buffer));
        output("comm", comm, HandleKind::Communicator.encode(member))
    }

    pub(super) unsafe fn HcclCommInitClusterInfo(
        &self,
        cluster_info: *const c_char,
        rank: u32,
        comm: Out<HcclComm>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller upholds this contract.
        unsafe { self.init_cluster_info(cluster_info, rank, CommConfig::default(), comm) }
    }

    pub(super) unsafe fn HcclCommInitClusterInfoConfig(
        &self,
        cluster_info: *const c_char,
        rank: u32,
        config: *mut HcclCommConfig,
        comm: Out<HcclComm>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller upholds this contract.
        let config = unsafe { load_config(config) }?;
        // SAFETY: as above.
        unsafe { self.init_cluster_info(cluster_info, rank, config, comm) }
    }

    unsafe fn init_cluster_info(
        &self,
        cluster_info: *const c_char,
        rank: u32,
        config: CommConfig,
        comm: Out<HcclComm>,
    ) -> Result<(), Failure> {
        if comm.is_null() {
            return Err(ptr_failure("comm"));
        }
        if cluster_info.is_null() {
            return Err(ptr_failure("cluster_info"));
        }
        // SAFETY: the C caller passes a C string, and it is not NULL.
        let path = unsafe { CStr::from_ptr(cluster_info) }.to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Failure::new(code::HCCL_OPEN_FILE, format!("the rank table {path:?} cannot be read: {error}"))
        })?;
        let card = self.current_card()?;
        self.lock().require_streams_of_communicator(card)?;
        let buffer = self.communicator_buffer(card, config.buffer_bytes)?;
        let member = self.gather_by_table(&text, rank, card, config.name)?;
        self.update(|state| state.keep_buffer(member, buffer));
        output("comm", comm, HandleKind::Communicator.encode(member))
    }

    pub(super) unsafe fn HcclCommInitAll(
        &self,
        ndev: u32,
        devices: *mut i32,
        comms: *mut HcclComm,
    ) -> Result<(), Failure> {
        if ndev == 0 {
            return Err(Failure::new(code::HCCL_PARA, "ndev is 0; a communicator has at least one rank"));
        }
        if comms.is_null() {
            return Err(ptr_failure("comms"));
        }
        // SAFETY: the C caller passes NULL or `ndev` devices.
        let ordinals =
            unsafe { load_array("devices", devices, ndev as usize) }.map_err(|_| ptr_failure("devices"))?;
        let members = self.update(|state| {
            state.require_initialized()?;
            let cards: Result<Vec<u32>, Failure> =
                ordinals.iter().map(|ordinal| state.card_of_ordinal(*ordinal)).collect();
            let cards = cards.map_err(|failure| Failure { code: code::HCCL_PARA, ..failure })?;
            cards.iter().try_for_each(|card| state.require_streams_of_communicator(*card))?;
            let buffers: Result<Vec<Charge>, Failure> =
                cards.iter().map(|card| self.communicator_buffer(*card, None)).collect();
            let buffers = buffers?;
            let communicator = state.create_communicator(None, cards)?;
            let member = |(rank, buffer)| {
                let member = state.create_member(communicator, rank);
                state.keep_buffer(member, buffer);
                member
            };
            Ok((0..ndev).zip(buffers).map(member).collect::<Vec<u64>>())
        })?;
        for (rank, member) in members.into_iter().enumerate() {
            // SAFETY: the C caller passes NULL or an array of `ndev` places.
            let place = unsafe { Out::from_c(comms.wrapping_add(rank)) };
            output("comms", place, HandleKind::Communicator.encode(member))?;
        }
        Ok(())
    }

    pub(super) unsafe fn HcclCreateSubCommConfig(
        &self,
        comm: *mut HcclComm,
        rank_num: u32,
        rank_ids: *mut u32,
        sub_comm_id: u64,
        sub_comm_rank_id: u32,
        config: *mut HcclCommConfig,
        sub_comm: Out<HcclComm>,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes NULL or a handle.
        let parents = unsafe { load_array("comm", comm, 1) }.map_err(|_| ptr_failure("comm"))?;
        let (_, parent) = self.member(parents[0])?;
        if rank_ids.is_null() && sub_comm_id == OUTSIDE {
            return output("sub_comm", sub_comm, std::ptr::null_mut());
        }
        if sub_comm.is_null() {
            return Err(ptr_failure("sub_comm"));
        }
        // SAFETY: the C caller passes NULL or `rank_num` ranks.
        let ranks = unsafe { load_array("rank_ids", rank_ids, rank_num as usize) }
            .map_err(|_| ptr_failure("rank_ids"))?;
        // SAFETY: the C caller passes NULL or a configuration.
        let config = unsafe { load_config(config) }?;
        let member = self.update(|state| {
            let card =
                state.hccl.communicators.communicator(parent.communicator)?.cards[parent.rank as usize];
            state.require_streams_of_communicator(card)?;
            let buffer = self.communicator_buffer(card, config.buffer_bytes)?;
            let member =
                state.create_sub_member(parent, &ranks, sub_comm_id, sub_comm_rank_id, config.name)?;
            state.keep_buffer(member, buffer);
            Ok(member)
        })?;
        let communicator = self.lock().hccl.communicators.member(member)?.communicator;
        self.make_table(communicator);
        output("sub_comm", sub_comm, HandleKind::Communicator.encode(member))
    }

    pub(super) fn HcclCommDestroy(&self, comm: HcclComm) -> Result<(), Failure> {
        let (number, _) = self.member(comm)?;
        self.update(|state| state.destroy_member(number, "it destroyed its communicator"))
    }

    pub(super) fn HcclGetRankSize(&self, comm: HcclComm, rank_size: Out<u32>) -> Result<(), Failure> {
        let (_, member) = self.member(comm)?;
        let world = self.lock().hccl.communicators.communicator(member.communicator)?.cards.len() as u32;
        output("rank_size", rank_size, world)
    }

    pub(super) fn HcclGetRankId(&self, comm: HcclComm, rank: Out<u32>) -> Result<(), Failure> {
        let (_, member) = self.member(comm)?;
        output("rank", rank, member.rank)
    }

    /// The caller's array has 128 bytes (`COMM_NAME_MAX_LENGTH`).
    pub(super) unsafe fn HcclGetCommName(
        &self,
        comm: HcclComm,
        comm_name: Out<c_char>,
    ) -> Result<(), Failure> {
        let (_, member) = self.member(comm)?;
        let mut text = [0 as c_char; 128];
        let name =
            std::sync::Arc::clone(&self.lock().hccl.communicators.communicator(member.communicator)?.name);
        for (into, from) in text[..127].iter_mut().zip(name.bytes()) {
            *into = from.cast_signed() as c_char;
        }
        // SAFETY: the C caller passes NULL or 128 characters.
        output("comm_name", unsafe { comm_name.of::<[c_char; 128]>() }, text)
    }

    pub(super) fn HcclGetCommAsyncError(
        &self,
        comm: HcclComm,
        async_error: Out<HcclResult>,
    ) -> Result<(), Failure> {
        let (_, member) = self.member(comm)?;
        let failed = self
            .lock()
            .hccl
            .communicators
            .communicator(member.communicator)?
            .failure
            .as_ref()
            .map(|failure| failure.code);
        let code = failed.map_or(0, |code| code::to_hccl(code).cast_unsigned());
        output("async_error", async_error, HcclResult(code))
    }

    pub(super) fn HcclGetErrorString(&self, code: HcclResult) -> Result<*const c_char, Failure> {
        const UNKNOWN: &CStr = c"unknown HcclResult";
        const TEXTS: &[(HcclResult, &CStr)] = &[
            (HcclResult::HCCL_SUCCESS, c"no error"),
            (HcclResult::HCCL_E_PARA, c"parameter error"),
            (HcclResult::HCCL_E_PTR, c"empty pointer"),
            (HcclResult::HCCL_E_MEMORY, c"memory error"),
            (HcclResult::HCCL_E_INTERNAL, c"internal error"),
            (HcclResult::HCCL_E_NOT_SUPPORT, c"feature not supported"),
            (HcclResult::HCCL_E_NOT_FOUND, c"resource not found"),
            (HcclResult::HCCL_E_UNAVAIL, c"resource unavailable"),
            (HcclResult::HCCL_E_SYSCALL, c"error calling a system interface"),
            (HcclResult::HCCL_E_TIMEOUT, c"timeout"),
            (HcclResult::HCCL_E_OPEN_FILE_FAILURE, c"open file failure"),
            (HcclResult::HCCL_E_RUNTIME, c"runtime call failure"),
            (HcclResult::HCCL_E_NETWORK, c"network call failure"),
            (HcclResult::HCCL_E_AGAIN, c"again"),
            (HcclResult::HCCL_E_REMOTE, c"error of a remote rank"),
            (HcclResult::HCCL_E_SUSPENDING, c"suspending"),
        ];
        let known = TEXTS.iter().find(|(known, _)| *known == code);
        debug_assert!(known.is_none_or(|(known, _)| hccl_result_name(*known).is_some()));
        Ok(known.map_or(UNKNOWN, |(_, text)| text).as_ptr())
    }

    /// Returns the number of supported configuration entries (`HCCL_COMM_CONFIG_RESERVED` of CANN
    /// 8.1).
    pub(super) fn HcclGetCommConfigCapability(&self) -> Result<u32, Failure> {
        Ok(5)
    }

    pub(super) unsafe fn HcclSetConfig(
        &self,
        config: HcclConfig,
        config_value: HcclConfigValue,
    ) -> Result<(), Failure> {
        check_config(config)?;
        // SAFETY: the union has one member, an `i32`, and any bits are valid.
        let value = unsafe { config_value.value };
        check_deterministic(i64::from(value))?;
        // Without effect: reductions always run in rank order.
        self.update(|state| state.hccl.deterministic = Ok(value));
        Ok(())
    }

    pub(super) fn HcclGetConfig(
        &self,
        config: HcclConfig,
        config_value: Out<HcclConfigValue>,
    ) -> Result<(), Failure> {
        check_config(config)?;
        let value = self.lock().hccl.deterministic.clone()?;
        output("config_value", config_value, HcclConfigValue { value })
    }

    fn communicator_buffer(&self, card: u32, one_buffer_bytes: Option<u64>) -> Result<Charge, Failure> {
        let one = one_buffer_bytes.unwrap_or(self.config().communicator_buffer_bytes);
        self.memory().charge(card, MemoryShare::Communicator, 2 * one).map_err(|failure| {
            let what = format!(
                "a communicator holds two buffers of {} MiB on each card (HCCL_BUFFSIZE, or hcclBufferSize of the \
                 configuration): {}",
                one >> 20,
                failure.message
            );
            Failure { message: what, ..failure }
        })
    }

    pub(super) fn member(&self, comm: HcclComm) -> Result<(u64, CommunicatorMember), Failure> {
        if comm.is_null() {
            return Err(ptr_failure("comm"));
        }
        let number = HandleKind::Communicator.decode(comm)?;
        Ok((number, self.lock().hccl.communicators.member(number)?))
    }

    /// HCCL refuses NULL. The stream must be on the communicator's card.
    pub(super) fn comm_stream(
        &self,
        stream: aclrtStream,
        member: CommunicatorMember,
    ) -> Result<u64, Failure> {
        if stream.is_null() {
            return Err(ptr_failure("stream"));
        }
        let id = self.stream(stream)?;
        let state = self.lock();
        let (card, of_comm) = (
            state.runtime.streams[&id].card,
            state.hccl.communicators.communicator(member.communicator)?.cards[member.rank as usize],
        );
        if card != of_comm {
            let what = format!(
                "rank {} of the communicator is on card {of_comm}, stream {id} on card {card}",
                member.rank
            );
            return Err(Failure::new(code::HCCL_PARA, what).found(ReportKind::WrongContext, Vec::new()));
        }
        Ok(id)
    }
}

fn check_config(config: HcclConfig) -> Result<(), Failure> {
    if config == HcclConfig::HCCL_DETERMINISTIC {
        return Ok(());
    }
    Err(Failure::new(code::HCCL_PARA, format!("configuration {} is not HCCL_DETERMINISTIC (0)", config.0)))
}

/// Reads as much as the size field allows.
///
/// # Safety
///
/// `config` is NULL or points to a configuration whose first 8 bytes contain its size.
unsafe fn load_config(config: *const HcclCommConfig) -> Result<CommConfig, Failure> {
    const HEADER_BYTES: usize = 24;
    const BUFFER_AT: usize = 24;
    const DETERMINISTIC_AT: usize = 28;
    /// Written by `HcclCommConfigInit` for unset numbers.
    const UNSET: u64 = 0xffff_ffff;
    const NAME_AT: usize = 32;
    const NAME_BYTES: usize = 128;
    // SAFETY: the caller upholds this contract.
    let header = unsafe { load_array("config", config.cast::<u8>(), HEADER_BYTES) }
        .map_err(|_| ptr_failure("config"))?;
    let word = |at: usize, len: usize| {
        header[at..at + len].iter().rev().fold(0_u64, |v, byte| v << 8 | u64::from(*byte))
    };
    let (size, magic, version) = (word(0, 8) as usize, word(8, 4) as u32, word(12, 4));
    if magic != CONFIG_MAGIC {
        let what = format!(
            "the configuration's magic word is {magic:#x}, not {CONFIG_MAGIC:#x}; call HcclCommConfigInit"
        );
        return Err(Failure::new(code::HCCL_PARA, what));
    }
    // Version 1 introduced the buffer and the name.
    if version < 1 || size < NAME_AT + NAME_BYTES {
        return Ok(CommConfig::default());
    }
    // SAFETY: the size field guarantees this length.
    let bytes = unsafe { load_array("config", config.cast::<u8>(), NAME_AT + NAME_BYTES) }?;
    let number = |at: usize| bytes[at..at + 4].iter().rev().fold(0_u64, |v, byte| v << 8 | u64::from(*byte));
    // Without effect: reductions run in rank order.
    let deterministic = number(DETERMINISTIC_AT);
    if deterministic != UNSET {
        check_deterministic(deterministic.cast_signed())?;
    }
    let buffer_bytes = match number(BUFFER_AT) {
        UNSET => None,
        0 => {
            let what = "hcclBufferSize of the configuration is 0 MB; it must be at least 1, or be left unset";
            return Err(Failure::new(code::HCCL_PARA, what));
        }
        mib => Some(mib << 20),
    };
    let name: Vec<u8> = bytes[NAME_AT..].iter().copied().take_while(|byte| *byte != 0).collect();
    let name = String::from_utf8(name)
        .map_err(|_| Failure::new(code::HCCL_PARA, "the communicator's name is not UTF-8"))?;
    Ok(CommConfig { name: (!name.is_empty()).then_some(name), buffer_bytes })
}
