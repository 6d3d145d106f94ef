//! One rank of a program, on its own thread.
//!
//! The rank first makes all waits required by `order`; the seed selects the method of each.
#![expect(unsafe_code, reason = "the storm calls C functions")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ascend_tp_sys::{
    HcclComm, HcclSendRecvItem, HcclSendRecvType, aclrtContext, aclrtEvent, aclrtFuncHandle, aclrtMemcpyKind,
    aclrtNotify, aclrtStream, c_void,
};

use crate::calls::{Api, EventCreation, Failed, StormResult, call, young};
use crate::collective::{StormCall, StormCollective};
use crate::element::StormElement;
use crate::oracle::{first_salt, hashes, noise, small_salt};
use crate::order::{MemoryTouch, ROW_GAP, StormOrder, buffers, touches};
use crate::probe::{SLACK, until_limit};
use crate::process::{KERNEL, StormRank};
use crate::program::{BufferPlace, StormOperator, StormProgram, StormStep, home_stream, note_comm};
use crate::random::scramble;

/// Values for which streams can wait; each is used once.
const VALUES: u64 = 4096;
/// Seconds that never pass.
const NEVER_S: u32 = 600;

pub(crate) struct RankDriver<'a> {
    pub(crate) world: &'a StormRank,
    pub(crate) api: &'a Api,
    pub(crate) number: u32,
    pub(crate) context: aclrtContext,
    streams: Vec<aclrtStream>,
    pools: Vec<*mut c_void>,
    values: *mut c_void,
    used_values: u64,
    events: Vec<aclrtEvent>,
    notifies: Vec<aclrtNotify>,
    pinned: Vec<*mut c_void>,
    keys: Vec<String>,
    kernel: Option<aclrtFuncHandle>,
    comms: BTreeMap<u32, HcclComm>,
    members: BTreeMap<u32, Vec<u32>>,
    order: StormOrder,
    step: usize,
}

impl<'a> RankDriver<'a> {
    pub(crate) fn new(world: &'a StormRank, api: &'a Api, number: u32) -> StormResult<Self> {
        let setup = &world.program.setup;
        let context = api.create_context(number.cast_signed())?;
        let streams = (0..setup.streams).map(|_| api.create_stream()).collect::<StormResult<Vec<_>>>()?;
        let pools =
            (0..setup.pools).map(|_| api.malloc(setup.pool_bytes)).collect::<StormResult<Vec<_>>>()?;
        for (pool, at) in pools.iter().enumerate() {
            api.upload(*at, &noise(first_salt(world.program.seed, number, pool as u8), setup.pool_bytes))?;
        }
        let values = api.malloc(8 * VALUES)?;
        api.upload(values, &vec![0; 8 * VALUES as usize])?;
        let events = EventCreation::ALL
            .iter()
            .map(|making| api.create_event(*making))
            .collect::<StormResult<Vec<_>>>()?;
        let order = StormOrder::new(setup.streams);
        let (comms, members) = (BTreeMap::new(), BTreeMap::new());
        let (notifies, pinned, keys) = (Vec::new(), Vec::new(), Vec::new());
        let (used_values, kernel, step) = (0, None, 0);
        Ok(Self {
            world,
            api,
            number,
            context,
            streams,
            pools,
            values,
            used_values,
            events,
            notifies,
            pinned,
            keys,
            kernel,
            comms,
            members,
            order,
            step,
        })
    }

