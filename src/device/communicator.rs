//! Communicators and their collectives.

use std::ffi::{CStr, CString};
use std::fmt;
use std::sync::Arc;

use ascend_tp_sys::{
    COMM_NAME_MAX_LENGTH, HcclComm, HcclDataType, HcclReduceOp, HcclResult, Table, aclrtStream, c_void,
};
use smallvec::SmallVec;

use super::buffer::BufferSlice;
use super::card::{Device, forget_current, same_device};
use super::error::{Error, Result};
use super::handle::Handle;
use super::root_info::RootInfo;
use super::stream::Stream;
use super::tensor::hccl_dtype;
use crate::base::{Bytes, DType, Diagnostic};

/// Combination of elements of different ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Order chosen by HCCL.
    Sum,
    /// Product over the ranks.
    Prod,
    /// Maximum over the ranks, per element.
    Max,
    /// Minimum over the ranks, per element.
    Min,
}

impl ReduceOp {
    const fn hccl(self) -> HcclReduceOp {
        match self {
            Self::Sum => HcclReduceOp::HCCL_REDUCE_SUM,
            Self::Prod => HcclReduceOp::HCCL_REDUCE_PROD,
            Self::Max => HcclReduceOp::HCCL_REDUCE_MAX,
            Self::Min => HcclReduceOp::HCCL_REDUCE_MIN,
        }
    }
}

/// A slice's part for each rank, in elements.
#[derive(Clone, Copy, Debug)]
pub struct RankParts<'a> {
    /// Length of each part.
    pub counts: &'a [usize],
    /// First element of each part.
    pub displacements: &'a [usize],
}

/// One rank's end of a communicator.
///
/// All ranks must call the same methods in the same order, with equal lengths, types and
/// reductions. Slices hold dense elements of `dtype` and must not overlap within a call, but
/// [`Self::enqueue_all_reduce`] can run in place.
///
/// Threads cannot share a communicator, so the order of calls is the program's.
///
/// ```
/// # use ascend_tp::DType;
/// # use ascend_tp::emulator::{Config, Emulator};
/// # let emulator = Emulator::new(Config::with_cards(2))?;
/// # let cann = ascend_tp::Cann::new(emulator.table())?;
/// use ascend_tp::device::{Buffer, Communicator, Device, ReduceOp, RootInfo, Stream};
///
/// let devices = [Device::open(&cann, 0)?, Device::open(&cann, 1)?];
/// let root = RootInfo::create(&devices[0])?;
/// let rank = |rank: usize| -> Result<f32, ascend_tp::device::Error> {
///     let communicator = Communicator::join(&root, 2, rank, &devices[rank])?;
///     let (buffer, stream) = (Buffer::new(&devices[rank], 4)?, Stream::new(&devices[rank])?);
///     buffer.write(0, &(rank as f32 + 1.0).to_le_bytes())?;
///     let whole = buffer.whole();
///     communicator.enqueue_all_reduce(&whole, &whole, DType::F32, ReduceOp::Sum, &stream)?;
///     stream.synchronize()?;
///     let mut bytes = [0; 4];
///     buffer.read(0, &mut bytes)?;
///     Ok(f32::from_le_bytes(bytes))
/// };
/// std::thread::scope(|scope| {
///     for thread in [0, 1].map(|number| scope.spawn(move || rank(number))) {
///         assert_eq!(thread.join().expect("no panic").expect("a sum"), 3.0);
///     }
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Communicator {
    device: Arc<Device>,
    comm: Handle,
    rank: usize,
    world: usize,
    /// Prevents `Sync`, like a `Cell`.
    _one_thread: std::marker::PhantomData<std::cell::Cell<()>>,
}

impl Communicator {
    /// Returns the memory of one communicator on each card: a receive and a send buffer.
    /// `HCCL_BUFFSIZE` sets the size of one buffer in MB, 200 by default.
    #[must_use]
    #[doc(hidden)]
    pub fn buffer_bytes() -> Bytes {
        let set = std::env::var("HCCL_BUFFSIZE").ok().and_then(|text| text.trim().parse::<u64>().ok());
        Bytes(2 * (set.filter(|size| *size > 0).unwrap_or(200) << 20))
    }

