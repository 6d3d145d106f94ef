//! Progress of the cards in virtual time, event by event.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use crate::base::failure::Failure;
use crate::hccl::CollectiveCall;
use crate::hccl::matching::Matching;
use crate::runtime::stream::StreamQueue;
use crate::scheduler::launch::ReadyLaunch;
use crate::scheduler::pool::StreamTask;
use crate::scheduler::ran::MeasuredKernel;
use crate::scheduler::wait::Wait;
use crate::state::MachineState;
use crate::timed::load::{LoadId, exchanged, product_ns};
use crate::timed::schedule::{Blocked, MovingCollective, NextEvent, VirtualSchedule, WaitEnd};

impl MachineState {
    pub(crate) fn now_ns(&self) -> Option<u64> {
        self.timed.as_ref().map(|schedule| schedule.now_ns)
    }

    fn set_now(&mut self, ns: u64) {
        if let Some(schedule) = &mut self.timed {
            schedule.now_ns = schedule.now_ns.max(ns);
            self.scheduler.clock = Some(schedule.timed.instant(schedule.now_ns));
        }
    }

    pub(crate) fn begin_advance(&mut self, blocked: Vec<Blocked>) {
        for blocked in &blocked {
            if let Wait::Stream { stream, target } = blocked.wait
                && let Some(stream) = self.runtime.streams.get_mut(&stream)
            {
                stream.time.wake_at = stream.time.wake_at.min(target);
            }
        }
        let Some(schedule) = &mut self.timed else { return };
        schedule.has_other_waits = blocked.iter().any(|blocked| !matches!(blocked.wait, Wait::Stream { .. }));
        schedule.blocked = blocked;
        schedule.must_look = true;
        schedule.horizon_ns = u64::MAX;
        self.recheck_values();
    }

    pub(crate) fn end_advance(&mut self) -> Vec<u64> {
        let Some(schedule) = &mut self.timed else { return Vec::new() };
        let blocked = std::mem::take(&mut schedule.blocked);
        schedule.timed.raise_floor(schedule.now_ns);
        let mut threads = Vec::new();
        for blocked in blocked {
            if let Some(over) = blocked.over {
                schedule.over.insert(blocked.thread, over);
                threads.push(blocked.thread);
            }
            if let Wait::Stream { stream, .. } = blocked.wait
                && let Some(stream) = self.runtime.streams.get_mut(&stream)
            {
                stream.time.wake_at = u64::MAX;
            }
        }
        threads
    }

    /// Events after the current time wait until the program is quiet again.
    pub(crate) fn stop_here(&mut self) {
        if let Some(schedule) = &mut self.timed {
            schedule.horizon_ns = schedule.horizon_ns.min(schedule.now_ns);
        }
    }

    pub(crate) fn release_late(&mut self, thread: u64, at_ns: u64) {
        self.set_now(at_ns);
        if let Some(schedule) = &mut self.timed {
            schedule.timed.raise_floor(at_ns);
            schedule.over.insert(thread, WaitEnd { at_ns, is_late: true });
        }
    }

    pub(crate) fn next_launch(&mut self) -> Option<ReadyLaunch> {
        (!self.scheduler.launches.is_empty()).then(|| self.scheduler.launches.remove(0))
    }

    fn offer_ready(&mut self) {
        let Some(schedule) = &mut self.timed else { return };
        while let Some(id) = self.scheduler.ready.pop() {
            let Some(stream) = self.runtime.streams.get_mut(&id) else { continue };
            if stream.time.is_due || self.delays.is_kept(id) {
                continue;
            }
            let Some(issued_ns) = stream.next_issue() else { continue };
            let at_ns = stream.time.at_ns.max(issued_ns).max(schedule.now_ns);
            stream.time.is_due = true;
            schedule.due.push(Reverse((at_ns, stream.card, id)));
        }
    }

    fn look_at_blocked(&mut self) {
        let signal = std::mem::take(&mut self.scheduler.has_progressed);
        let Some(schedule) = &mut self.timed else { return };
        let must_look = std::mem::take(&mut schedule.must_look) || (signal && schedule.has_other_waits);
        if !must_look {
            return;
        }
        let blocked = std::mem::take(&mut schedule.blocked);
        let mut over = Vec::new();
        for (place, blocked) in blocked.iter().enumerate() {
            if blocked.over.is_none() && !matches!(blocked.wait, Wait::Time(_)) && self.is_over(&blocked.wait)
            {
                over.push((place, self.end_of(&blocked.wait)));
            }
        }
        let Some(schedule) = &mut self.timed else { return };
        schedule.blocked = blocked;
        for (place, at_ns) in over {
            schedule.let_go(place, WaitEnd { at_ns, is_late: false });
        }
    }