    fn program(&self) -> &'a StormProgram {
        &self.world.program
    }

    pub(crate) fn place(&self) -> String {
        let step = self.program().steps.get(self.step);
        step.map_or_else(|| "at its end".to_owned(), |step| format!("at step {} {step:?}", self.step))
    }

    fn at(&self, place: BufferPlace) -> *mut c_void {
        self.pools[usize::from(place.pool)].wrapping_byte_add(place.offset as usize)
    }

    pub(crate) fn stream(&self, stream: u8) -> aclrtStream {
        self.streams[usize::from(stream)]
    }

    /// Executes all steps, then reads all memory back.
    pub(crate) fn run(&mut self) -> StormResult {
        let program = self.program();
        for (number, step) in program.steps.iter().enumerate() {
            self.step = number;
            note_comm(&mut self.members, step);
            if step.ranks(&self.members).contains(&self.number) {
                self.act(step)?;
            } else if let StormStep::Absent { ranks, .. } = step {
                // A rank that continued would reach the same limit while the other ranks still wait
                // for theirs.
                self.await_limits(ranks);
            }
        }
        self.step = program.steps.len();
        for pool in 0..program.setup.pools {
            let at = BufferPlace { pool, offset: 0 };
            let number = program.steps.len() + usize::from(pool);
            self.read(number, at, program.setup.pool_bytes)?;
        }
        Ok(())
    }

    fn act(&mut self, step: &StormStep) -> StormResult {
        let (stream, touched) = touches(self.program(), &self.members, step, self.number);
        if let Some(stream) = stream {
            self.order_after(Some(stream), &touched)?;
            self.order.enqueue(stream, &touched);
        }
        let seed = self.program().seed;
        match step {
            StormStep::Fill { stream, at, bytes, value, .. } => {
                self.api.fill(self.at(*at), *bytes, *value, self.stream(*stream))
            }
            StormStep::Load { stream, at, bytes, salt, is_pinned, .. } => {
                let data = noise(*salt, *bytes);
                if *is_pinned {
                    let host = self.api.load_pinned(self.at(*at), &data, self.stream(*stream))?;
                    self.pinned.push(host);
                    return Ok(());
                }
                self.api.load(self.at(*at), &data, self.stream(*stream))
            }
            StormStep::Copy { stream, from, to, width, rows, .. } => {
                let (kind, stream) = (aclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_DEVICE, self.stream(*stream));
                let (to, from, width, rows) = (self.at(*to), self.at(*from), *width as usize, *rows as usize);
                if rows == 1 {
                    return call!(self.api, aclrtMemcpyAsync(to, width, from, width, kind, stream));
                }
                let pitch = width + ROW_GAP as usize;
                call!(self.api, aclrtMemcpy2dAsync(to, pitch, from, width, width, rows, kind, stream))
            }
            StormStep::Compute { stream, operator, from, to, .. } => {
                let (x, y, z, on) = (self.at(from[0]), self.at(from[1]), self.at(*to), self.stream(*stream));
                match *operator {
                    StormOperator::Add { count } => self.api.add([x, z], count, on),
                    StormOperator::ReduceAsync { count } => self.api.reduce_async([x, z], count, on),
                    StormOperator::Cast { count } => self.api.cast([x, z], count, on),
                    StormOperator::Matmul { dims: [m, k, n] } => {
                        for (number, at, count) in [(0, x, m * k), (1, y, k * n)] {
                            let salt = small_salt(seed, self.step, self.number, number);
                            self.api.load(at, &StormElement::F32.small(salt, count), on)?;
                        }
                        self.api.matmul([x, y, z], [m, k, n], on)
                    }
                }
            }
            StormStep::Read { at, bytes, .. } => self.read(self.step, *at, *bytes),
            StormStep::Wait { stream, way, .. } => self.wait(*stream, *way),
            StormStep::Renew { stream, .. } => self.renew(*stream),
            StormStep::Join { comm, ranks, parent } => self.join(*comm, ranks, *parent),
            StormStep::Part { comm } => self.part(*comm),
            StormStep::Collective { comm, call, send, recv, times } => {
                self.collective(*comm, call, *send, *recv, *times)
            }
            StormStep::Share { rank, at, bytes, reader } => self.share(*rank, *at, *bytes, *reader, &touched),
            StormStep::Probe { probe, .. } => {
                if let Err(what) = probe.run(self) {
                    self.world
                        .finding(probe.name(), &format!("rank {} {}: {what}", self.number, self.place()));
                    call!(self.api, aclrtSetCurrentContext(self.context))?;
                }
                Ok(())
            }
            StormStep::Stall { ranks } => self.stall(ranks),
            StormStep::Absent { ranks, work_ms, waiting } => self.absent(ranks, *work_ms, *waiting),
        }
    }

    /// Waits for all streams that conflict with these touches.
    fn order_after(&mut self, on: Option<u8>, touched: &[MemoryTouch]) -> StormResult {
        for stream in self.order.needed(on, touched) {
            let way = scramble(self.program().seed ^ (self.step as u64) << 16 ^ u64::from(stream) << 8) % 8;
            match on {
                Some(on) if way < 6 => {
                    self.hand_over(stream, on, way)?;
                    self.order.waited(Some(on), stream);
                }
                _ => self.wait(stream, (way % 4) as u8)?,
            }
        }
        Ok(())
    }

    /// Makes one stream wait for all work of another.
    fn hand_over(&mut self, from: u8, to: u8, way: u64) -> StormResult {
        let (from, to) = (self.stream(from), self.stream(to));
        match way {
            0..3 => {
                let event = self.events[way as usize];
                call!(self.api, aclrtRecordEvent(event, from))?;
                call!(self.api, aclrtStreamWaitEvent(to, event))
            }
            3 => {
                let event = self.events[1];
                call!(self.api, aclrtRecordEvent(event, from))?;
                young!(self.api, aclrtStreamWaitEventWithFlag(to, event, NEVER_S, 0))?;
                call!(self.api, aclrtResetEvent(event, to))
            }
            4 => {
                let notify = self.api.create_notify()?;
                self.notifies.push(notify);
                young!(self.api, aclrtRecordNotify(notify, from))?;
                young!(self.api, aclrtWaitAndResetNotify(notify, to, (self.step % 2) as u32 * NEVER_S))
            }
            _ => {
                let value = self.values.wrapping_byte_add(8 * (self.used_values % VALUES) as usize);
                self.used_values += 1;
                let number = self.used_values;
                young!(self.api, aclrtValueWrite(value, number, 0, from))?;
                // Condition 1 is equality.
                young!(self.api, aclrtValueWait(value, number, 1, to))
            }
        }
    }

    fn wait(&mut self, number: u8, way: u8) -> StormResult {
        let stream = self.stream(number);
        // In strict mode, a time limit ends only when nothing else can happen, and a polling thread
        // always has a next step.
        let way = if self.program().setup.strict.is_some() && way == 2 { 3 } else { way };
        match way {
            0 => self.api.synchronize(stream),
            1 => self.api.synchronize_within(stream, Duration::from_secs(u64::from(NEVER_S))),
            2 => {
                while !self.api.is_complete(stream)? {
                    std::thread::sleep(Duration::from_micros(200));
                }
                Ok(())
            }
            _ => {
                let event = self.events[0];
                call!(self.api, aclrtRecordEvent(event, stream))?;
                call!(self.api, aclrtSynchronizeEvent(event))
            }
        }?;
        self.order.waited(None, number);
        Ok(())
    }

    fn read(&mut self, number: usize, at: BufferPlace, bytes: u64) -> StormResult {
        self.order_after(None, &[MemoryTouch { at, bytes, writes: false }])?;
        let found = self.api.download(self.at(at), bytes)?;
        self.world.read(self.number, number, &hashes(&found));
        Ok(())
    }

    fn renew(&mut self, number: u8) -> StormResult {
        self.order.waited(None, number);
        call!(self.api, aclrtDestroyStream(self.stream(number)))?;
        self.streams[usize::from(number)] = self.api.create_stream()?;
        Ok(())
    }

    /// The first rank distributes the root info.
    pub(crate) fn meet(&self, name: &str, ranks: &[u32]) -> StormResult<HcclComm> {
        let note = format!("root-{name}");
        let member = ranks.iter().position(|rank| *rank == self.number).unwrap_or_default();
        let info = if member == 0 {
            let info = self.api.root_info()?;
            let hex: String = info.iter().map(|byte| format!("{byte:02x}")).collect();
            self.world.post(&note, &hex);
            info
        } else {
            let hex = self.world.wait(&note);
            let digits = |pair: &[u8]| {
                std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
            };
            hex.as_bytes().chunks(2).map(|pair| digits(pair).unwrap_or_default()).collect()
        };
        self.api.join(&info, ranks.len(), member)
    }

    fn join(&mut self, comm: u32, ranks: &[u32], parent: Option<u32>) -> StormResult {
        let made = match parent {
            None => self.meet(&comm.to_string(), ranks)?,
            Some(parent) => {
                let of = &self.members[&parent];
                let within =
                    |rank: &u32| of.iter().position(|other| other == rank).unwrap_or_default() as u32;
                let mut list: Vec<u32> = ranks.iter().map(within).collect();
                let member = ranks.iter().position(|rank| *rank == self.number).unwrap_or_default();
                self.api.sub_comm(self.comms[&parent], &mut list, u64::from(comm), member)?
            }
        };
        self.comms.insert(comm, made);
        Ok(())
    }

    fn part(&mut self, comm: u32) -> StormResult {
        self.wait(home_stream(comm, self.number, self.program().setup.streams), 0)?;
        let Some(comm) = self.comms.remove(&comm) else { return Ok(()) };
        call!(self.api, HcclCommDestroy(comm))
    }

    fn collective(
        &mut self,
        comm: u32,
        call: &StormCall,
        send: BufferPlace,
        recv: BufferPlace,
        times: u32,
    ) -> StormResult {
        let ranks = &self.members[&comm];
        let world = ranks.len();
        let member = ranks.iter().position(|rank| *rank == self.number).unwrap_or_default();
        if !call.is_called_by(world, member) {
            return Ok(());
        }
        let stream = self.stream(home_stream(comm, self.number, self.program().setup.streams));
        let (send, recv) = buffers(call, member, send, recv);
        let (send, recv, comm) = (self.at(send), self.at(recv), self.comms[&comm]);
        for _ in 0..times {
            if call.needs_small() {
                let salt = small_salt(self.program().seed, self.step, self.number, 0);
                let small = call.element.small(salt, call.sends(world, member));
                if !small.is_empty() {
                    self.api.load(send, &small, stream)?;
                }
            }
            invoke(self.api, call, member, world, [send, recv], comm, stream)?;
        }
        Ok(())
    }

    fn share(
        &mut self,
        owner: u32,
        at: BufferPlace,
        bytes: u64,
        reader: Option<u32>,
        touched: &[MemoryTouch],
    ) -> StormResult {
        let (note, done) = (format!("key-{}", self.step), format!("read-{}", self.step));
        if self.number == owner {
            let key = self.api.export(self.at(at), bytes)?;
            if reader.is_none() {
                self.keys.push(key);
                return Ok(());
            }
            self.order_after(None, touched)?;
            self.world.post(&note, &key);
            self.world.wait(&done);
            return self.api.close(&key);
        }
        let key = self.world.wait(&note);
        let seen = self.api.import(&key)?;
        let found = self.api.download(seen, bytes)?;
        self.world.read(self.number, self.step, &hashes(&found));
        self.api.close(&key)?;
        self.world.post(&done, "");
        Ok(())
    }

    pub(crate) fn bounded<T>(&self, what: &str, limit: Duration, body: impl FnOnce() -> T) -> T {
        let _watched = self.world.watch(format!("rank {} {}: {what}", self.number, self.place()), limit);
        body()
    }

    pub(crate) fn work(&mut self, ms: u64, stream: aclrtStream) -> StormResult {
        if ms == 0 {
            return Ok(());
        }
        let kernel = match self.kernel {
            Some(kernel) => kernel,
            None => *self.kernel.insert(self.api.kernel(KERNEL)?),
        };
        // One millisecond per core.
        call!(self.api, aclrtLaunchKernel(kernel, ms as u32, self.values, 8, stream))
    }

    fn stall(&mut self, ranks: &[u32]) -> StormResult {
        const WORK_MS: u64 = 3000;
        let comm = self.meet(&format!("stall-{}", self.step), ranks)?;
        let (busy, stream) = (self.api.create_stream()?, self.api.create_stream()?);
        let buffer = self.api.malloc(4096)?;
        if ranks[0] == self.number {
            self.work(WORK_MS, busy)?;
            std::thread::sleep(Duration::from_millis(50));
        }
        let since = Instant::now();
        let (element, sum) = (StormElement::I32.hccl(), crate::element::Reduction::Sum.hccl());
        call!(self.api, HcclAllReduce(buffer, buffer, 16, element, sum, comm, stream))?;
        let took = since.elapsed();
        if took > Duration::from_secs(2) && took > Duration::from_millis(WORK_MS / 2) {
            let what = format!(
                "the first asynchronous collective on a buffer took {took:?} to enqueue while another stream had {WORK_MS} ms \
                 of work"
            );
            self.world.finding("stall", &format!("rank {} {}: {what}", self.number, self.place()));
        }
        for stream in [stream, busy] {
            self.api.synchronize(stream)?;
            call!(self.api, aclrtDestroyStream(stream))?;
        }
        call!(self.api, HcclCommDestroy(comm))?;
        call!(self.api, aclrtFree(buffer))
    }

    fn absent(&mut self, ranks: &[u32], work_ms: u64, waiting: crate::probe::Waiting) -> StormResult {
        let comm = self.meet(&format!("absent-{}", self.step), ranks)?;
        if ranks.last() == Some(&self.number) {
            self.await_limits(ranks);
            return call!(self.api, HcclCommDestroy(comm));
        }
        let (stream, buffer) = (self.api.create_stream()?, self.api.malloc(4096)?);
        self.work(work_ms, stream)?;
        let (element, sum) = (StormElement::I32.hccl(), crate::element::Reduction::Sum.hccl());
        call!(self.api, HcclAllReduce(buffer, buffer, 16, element, sum, comm, stream))?;
        let limit = Duration::from_secs(self.program().setup.exec_limit_s);
        // The first limit ends the wait of all ranks, which may have started much later.
        let earliest = if ranks.len() > 2 { Duration::ZERO } else { limit };
        let codes =
            [ascend_tp_sys::ACL_ERROR_RT_TASK_TIMEOUT, ascend_tp_sys::ACL_ERROR_RT_SUSPECT_REMOTE_ERROR];
        if let Err(what) = until_limit(self, stream, work_ms, earliest, limit, waiting, &codes) {
            self.world.finding("absent-rank", &format!("rank {} {}: {what}", self.number, self.place()));
        }
        self.world.post(&format!("late-{}-{}", self.step, self.number), "");
        self.await_limits(ranks);
        call!(self.api, HcclCommDestroy(comm))?;
        call!(self.api, aclrtDestroyStreamForce(stream))?;
        call!(self.api, aclrtFree(buffer))
    }

    /// Ranks that wait for the absent one, the last, reach their limit.
    fn await_limits(&self, ranks: &[u32]) {
        for rank in ranks.iter().rev().skip(1) {
            self.world.wait(&format!("late-{}-{rank}", self.step));
        }
    }

    pub(crate) fn end(mut self) -> StormResult {
        for stream in 0..self.program().setup.streams {
            self.wait(stream, 0)?;
        }
        for comm in self.comms.values() {
            call!(self.api, HcclCommDestroy(*comm))?;
        }
        for stream in &self.streams {
            call!(self.api, aclrtDestroyStream(*stream))?;
        }
        for event in &self.events {
            call!(self.api, aclrtDestroyEvent(*event))?;
        }
        for notify in &self.notifies {
            young!(self.api, aclrtDestroyNotify(*notify))?;
        }
        for key in &self.keys {
            self.api.close(key)?;
        }
        for host in &self.pinned {
            call!(self.api, aclrtFreeHost(*host))?;
        }
        for pool in self.pools.iter().chain([&self.values]) {
            call!(self.api, aclrtFree(*pool))?;
        }
        call!(self.api, aclrtDestroyContext(self.context))
    }

    /// Other ranks must notice an end within this time.
    pub(crate) const HEARD_WITHIN: Duration = SLACK;
}