    /// Creates the communicators of all `devices` from one thread, in rank order.
    ///
    /// # Errors
    /// The list is empty or contains a device twice.
    #[doc(hidden)]
    pub fn init_all(devices: &[Arc<Device>]) -> Result<Vec<Self>> {
        let Some(first) = devices.first() else {
            return Err(Diagnostic::new("communicator", "no devices").expected("at least one").into());
        };
        let table = first.enter()?;
        let world = number("devices", devices.len())?;
        let mut ordinals = Vec::with_capacity(devices.len());
        for device in devices {
            if !Arc::ptr_eq(device.cann(), first.cann()) {
                return Err(Diagnostic::new("communicator", "devices of different libraries")
                    .expected("devices opened from one `Cann`")
                    .into());
            }
            ordinals.push(number("ordinal", device.ordinal())?.cast_signed());
        }
        let mut comms: Vec<HcclComm> = vec![std::ptr::null_mut(); devices.len()];
        // SAFETY: both arrays have `world` items; the first is read, the second written.
        let result = unsafe { (table.HcclCommInitAll)(world, ordinals.as_mut_ptr(), comms.as_mut_ptr()) };
        // The call changes the current device of this thread.
        forget_current();
        first.check_hccl("HcclCommInitAll", result)?;
        let ends = devices.iter().zip(comms).enumerate();
        Ok(ends.map(|(rank, (device, comm))| Self::own(device, Handle(comm), rank, devices.len())).collect())
    }

    /// Joins a communicator of `world` ranks as `rank`. Returns when all ranks have joined, so each
    /// rank needs its own thread or process.
    ///
    /// # Errors
    /// `rank` is not below `world` or a rank does not join in time.
    pub fn join(root: &RootInfo, world: usize, rank: usize, device: &Arc<Device>) -> Result<Self> {
        if rank >= world {
            return Err(Diagnostic::new("communicator", "no such rank")
                .expected(format!("a rank below {world}"))
                .found(rank)
                .into());
        }
        let table = device.enter()?;
        let mut comm = Handle::NULL;
        let (ranks, number) = (number("ranks", world)?, number("rank", rank)?);
        // SAFETY: `root` is valid for a read and `comm` for a write.
        let result = unsafe { (table.HcclCommInitRootInfo)(ranks, root.as_ptr(), number, &raw mut comm.0) };
        device.check_hccl("HcclCommInitRootInfo", result).map_err(|error| error.on_rank(rank))?;
        Ok(Self::own(device, comm, rank, world))
    }

    fn own(device: &Arc<Device>, comm: Handle, rank: usize, world: usize) -> Self {
        Self { device: Arc::clone(device), comm, rank, world, _one_thread: std::marker::PhantomData }
    }

    /// Returns the rank of this end.
    #[must_use]
    #[doc(hidden)]
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of ranks.
    #[must_use]
    #[doc(hidden)]
    pub const fn world(&self) -> usize {
        self.world
    }

    /// Returns the card of this rank.
    #[must_use]
    #[doc(hidden)]
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the library's name, for communicating operators.
    ///
    /// # Errors
    /// The library fails.
    #[doc(hidden)]
    pub fn name(&self) -> Result<CString> {
        let table = self.device.enter()?;
        let mut name = [0_u8; COMM_NAME_MAX_LENGTH as usize + 1];
        // SAFETY: the communicator is alive, and the name has at most `COMM_NAME_MAX_LENGTH` bytes
        // with its end.
        let result = unsafe { (table.HcclGetCommName)(self.comm.0, name.as_mut_ptr().cast()) };
        self.check("HcclGetCommName", result)?;
        Ok(CStr::from_bytes_until_nul(&name).map(CStr::to_owned).unwrap_or_default())
    }

    /// Checks for asynchronous errors, such as a lost peer.
    ///
    /// # Errors
    /// The error that occurred since the communicator was created.
    #[doc(hidden)]
    pub fn check_peers(&self) -> Result<()> {
        let table = self.device.enter()?;
        let mut found = HcclResult::HCCL_SUCCESS;
        // SAFETY: the communicator is alive and `found` is valid for a write.
        let result = unsafe { (table.HcclGetCommAsyncError)(self.comm.0, &raw mut found) };
        self.check("HcclGetCommAsyncError", result)?;
        self.check("HcclGetCommAsyncError", found)
    }

