//! Measures how long calls occupy the host thread.

use std::sync::Arc;

use ascend_tp::base::DType;
use ascend_tp::call::View;
use ascend_tp::device::{Buffer, Device, Event, Prepared, Result, Tensor};
use ascend_tp::exec::{Clock, prepare};
use ascend_tp_machine::fit::rounded;
use ascend_tp_machine::profile::HostProfile;

use super::kernels::{CalibrationBench, Ready};
use super::{calls, median};

const CALLS: usize = 32;
const SAMPLES: usize = 5;

const SHORT: usize = 4 << 10;
const LONG: usize = 64 << 20;

/// Sizes of the product that the host waits for.
const AWAITED: [usize; 3] = [2048, 2048, 2048];

const NODES: usize = 64;
const REPLAYS: usize = 4;

pub(super) fn each_us(
    clock: &Clock,
    calls: usize,
    mut call: impl FnMut() -> Result<()>,
    mut settle: impl FnMut() -> Result<()>,
) -> Result<f64> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let start_ns = clock.now_ns();
        for _ in 0..calls {
            call()?;
        }
        samples.push((clock.now_ns() - start_ns) as f64 / 1e3 / calls as f64);
        settle()?;
    }
    Ok(median(samples))
}

/// The collective time is taken from `base`.
pub(super) fn measure(device: &Arc<Device>, clock: &Clock, base: &HostProfile) -> Result<HostProfile> {
    let mut bench = CalibrationBench::new(device)?;
    let call_us = each_us(clock, CALLS, || bench.stream.is_idle().map(drop), || Ok(()))?;
    let event = Event::new(device)?;
    let settle = || bench.stream.synchronize();
    let event_us = each_us(clock, CALLS, || bench.stream.enqueue_record(&event), settle)?;
    let mut least = Ready::new(device, &calls::least(), &[])?;
    let launch_us = each_us(clock, CALLS, || least.enqueue(&bench.stream), settle)?;
    let (copy_us, copy_bytes_per_us) = copies(device, clock)?;

    let capture = bench.stream.capture()?;
    for _ in 0..NODES {
        least.enqueue(&bench.stream)?;
    }
    let graph = capture.end()?;
    let replay_us = each_us(clock, REPLAYS, || graph.enqueue(&bench.stream), settle)?;
    let replayed_us = bench.each_us(REPLAYS, |_| Ok(()), |stream| graph.enqueue(stream))? / NODES as f64;
    let launched_us = bench.each_us(CALLS, |_| Ok(()), |stream| least.enqueue(stream))?;

    let mut awaited = Ready::new(device, &calls::product(DType::BF16, AWAITED), &[])?;
    let awaited_us = bench.each_us(REPLAYS, |_| Ok(()), |stream| awaited.enqueue(stream))?;
    let wait = || {
        awaited.enqueue(&bench.stream)?;
        bench.stream.synchronize()
    };
    let whole_us = each_us(clock, 1, wait, || Ok(()))?;
    let plan_us = rounded((prepare_us(device, clock)? - call_us).max(0.0));
    Ok(HostProfile {
        plan_us,
        launch_us: rounded(launch_us),
        event_us: rounded(event_us),
        copy_us: rounded(copy_us),
        copy_bytes_per_us: rounded(copy_bytes_per_us),
        replay_us: rounded(replay_us),
        replay_node_us: rounded((replayed_us - launched_us).max(0.0)),
        call_us: rounded(call_us),
        wake_us: rounded((whole_us - launch_us - awaited_us).max(0.0)),
        ..base.clone()
    })
}

fn prepare_us(device: &Arc<Device>, clock: &Clock) -> Result<f64> {
    let call = calls::least();
    let tensor = |view: &View| {
        let memory = Buffer::new(device, view.len_bytes())?;
        Tensor::with_strides(&memory.whole(), view.dtype, view.shape.clone(), &view.strides, view.offset)
    };
    let tensors: Vec<(&View, Tensor)> = call
        .reads()
        .into_iter()
        .chain(call.writes())
        .map(|view| Ok((view, tensor(view)?)))
        .collect::<Result<_>>()?;
    let of = |view: &View| {
        let known = tensors.iter().find(|(known, _)| known.buffer == view.buffer);
        known.map_or_else(|| tensor(view), |(_, tensor)| Ok(tensor.clone()))
    };
    // Dropping a prepared operator waits for the card.
    let mut all: Vec<Prepared> = Vec::with_capacity(CALLS * SAMPLES);
    each_us(clock, CALLS, || prepare(&call, &of, None).map(|prepared| all.push(prepared)), || Ok(()))
}

fn copies(device: &Arc<Device>, clock: &Clock) -> Result<(f64, f64)> {
    let memory = Buffer::new(device, LONG)?;
    let bytes = vec![0; LONG];
    let write_us = |calls, len: usize| each_us(clock, calls, || memory.write(0, &bytes[..len]), || Ok(()));
    let (short_us, long_us) = (write_us(CALLS, SHORT)?, write_us(1, LONG)?);
    // A copy first waits for all work of the card.
    let wait_us = each_us(clock, CALLS, || device.synchronize(), || Ok(()))?;
    let bytes_per_us = (LONG - SHORT) as f64 / (long_us - short_us);
    Ok(((short_us - wait_us - SHORT as f64 / bytes_per_us).max(0.0), bytes_per_us))
}