fn invoke(
    api: &Api,
    call: &StormCall,
    member: usize,
    world: usize,
    [send, recv]: [*mut c_void; 2],
    comm: HcclComm,
    stream: aclrtStream,
) -> StormResult {
    let (count, element, root) = (call.count, call.element.hccl(), call.root(world) as u32);
    let split = |blocks: Vec<(u64, u64)>| -> (Vec<u64>, Vec<u64>) { blocks.into_iter().unzip() };
    match call.kind {
        StormCollective::AllReduce(how) => {
            call!(api, HcclAllReduce(send, recv, count, element, how.hccl(), comm, stream))
        }
        StormCollective::Reduce(how) => {
            call!(api, HcclReduce(send, recv, count, element, how.hccl(), root, comm, stream))
        }
        StormCollective::ReduceScatter(how) => {
            call!(api, HcclReduceScatter(send, recv, count, element, how.hccl(), comm, stream))
        }
        StormCollective::ReduceScatterV(how) => {
            let (displs, counts) = split(call.blocks(world));
            let own = counts[member];
            let (counts, displs) = (counts.as_ptr().cast(), displs.as_ptr().cast());
            call!(api, HcclReduceScatterV(send, counts, displs, recv, own, element, how.hccl(), comm, stream))
        }
        StormCollective::AllGather => call!(api, HcclAllGather(send, recv, count, element, comm, stream)),
        StormCollective::AllGatherV => {
            let (displs, counts) = split(call.blocks(world));
            let own = counts[member];
            let (counts, displs) = (counts.as_ptr().cast(), displs.as_ptr().cast());
            call!(api, HcclAllGatherV(send, own, recv, counts, displs, element, comm, stream))
        }
        StormCollective::Broadcast => {
            let buffer = if member == call.root(world) { send } else { recv };
            call!(api, HcclBroadcast(buffer, count, element, root, comm, stream))
        }
        StormCollective::Scatter => call!(api, HcclScatter(send, recv, count, element, root, comm, stream)),
        StormCollective::AllToAll => {
            call!(api, HcclAlltoAll(send, count, element, recv, count, element, comm, stream))
        }
        StormCollective::AllToAllV => {
            let (send_displs, send_counts) = split(call.row(world, member, true));
            let (recv_displs, recv_counts) = split(call.row(world, member, false));
            let (from, from_at) = (send_counts.as_ptr().cast(), send_displs.as_ptr().cast());
            let (into, into_at) = (recv_counts.as_ptr().cast(), recv_displs.as_ptr().cast());
            call!(
                api,
                HcclAlltoAllV(send, from, from_at, element, recv, into, into_at, element, comm, stream)
            )
        }
        StormCollective::AllToAllVC => {
            let cells = (0..world).flat_map(|from| (0..world).map(move |to| (from, to)));
            let matrix: Vec<u64> = cells.map(|(from, to)| call.cell(from, to)).collect();
            young!(api, HcclAlltoAllVC(send, matrix.as_ptr().cast(), element, recv, element, comm, stream))
        }
        StormCollective::Barrier => call!(api, HcclBarrier(comm, stream)),
        StormCollective::SendRecv if member == call.root(world) => {
            call!(api, HcclSend(send, count, element, call.receiver(world) as u32, comm, stream))
        }
        StormCollective::SendRecv => call!(api, HcclRecv(recv, count, element, root, comm, stream)),
        StormCollective::Batch => {
            let item = |kind, buf, remote: usize| HcclSendRecvItem {
                sendRecvType: kind,
                buf,
                count,
                dataType: element,
                remoteRank: (remote % world) as u32,
            };
            let mut items = [
                item(HcclSendRecvType::HCCL_SEND, send, member + 1),
                item(HcclSendRecvType::HCCL_RECV, recv, member + world - 1),
            ];
            call!(api, HcclBatchSendRecv(items.as_mut_ptr(), 2, comm, stream))
        }
    }
}

pub(crate) fn fatal(rank: u32, place: &str, failed: &Failed) -> String {
    format!("rank {rank} {place}: {failed}")
}