    /// Writes the reduction of all ranks' `send` to every rank's `recv`.
    ///
    /// # Errors
    /// The lengths differ or are not whole elements, or slices or stream belong to another card.
    pub fn enqueue_all_reduce(
        &self,
        send: &BufferSlice,
        recv: &BufferSlice,
        dtype: DType,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.call("all_reduce", send, recv, dtype, stream)?;
        call.alike()?;
        // SAFETY: both slices hold `recv_elems` elements of live device memory of this rank's card,
        // which is freed only after the stream has finished.
        self.enqueue("HcclAllReduce", &call, |table, c| unsafe {
            (table.HcclAllReduce)(c.send, c.recv, c.received, c.dtype, op.hccl(), c.comm, c.stream)
        })
    }

    /// Writes the reduction of all ranks' `send` to `recv` of rank `root`, leaving the other ranks'
    /// `recv` unchanged.
    ///
    /// # Errors
    /// The rank does not exist, or as for [`Self::enqueue_all_reduce`].
    #[doc(hidden)]
    pub fn enqueue_reduce(
        &self,
        send: &BufferSlice,
        recv: &BufferSlice,
        dtype: DType,
        op: ReduceOp,
        root: usize,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.call("reduce", send, recv, dtype, stream)?;
        call.alike()?;
        let root = self.peer("reduce", root)?;
        // SAFETY: as for `enqueue_all_reduce`.
        self.enqueue("HcclReduce", &call, |table, c| unsafe {
            (table.HcclReduce)(c.send, c.recv, c.received, c.dtype, op.hccl(), root, c.comm, c.stream)
        })
    }

    /// Concatenates all ranks' `send` in `recv`, in rank order.
    ///
    /// # Errors
    /// The length of `recv` does not match, or as for
    /// [`Self::enqueue_all_reduce`].
    pub fn enqueue_all_gather(
        &self,
        send: &BufferSlice,
        recv: &BufferSlice,
        dtype: DType,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.call("all_gather", send, recv, dtype, stream)?;
        call.lengths(call.send_elems.saturating_mul(self.world), call.recv_elems)?;
        call.disjoint()?;
        // SAFETY: `send` holds `send_elems` elements and `recv` as many for each rank; else as for
        // `enqueue_all_reduce`.
        self.enqueue("HcclAllGather", &call, |table, c| unsafe {
            (table.HcclAllGather)(c.send, c.recv, c.sent, c.dtype, c.comm, c.stream)
        })
    }

    /// Like [`Self::enqueue_all_gather`], with a length and position for each
    /// rank.
    ///
    /// # Errors
    /// A part does not fit `recv`, this rank's part differs in length from `send`, or as for
    /// [`Self::enqueue_all_reduce`].
    #[doc(hidden)]
    pub fn enqueue_all_gather_v(
        &self,
        send: &BufferSlice,
        recv: &BufferSlice,
        parts: RankParts<'_>,
        dtype: DType,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.call("all_gather_v", send, recv, dtype, stream)?;
        let (counts, displacements) = call.parts(parts, call.recv_elems)?;
        call.lengths(parts.counts[self.rank], call.send_elems)?;
        call.disjoint()?;
        // SAFETY: both arrays have one item for each rank and are read before the call returns;
        // every part lies in `recv`; else as for `enqueue_all_reduce`.
        self.enqueue("HcclAllGatherV", &call, |table, c| unsafe {
            (table.HcclAllGatherV)(
                c.send,
                c.sent,
                c.recv,
                pointer(&counts),
                pointer(&displacements),
                c.dtype,
                c.comm,
                c.stream,
            )
        })
    }

    /// Writes this rank's part of the reduction of all ranks' `send` to `recv`. All parts have the
    /// same length.
    ///
    /// # Errors
    /// `send` does not have the length of one `recv` per rank, or as for
    /// [`Self::enqueue_all_reduce`].
    pub fn enqueue_reduce_scatter(
        &self,
        send: &BufferSlice,
        recv: &BufferSlice,
        dtype: DType,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.call("reduce_scatter", send, recv, dtype, stream)?;
        call.lengths(call.recv_elems.saturating_mul(self.world), call.send_elems)?;
        call.disjoint()?;
        // SAFETY: `recv` holds `recv_elems` elements and `send` as many for each rank; else as for
        // `enqueue_all_reduce`.
        self.enqueue("HcclReduceScatter", &call, |table, c| unsafe {
            (table.HcclReduceScatter)(c.send, c.recv, c.received, c.dtype, op.hccl(), c.comm, c.stream)
        })
    }