    fn end_of(&self, wait: &Wait) -> u64 {
        let now_ns = self.now_ns().unwrap_or_default();
        match wait {
            Wait::Stream { stream, .. } => {
                self.runtime.streams.get(stream).map_or(now_ns, |stream| stream.time.at_ns)
            }
            Wait::Record(record) => {
                let at = record.at().zip(self.timed.as_ref());
                at.map_or(now_ns, |(at, schedule)| schedule.timed.since_epoch(at))
            }
            Wait::Rendezvous { root, .. } => {
                self.hccl.communicators.gathered_at(*root).map_or(now_ns, |at| self.since_epoch(at))
            }
            Wait::Entering { .. } | Wait::Callback { .. } | Wait::Time(_) => now_ns,
        }
    }

    fn since_epoch(&self, at: Instant) -> u64 {
        self.timed.as_ref().map_or(0, |schedule| schedule.timed.since_epoch(at))
    }

    pub(crate) fn next_event(&mut self) -> NextEvent {
        self.offer_ready();
        self.look_at_blocked();
        let Some(schedule) = &mut self.timed else { return NextEvent::None };
        let stream = schedule.due.peek().map(|Reverse((at_ns, _, _))| *at_ns);
        let event = stream.into_iter().chain(schedule.next_end()).min();
        let is_time = |blocked: &&Blocked| matches!(blocked.wait, Wait::Time(_));
        let waiting = || schedule.blocked.iter().filter(|blocked| blocked.over.is_none());
        // Without a pending event, a time limit ends only if nothing else can happen. Waits for a
        // time are an exception.
        let limit = match event {
            Some(_) => waiting().filter_map(|blocked| blocked.limit_ns).min(),
            None => waiting().filter(is_time).filter_map(|blocked| blocked.limit_ns).min(),
        };
        let horizon_ns = schedule.horizon_ns;
        match (event, limit) {
            (Some(at_ns), limit) if limit.is_none_or(|limit| limit >= at_ns) => {
                if at_ns >= horizon_ns {
                    NextEvent::Enough
                } else {
                    NextEvent::Event(at_ns)
                }
            }
            (_, Some(limit)) => {
                if limit >= horizon_ns {
                    NextEvent::Enough
                } else {
                    NextEvent::LimitOver(limit)
                }
            }
            (_, None) => NextEvent::None,
        }
    }

    pub(crate) fn expire_at(&mut self, ns: u64) {
        self.set_now(ns);
        let Some(schedule) = &mut self.timed else { return };
        for place in 0..schedule.blocked.len() {
            let blocked = &schedule.blocked[place];
            if blocked.over.is_none() && blocked.limit_ns == Some(ns) {
                let is_late = !matches!(blocked.wait, Wait::Time(_));
                schedule.let_go(place, WaitEnd { at_ns: ns, is_late });
            }
        }
    }

    /// Called when nothing else can happen. Returns false if there is no limit.
    pub(crate) fn expire_first(&mut self) -> bool {
        let queued = self.next_expiry().map(|at| self.since_epoch(at));
        let Some(schedule) = &self.timed else { return false };
        let waiting = schedule.blocked.iter().filter_map(|blocked| blocked.limit_ns).min();
        match (waiting, queued) {
            (Some(at_ns), queued) if queued.is_none_or(|queued| at_ns <= queued) => {
                self.expire_at(at_ns);
                true
            }
            (_, Some(at_ns)) => {
                self.expire_queued(at_ns);
                true
            }
            _ => false,
        }
    }

    fn expire_queued(&mut self, at_ns: u64) {
        self.set_now(at_ns);
        if !self.expire_waits() {
            self.expire_matchings();
        }
        if let Some(schedule) = &mut self.timed {
            schedule.recheck_limits();
        }
    }

    /// A time limit in a queue may end earlier.
    pub(crate) fn take_event(&mut self, ns: u64) {
        if self.timed.as_ref().is_some_and(|schedule| ns >= schedule.expiry_ns) {
            let first = self.next_expiry().map(|at| self.since_epoch(at));
            if let Some(at_ns) = first.filter(|at_ns| *at_ns < ns) {
                self.expire_queued(at_ns);
                return;
            }
            // Later limits end no earlier.
            let later = ns.saturating_add(self.scheduler.exec_timeout.as_nanos() as u64);
            if let Some(schedule) = &mut self.timed {
                schedule.expiry_ns = first.map_or(later, |first| first.min(later)).max(ns + 1);
            }
        }
        self.set_now(ns);
        let Some(schedule) = &mut self.timed else { return };
        if let Some(under) = schedule.take_ended(ns) {
            self.end_exchange(&under);
        } else if let Some(Reverse((_, _, id))) = schedule.due.pop() {
            self.take_turn(id, ns);
        }
    }

