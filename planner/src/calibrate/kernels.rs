//! Measures how long operators take on a card.
//!
//! Calls cycle through sets of weights that no cache can hold.

use std::sync::Arc;

use ascend_tp::base::{DType, Id};
use ascend_tp::call::{Call, View};
use ascend_tp::device::{Buffer, BufferSlice, Device, Event, Prepared, Result, Stream, Tensor};
use ascend_tp::exec::prepare;
use ascend_tp::schedule::launch::launch;
use ascend_tp_machine::{OperatorCost, Profile, Work};

use super::calls::{self, CalibrationCall};
use super::{Sample, SampleTask, median};

const OUT_OF_CACHE: usize = 768 << 20;

/// Small weights matter little next to the fixed time of a call.
const MOST_SETS: usize = 64;

/// Approximate time between two events.
const QUEUE_US: f64 = 2000.0;

/// Calls between two events. The host must enqueue every call while the card is busy.
const CALLS: (f64, f64) = (3.0, 32.0);

const SAMPLES: usize = 3;

/// Keeps the card busy meanwhile, about 4 ms.
const BUSY: [usize; 3] = [8192, 8192, 8192];

/// A small number in every numeric type, and a mask byte that hides no key.
const NUMBER: u8 = 0x3c;
const SHOWN: u8 = 0;

const BLOCK: usize = 16 << 20;

pub(super) struct CalibrationBench {
    pub(super) stream: Stream,
    start: Event,
    end: Event,
    busy: Ready,
}

pub(super) struct Ready {
    prepared: Vec<Prepared>,
    workspace: Option<BufferSlice>,
    next: usize,
}

impl Ready {
    pub(super) fn new(device: &Arc<Device>, call: &Call, kept: &[usize]) -> Result<Self> {
        let views: Vec<&View> = call.reads().into_iter().chain(call.writes()).collect();
        let is_kept = |view: &&&View| kept.contains(&view.buffer.index());
        let bytes: usize = views.iter().filter(is_kept).map(|view| view.len_bytes()).sum();
        let sets = OUT_OF_CACHE.checked_div(bytes).map_or(1, |sets| sets.clamp(1, MOST_SETS));
        let mut memory: Vec<Option<Buffer>> = Vec::new();
        let mut prepared = Vec::with_capacity(sets);
        for _ in 0..sets {
            for view in &views {
                let at = view.buffer.index();
                memory.resize_with(memory.len().max(at + 1), || None);
                if memory[at].is_none() || kept.contains(&at) {
                    memory[at] = Some(filled(device, view)?);
                }
            }
            let tensor = |view: &View| {
                let Some(buffer) = &memory[view.buffer.index()] else {
                    unreachable!("each view has its buffer")
                };
                Tensor::with_strides(
                    &buffer.whole(),
                    view.dtype,
                    view.shape.clone(),
                    &view.strides,
                    view.offset,
                )
            };
            prepared.push(prepare(call, &tensor, None)?);
        }
        let bytes = prepared.iter().map(Prepared::workspace_bytes).max().unwrap_or(0);
        let workspace = if bytes > 0 { Some(Buffer::new(device, bytes)?.whole()) } else { None };
        Ok(Self { prepared, workspace, next: 0 })
    }

    pub(super) fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        let next = self.next;
        self.next = (next + 1) % self.prepared.len();
        self.prepared[next].enqueue(stream, self.workspace.as_ref())
    }
}

fn filled(device: &Arc<Device>, view: &View) -> Result<Buffer> {
    let bytes = view.len_bytes();
    let buffer = Buffer::new(device, bytes)?;
    let block = vec![if view.dtype == DType::Bool { SHOWN } else { NUMBER }; bytes.min(BLOCK)];
    for start in (0..bytes).step_by(BLOCK) {
        buffer.write(start, &block[..block.len().min(bytes - start)])?;
    }
    Ok(buffer)
}

impl CalibrationBench {
    pub(super) fn new(device: &Arc<Device>) -> Result<Self> {
        Ok(Self {
            stream: Stream::new(device)?,
            start: Event::with_time(device)?,
            end: Event::with_time(device)?,
            busy: Ready::new(device, &calls::product(DType::BF16, BUSY), &[])?,
        })
    }

    pub(super) fn each_us(
        &mut self,
        calls: usize,
        mut before: impl FnMut(&Stream) -> Result<()>,
        mut enqueue: impl FnMut(&Stream) -> Result<()>,
    ) -> Result<f64> {
        let mut samples = Vec::with_capacity(SAMPLES);
        for _ in 0..SAMPLES {
            self.busy.enqueue(&self.stream)?;
            before(&self.stream)?;
            self.stream.enqueue_record(&self.start)?;
            for _ in 0..calls {
                enqueue(&self.stream)?;
            }
            self.stream.enqueue_record(&self.end)?;
            self.stream.synchronize()?;
            samples.push(self.end.elapsed_us(&self.start)? / calls as f64);
        }
        Ok(median(samples))
    }
}

pub(super) fn calls_of(us: f64) -> usize {
    (QUEUE_US / us).clamp(CALLS.0, CALLS.1) as usize
}

pub(super) fn measure(device: &Arc<Device>, profile: &Profile) -> Result<Vec<Sample>> {
    let mut bench = CalibrationBench::new(device)?;
    let time = |CalibrationCall { kind, call, kept }: CalibrationCall| {
        let work = Work::of(&launch(&call));
        let mut ready = Ready::new(device, &call, kept)?;
        let calls = calls_of(OperatorCost::of(profile, &work).duration_us);
        let us = bench.each_us(calls, |_| Ok(()), |stream| ready.enqueue(stream))?;
        Ok(Sample::bench(kind, profile.soc, SampleTask::Kernels(vec![work]), us))
    };
    calls::all().into_iter().map(time).collect()
}