    /// Like [`Self::enqueue_reduce_scatter`], with a length and position
    /// for each rank.
    ///
    /// # Errors
    /// A part does not fit `send`, this rank's part differs in length from `recv`, or as for
    /// [`Self::enqueue_all_reduce`].
    #[doc(hidden)]
    pub fn enqueue_reduce_scatter_v(
        &self,
        send: &BufferSlice,
        parts: RankParts<'_>,
        recv: &BufferSlice,
        dtype: DType,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.call("reduce_scatter_v", send, recv, dtype, stream)?;
        let (counts, displacements) = call.parts(parts, call.send_elems)?;
        call.lengths(parts.counts[self.rank], call.recv_elems)?;
        call.disjoint()?;
        // SAFETY: both arrays have one item for each rank and are read before the call returns;
        // every part lies in `send`; else as for `enqueue_all_reduce`.
        self.enqueue("HcclReduceScatterV", &call, |table, c| unsafe {
            (table.HcclReduceScatterV)(
                c.send,
                pointer(&counts),
                pointer(&displacements),
                c.recv,
                c.received,
                c.dtype,
                op.hccl(),
                c.comm,
                c.stream,
            )
        })
    }

    /// Copies the `slice` of rank `root` to every rank's `slice`.
    ///
    /// # Errors
    /// The rank does not exist, or as for [`Self::enqueue_all_reduce`].
    pub fn enqueue_broadcast(
        &self,
        slice: &BufferSlice,
        dtype: DType,
        root: usize,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.call("broadcast", slice, slice, dtype, stream)?;
        let root = self.peer("broadcast", root)?;
        // SAFETY: the slice holds `recv_elems` elements; else as for `enqueue_all_reduce`.
        self.enqueue("HcclBroadcast", &call, |table, c| unsafe {
            (table.HcclBroadcast)(c.recv, c.received, c.dtype, root, c.comm, c.stream)
        })
    }

    /// Sends part `i` of `send` to rank `i`, and receives part `i` of `recv` from it. All parts
    /// have the same length.
    ///
    /// # Errors
    /// The slices differ in length or do not divide into parts, or as for
    /// [`Self::enqueue_all_reduce`].
    #[doc(hidden)]
    pub fn enqueue_all_to_all(
        &self,
        send: &BufferSlice,
        recv: &BufferSlice,
        dtype: DType,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.call("all_to_all", send, recv, dtype, stream)?;
        let part = call.send_elems / self.world;
        call.lengths(part * self.world, call.send_elems)?;
        call.lengths(call.send_elems, call.recv_elems)?;
        call.disjoint()?;
        // SAFETY: both slices hold `part` elements for each rank; else as for `enqueue_all_reduce`.
        self.enqueue("HcclAlltoAll", &call, |table, c| unsafe {
            (table.HcclAlltoAll)(c.send, part as u64, c.dtype, c.recv, part as u64, c.dtype, c.comm, c.stream)
        })
    }

    /// Like [`Self::enqueue_all_to_all`], with a length and position for each
    /// part.
    ///
    /// # Errors
    /// A part does not fit its slice, or as for [`Self::enqueue_all_reduce`].
    #[doc(hidden)]
    pub fn enqueue_all_to_all_v(
        &self,
        send: &BufferSlice,
        send_parts: RankParts<'_>,
        recv: &BufferSlice,
        recv_parts: RankParts<'_>,
        dtype: DType,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.call("all_to_all_v", send, recv, dtype, stream)?;
        let (send_counts, send_displacements) = call.parts(send_parts, call.send_elems)?;
        let (recv_counts, recv_displacements) = call.parts(recv_parts, call.recv_elems)?;
        call.disjoint()?;
        // SAFETY: the arrays have one item for each rank and are read before the call returns;
        // every part lies in its slice; else as for `enqueue_all_reduce`.
        self.enqueue("HcclAlltoAllV", &call, |table, c| unsafe {
            (table.HcclAlltoAllV)(
                c.send,
                pointer(&send_counts),
                pointer(&send_displacements),
                c.dtype,
                c.recv,
                pointer(&recv_counts),
                pointer(&recv_displacements),
                c.dtype,
                c.comm,
                c.stream,
            )
        })
    }