    fn take_turn(&mut self, id: u64, now_ns: u64) {
        let Some(stream) = self.runtime.streams.get_mut(&id) else { return };
        stream.time.is_due = false;
        if stream.time.ends_ns.take().is_some() {
            let outcome = stream.time.outcome.take().map_or(Ok(()), Err);
            self.settle(id, outcome);
        }
        let is_next = |stream: &StreamQueue| stream.next_issue().is_some_and(|issued_ns| issued_ns <= now_ns);
        while self.runtime.streams.get(&id).is_some_and(is_next) {
            if !self.start_head(id) {
                if let Some(schedule) = &mut self.timed {
                    schedule.recheck_limits();
                }
                return;
            }
        }
        self.scheduler.ready.push(id);
    }

    pub(crate) fn start_load(
        &mut self,
        id: u64,
        name: &'static str,
        task: Option<StreamTask>,
        load: Option<LoadId>,
    ) {
        let Some(schedule) = &self.timed else { return };
        let is_counted = load.is_some_and(|load| schedule.loads.of(load).is_counted) && task.is_some();
        if !is_counted {
            self.place_load(id, load);
        }
        if let Some(task) = task {
            self.scheduler.launches.push(ReadyLaunch::Task { stream: id, name, task, is_brief: false });
        }
    }

    /// Starts when the lane of the card is free.
    fn place_load(&mut self, id: u64, load: Option<LoadId>) {
        let (Some(schedule), Some(stream)) = (&mut self.timed, self.runtime.streams.get_mut(&id)) else {
            return;
        };
        let mut end_ns = schedule.now_ns;
        if let Some(load) = load {
            let load = schedule.loads.of(load);
            let free_ns = &mut schedule.lanes[stream.card as usize][load.kind.lane as usize];
            let start_ns = end_ns.max(*free_ns);
            end_ns = start_ns + load.duration_ns;
            if stream.is_replaying() {
                end_ns += schedule.timed.replay_node_ns;
            }
            *free_ns = end_ns;
            let run = stream.time.run(stream.card, stream.tag_under_way.as_ref(), start_ns, end_ns);
            schedule.timeline.note(&load.kind, &run);
        }
        stream.time.ends_ns = Some(end_ns);
        stream.time.is_due = true;
        schedule.due.push(Reverse((end_ns, stream.card, id)));
    }

    /// Work may measure its own cost.
    pub(crate) fn note_outcome(
        &mut self,
        id: u64,
        name: &'static str,
        counted: Option<MeasuredKernel>,
        outcome: Result<(), Failure>,
    ) {
        let is_placed = self.runtime.streams.get(&id).is_none_or(|stream| stream.time.ends_ns.is_some());
        if let (false, Some(schedule)) = (is_placed, &mut self.timed) {
            let VirtualSchedule { timed, timeline, loads, .. } = &mut **schedule;
            // Work that failed before it started has no cost.
            let load = timed.counted(name, counted.unwrap_or_default(), timeline);
            let load = loads.intern(load);
            self.place_load(id, Some(load));
        }
        if let (Some(stream), Err(failure)) = (self.runtime.streams.get_mut(&id), outcome) {
            stream.time.outcome = Some(failure);
        }
    }

    pub(crate) fn begin_exchange(&mut self, matching: Box<Matching>, outcome: Result<(), Failure>) {
        let cards: Vec<u32> = self.cards_of_matching(&matching).into_iter().map(|(_, card)| card).collect();
        let Some(schedule) = &mut self.timed else { return };
        let calls: Vec<&CollectiveCall> = matching.calls().collect();
        let (exchange, bytes) = exchanged(&calls);
        let VirtualSchedule { timed, timeline, exchanges, .. } = &mut **schedule;
        let mut make = || Arc::new(timed.exchange(&calls, &cards, timeline));
        let load = if matching.is_of_all() {
            let key = (matching.communicator(), exchange, bytes.to_bits(), product_ns(&calls));
            Arc::clone(exchanges.entry(key).or_insert_with(make))
        } else {
            make()
        };
        schedule.queued.push(MovingCollective {
            left_ns: load.duration_ns as f64,
            matching,
            load,
            cards,
            outcome,
            start_ns: 0,
            ends_ns: 0,
            since_ns: 0,
            pace: 1.0,
        });
        schedule.start_exchanges();
    }

    fn end_exchange(&mut self, under: &MovingCollective) {
        if let Some(schedule) = &mut self.timed {
            for (_, _, stream) in under.matching.parts() {
                let Some(stream) = stream.and_then(|id| self.runtime.streams.get(&id)) else { continue };
                let run = stream.time.run(
                    stream.card,
                    stream.tag_under_way.as_ref(),
                    under.start_ns,
                    under.ends_ns,
                );
                schedule.timeline.note(&under.load.kind, &run);
            }
        }
        self.end_matching(&under.matching, &under.outcome);
    }
}
