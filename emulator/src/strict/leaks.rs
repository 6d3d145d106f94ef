//! Leaks: objects left at finalization, and memory left on a card without contexts.
//!
//! Each kind has one report. Streams of a context and the default context of a card are not leaks.

use std::sync::Arc;

use crate::base::report::{Report, ReportKind};
use crate::base::site::CallSite;
use crate::machine::Machine;
use crate::memory::location::Location;
use crate::memory::raw::Allocation;
use crate::runtime::thread;
use crate::state::MachineState;
use crate::strict::Strict;

const NAMED: usize = 3;

/// Pooling allocators round requests up to this size (`torch_npu`, like `PyTorch` for other cards).
const POOL_BYTES: usize = 2 << 20;

impl MachineState {
    pub(crate) fn note_maker(&mut self, number: u64) {
        let key = self.key;
        if self.strict.is_none() {
            return;
        }
        let Some(calling) = thread::calling(key) else { return };
        let card = thread::context(key)
            .and_then(|context| self.runtime.contexts.get(&context))
            .map(|context| context.card);
        let rank = card.and_then(|card| self.hccl.communicators.first_rank_of_card(card));
        let (call, thread) = (calling.name, thread::name(key));
        let site = CallSite { number: calling.number, call, thread, card, rank, stream: None, tag: None };
        let Self { strict, runtime, hccl, .. } = self;
        if let Some(strict) = strict {
            strict.makers.note(number, site, |number| {
                runtime.has(number) || hccl.communicators.member(number).is_ok()
            });
        }
    }

    fn left(&self) -> [(&'static str, &'static str, Vec<u64>); 5] {
        let is_default =
            |context: u64| self.runtime.cards.iter().any(|card| card.default_context == Some(context));
        let contexts = self.runtime.contexts.keys().copied().filter(|id| !is_default(*id)).collect();
        let in_default = |context: u64| is_default(context);
        let streams = self
            .runtime
            .streams
            .iter()
            .filter(|(_, stream)| !stream.is_default && in_default(stream.context));
        [
            ("communicator", "HcclCommDestroy", self.hccl.communicators.member_numbers().collect()),
            ("stream", "aclrtDestroyStream", streams.map(|(id, _)| *id).collect()),
            ("event", "aclrtDestroyEvent", self.runtime.events.keys().copied().collect()),
            ("notify", "aclrtDestroyNotify", self.runtime.notifies.keys().copied().collect()),
            ("context", "aclrtDestroyContext", contexts),
        ]
    }
}

impl Machine {
    pub(crate) fn report_leaks(&self) {
        let Some(strict) = self.strict() else { return };
        let here = self.here();
        let objects: Vec<Report> = {
            let state = self.lock();
            let left = state.left();
            let site = |number: &u64| state.strict.as_ref().and_then(|strict| strict.makers.site(*number));
            left.iter()
                .filter(|(_, _, numbers)| !numbers.is_empty())
                .map(|(kind, remedy, numbers)| {
                    let made = numbers.iter().filter_map(site).cloned();
                    leak(&counted(numbers.len(), kind), remedy, made, here.as_ref())
                })
                .collect()
        };
        let buffers = self.memory().live();
        let is_on_card = |buffer: &&Arc<Allocation>| buffer.location() != Location::Host;
        let on_cards: Vec<&Arc<Allocation>> = buffers.iter().filter(is_on_card).collect();
        let on_cards = told_of_pools(strict, &on_cards, here.as_ref());
        let on_host: Vec<&Arc<Allocation>> = buffers.iter().filter(|buffer| !is_on_card(buffer)).collect();
        let memory = [
            leaked_buffers(&on_cards, "aclrtFree", here.as_ref()),
            leaked_buffers(&on_host, "aclrtFreeHost", here.as_ref()),
        ];
        let library = self.aclnn().left();
        let library = library
            .into_iter()
            .map(|(kind, remedy, count)| leak(&counted(count, kind), remedy, [], here.as_ref()));
        for report in memory.into_iter().flatten().chain(objects).chain(library) {
            strict.report(report);
        }
    }

    pub(crate) fn report_leaks_of_card(&self, card: u32) {
        let Some(strict) = self.strict() else { return };
        let buffers = self.memory().live();
        let of_card: Vec<&Arc<Allocation>> =
            buffers.iter().filter(|buffer| buffer.location() == Location::Card(card)).collect();
        let here = self.here();
        let of_card = told_of_pools(strict, &of_card, here.as_ref());
        if let Some(report) = leaked_buffers(&of_card, "aclrtFree", here.as_ref()) {
            strict.report(report);
        }
    }
}

/// The process frees allocator pools at exit, so they are only notes. Returns the other buffers.
fn told_of_pools<'a>(
    strict: &Strict,
    buffers: &[&'a Arc<Allocation>],
    here: Option<&Arc<CallSite>>,
) -> Vec<&'a Arc<Allocation>> {
    let is_pool = |buffer: &&Arc<Allocation>| buffer.size().is_multiple_of(POOL_BYTES);
    let (pools, others): (Vec<_>, Vec<_>) = buffers.iter().copied().partition(is_pool);
    if let Some(note) = leaked_buffers(&pools, "aclrtFree", here) {
        strict.tell_note(&note);
    }
    others
}

/// Formats a count: `1 event`, `3 events`, `2 notifies`.
fn counted(count: usize, kind: &str) -> String {
    match (count, kind.strip_suffix('y')) {
        (1, _) => format!("1 {kind}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {kind}s"),
    }
}

fn leaked_buffers(
    buffers: &[&Arc<Allocation>],
    remedy: &str,
    here: Option<&Arc<CallSite>>,
) -> Option<Report> {
    // Registered host memory has no site.
    let made: Vec<&Arc<Allocation>> =
        buffers.iter().copied().filter(|buffer| buffer.site().is_some()).collect();
    if made.is_empty() {
        return None;
    }
    let bytes: usize = made.iter().map(|buffer| buffer.size()).sum();
    let what = format!("{} of {bytes} bytes", counted(made.len(), "buffer"));
    Some(leak(&what, remedy, made.iter().filter_map(|buffer| buffer.site().cloned()), here))
}

fn leak(
    what: &str,
    remedy: &str,
    made: impl IntoIterator<Item = Arc<CallSite>>,
    here: Option<&Arc<CallSite>>,
) -> Report {
    let mut sites: Vec<Arc<CallSite>> = made.into_iter().collect();
    sites.sort_by_key(|site| site.number);
    sites.truncate(NAMED);
    let (call, first) = (here.map_or("the end", |site| site.call), sites.len());
    let made = match first {
        0 => String::new(),
        1 => ", made by [1]".to_owned(),
        last => format!(", the first made by [1] to [{last}]"),
    };
    sites.extend(here.cloned());
    Report::new(ReportKind::Leak, format!("{what} left at {call}{made}; call {remedy} before"), sites)
}