    /// Sends `slice` to rank `to`, which must receive as many elements.
    ///
    /// # Errors
    /// The rank does not exist, or as for [`Self::enqueue_all_reduce`].
    pub fn enqueue_send(&self, slice: &BufferSlice, dtype: DType, to: usize, stream: &Stream) -> Result<()> {
        let call = self.call("send", slice, slice, dtype, stream)?;
        let to = self.peer("send", to)?;
        // SAFETY: the slice holds `send_elems` elements; else as for `enqueue_all_reduce`.
        self.enqueue("HcclSend", &call, |table, c| unsafe {
            (table.HcclSend)(c.send, c.sent, c.dtype, to, c.comm, c.stream)
        })
    }

    /// Receives `slice` from rank `from`, which must send as many elements.
    ///
    /// # Errors
    /// The rank does not exist, or as for [`Self::enqueue_all_reduce`].
    pub fn enqueue_recv(
        &self,
        slice: &BufferSlice,
        dtype: DType,
        from: usize,
        stream: &Stream,
    ) -> Result<()> {
        let call = self.call("recv", slice, slice, dtype, stream)?;
        let from = self.peer("recv", from)?;
        // SAFETY: the slice holds `recv_elems` elements; else as for `enqueue_all_reduce`.
        self.enqueue("HcclRecv", &call, |table, c| unsafe {
            (table.HcclRecv)(c.recv, c.received, c.dtype, from, c.comm, c.stream)
        })
    }

    /// Makes later work on the stream wait for all ranks.
    ///
    /// # Errors
    /// The stream belongs to another card.
    #[doc(hidden)]
    pub fn enqueue_barrier(&self, stream: &Stream) -> Result<()> {
        same_device("barrier", &self.device, stream.device())?;
        let table = self.device.enter()?;
        // SAFETY: communicator and stream are alive and of this rank's card.
        let result = unsafe { (table.HcclBarrier)(self.comm.0, stream.raw()) };
        self.check("HcclBarrier", result)
    }

    /// Leaves the communicator immediately, without waiting for enqueued work. Peers that wait for
    /// this rank get an error.
    ///
    /// # Errors
    /// The library fails.
    #[doc(hidden)]
    pub fn abort(self) -> Result<()> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped and not used again, so the device is taken once; the
        // other fields need no drop.
        let device = unsafe { std::ptr::read(&raw const this.device) };
        let table = device.enter()?;
        // SAFETY: this is the only owner of the communicator, and it is not used again.
        let result = unsafe { (table.HcclCommDestroy)(this.comm.0) };
        device.check_hccl("HcclCommDestroy", result).map_err(|error| error.on_rank(this.rank))
    }

    fn check(&self, function: &'static str, result: HcclResult) -> Result<()> {
        self.device.check_hccl(function, result).map_err(|error: Error| error.on_rank(self.rank))
    }

    fn enqueue(
        &self,
        function: &'static str,
        call: &HcclCall<'_>,
        run: impl FnOnce(&Table, &CArguments) -> HcclResult,
    ) -> Result<()> {
        let table = self.device.enter()?;
        let arguments = CArguments {
            send: call.send.address(),
            recv: call.recv.address(),
            sent: call.send_elems as u64,
            received: call.recv_elems as u64,
            dtype: hccl_dtype(call.dtype),
            comm: self.comm.0,
            stream: call.stream.raw(),
        };
        self.check(function, run(table, &arguments))
    }

    fn call<'a>(
        &self,
        name: &'static str,
        send: &'a BufferSlice,
        recv: &'a BufferSlice,
        dtype: DType,
        stream: &'a Stream,
    ) -> Result<HcclCall<'a>> {
        same_device(name, &self.device, stream.device())?;
        same_device(name, &self.device, send.device())?;
        same_device(name, &self.device, recv.device())?;
        let size_bytes = dtype.size_bytes();
        let elems = |slice: &BufferSlice| slice.len_bytes() / size_bytes;
        let (send_elems, recv_elems) = (elems(send), elems(recv));
        let call = HcclCall {
            name,
            rank: self.rank,
            world: self.world,
            send,
            recv,
            send_elems,
            recv_elems,
            dtype,
            stream,
        };
        for slice in [send, recv] {
            if !slice.len_bytes().is_multiple_of(size_bytes) || !slice.start().is_multiple_of(size_bytes) {
                let expected = format!("start and length in multiples of {size_bytes} bytes, for {dtype}");
                return Err(call.refuse("a slice does not hold whole elements", expected, slice.to_string()));
            }
        }
        Ok(call)
    }

    fn peer(&self, name: &str, rank: usize) -> Result<u32> {
        if rank >= self.world {
            return Err(Diagnostic::new(format!("rank {}: {name}", self.rank), "no such rank")
                .expected(format!("a rank below {}", self.world))
                .found(rank)
                .into());
        }
        number("rank", rank)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let Some(table) = self.device.enter_teardown() else { return };
        // Peers still need the work that is enqueued here.
        self.device.synchronize_teardown();
        // SAFETY: this is the only owner of the communicator, and its work is done.
        let result = unsafe { (table.HcclCommDestroy)(self.comm.0) };
        if let Err(error) = self.check("HcclCommDestroy", result) {
            self.device.park_error(error);
        }
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank)
            .field("world", &self.world)
            .finish_non_exhaustive()
    }
}

struct HcclCall<'a> {
    name: &'static str,
    rank: usize,
    world: usize,
    send: &'a BufferSlice,
    recv: &'a BufferSlice,
    send_elems: usize,
    recv_elems: usize,
    dtype: DType,
    stream: &'a Stream,
}

struct CArguments {
    send: *mut c_void,
    recv: *mut c_void,
    sent: u64,
    received: u64,
    dtype: HcclDataType,
    comm: HcclComm,
    stream: aclrtStream,
}

impl HcclCall<'_> {
    fn refuse(&self, message: &str, expected: String, found: String) -> Error {
        let place = format!("rank {}: {}", self.rank, self.name);
        Diagnostic::new(place, message).expected(expected).found(found).into()
    }

    fn lengths(&self, expected: usize, found: usize) -> Result<()> {
        if expected == found {
            return Ok(());
        }
        Err(self.refuse("lengths do not fit", format!("{expected} elements"), format!("{found} elements")))
    }

    fn alike(&self) -> Result<()> {
        self.lengths(self.send_elems, self.recv_elems)?;
        let in_place =
            self.send.address() == self.recv.address() && self.send.len_bytes() == self.recv.len_bytes();
        if in_place { Ok(()) } else { self.disjoint() }
    }

    fn disjoint(&self) -> Result<()> {
        if !self.send.overlaps(self.recv) {
            return Ok(());
        }
        let found = format!("{} and {}", self.send, self.recv);
        Err(self.refuse("the send and receive buffers overlap", "disjoint slices".to_owned(), found))
    }

    /// Checks that each rank has one part within `elems` elements.
    fn parts(&self, parts: RankParts<'_>, elems: usize) -> Result<(EachRank, EachRank)> {
        for len in [parts.counts.len(), parts.displacements.len()] {
            if len != self.world {
                return Err(self.refuse("not one shard per rank", self.world.to_string(), len.to_string()));
            }
        }
        for (rank, (count, start)) in parts.counts.iter().zip(parts.displacements).enumerate() {
            if start.checked_add(*count).is_none_or(|end| end > elems) {
                let found = format!("{count} elements from {start} on");
                let message = format!("the part of rank {rank} does not fit the slice");
                return Err(self.refuse(&message, format!("at most {elems} elements"), found));
            }
        }
        let wide = |values: &[usize]| values.iter().map(|value| *value as u64).collect();
        Ok((wide(parts.counts), wide(parts.displacements)))
    }
}

type EachRank = SmallVec<[u64; 16]>;

fn pointer(values: &[u64]) -> *const c_void {
    values.as_ptr().cast()
}

fn number(what: &str, value: usize) -> Result<u32> {
    // Ordinals are signed in C.
    i32::try_from(value).map(i32::cast_unsigned).map_err(|_| {
        Diagnostic::new("communicator", format!("too large a number of {what}"))
            .expected(i32::MAX)
            .found(value)
            .into()
    })
}
