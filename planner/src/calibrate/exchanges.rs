//! Measures how long collectives between cards take.
//!
//! An untimed collective aligns the ranks before each measurement.

use ascend_tp::base::DType;
use ascend_tp::device::{
    Buffer, BufferSlice, Communicator, Device, Error, ErrorKind, ReduceOp, Result, Stream,
};
use ascend_tp_machine::{CollectiveCost, Exchange, Profile};

use super::host::each_us;
use super::kernels::{CalibrationBench, calls_of};
use super::ranks::on_all_ranks;
use super::{MeasuredCards, Sample, SampleKind, SampleTask};

const GROUPS: [usize; 3] = [2, 4, 8];

/// Total bytes: for each algorithm, bound by fixed time or by links.
const BYTES: [usize; 8] = [16 << 10, 128 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 32 << 20, 256 << 20];

const CALLS: usize = 32;

const EXCHANGES: [Exchange; 5] = [
    Exchange::AllReduce,
    Exchange::AllGather,
    Exchange::ReduceScatter,
    Exchange::AllToAll,
    Exchange::SendRecv,
];

/// Samples, microseconds per call.
type RankSamples = (Vec<Sample>, f64);

/// Times all collectives of all groups. With one card, the host time comes from the profile.
pub(super) fn measure(cards: &MeasuredCards<'_>, profile: &Profile) -> Result<RankSamples> {
    let (mut samples, mut call_us) = (Vec::new(), profile.coefficients.host.collective_us);
    for ranks in GROUPS.into_iter().filter(|ranks| *ranks <= cards.count) {
        let devices = (0..ranks).map(|card| Device::open(cards.cann, card)).collect::<Result<Vec<_>>>()?;
        let ends = Communicator::init_all(&devices)?;
        let is_consequence = |error: &Error| error.kind() == ErrorKind::PeerLost;
        let found = on_all_ranks(ends, is_consequence, |end| of_rank(end, cards, profile))?;
        if let Some((first, us)) = found.into_iter().next() {
            samples.extend(first);
            call_us = us;
        }
        devices.into_iter().try_for_each(Device::close)?;
    }
    Ok((samples, call_us))
}

fn of_rank(end: &Communicator, cards: &MeasuredCards<'_>, profile: &Profile) -> Result<RankSamples> {
    let device = end.device();
    let most = BYTES.into_iter().max().unwrap_or(0);
    let (send, recv) = (Buffer::new(device, most)?, Buffer::new(device, most)?);
    let mut bench = CalibrationBench::new(device)?;
    let group: Vec<usize> = (0..end.world()).collect();
    let mut samples = Vec::new();
    for exchange in
        EXCHANGES.into_iter().filter(|exchange| *exchange != Exchange::SendRecv || group.len() == 2)
    {
        for bytes in BYTES {
            let cost = CollectiveCost::of(profile, cards.topology, exchange, bytes as f64, &group);
            let part = bytes / group.len();
            let whole = SendRecv { send: send.slice(0..bytes)?, recv: recv.slice(0..bytes)? };
            let parts = SendRecv { send: send.slice(0..part)?, recv: recv.slice(0..part)? };
            let enqueue = |stream: &Stream| enqueue(end, exchange, &whole, &parts, stream);
            let us = bench.each_us(calls_of(cost.duration_us), enqueue, enqueue)?;
            let (topology, cards) = (cards.topology.clone(), group.clone());
            let task =
                SampleTask::Exchange { exchange, bytes: bytes as f64, topology, cards, by_copies: false };
            samples.push(Sample::bench(SampleKind::Collectives, profile.soc, task, us));
        }
    }
    let least = SendRecv { send: send.slice(0..BYTES[0])?, recv: recv.slice(0..BYTES[0])? };
    let call = || enqueue(end, Exchange::AllReduce, &least, &least, &bench.stream);
    let call_us = each_us(cards.clock, CALLS, call, || bench.stream.synchronize())?;
    Ok((samples, call_us))
}

struct SendRecv {
    send: BufferSlice,
    recv: BufferSlice,
}

/// `whole` has the elements of all ranks, `parts` those of one rank.
fn enqueue(
    end: &Communicator,
    exchange: Exchange,
    whole: &SendRecv,
    parts: &SendRecv,
    stream: &Stream,
) -> Result<()> {
    const DTYPE: DType = DType::BF16;
    match exchange {
        Exchange::AllGather => end.enqueue_all_gather(&parts.send, &whole.recv, DTYPE, stream),
        Exchange::ReduceScatter => {
            end.enqueue_reduce_scatter(&whole.send, &parts.recv, DTYPE, ReduceOp::Sum, stream)
        }
        Exchange::AllToAll => end.enqueue_all_to_all(&whole.send, &whole.recv, DTYPE, stream),
        Exchange::SendRecv if end.rank() == 0 => end.enqueue_send(&whole.send, DTYPE, 1, stream),
        Exchange::SendRecv => end.enqueue_recv(&whole.recv, DTYPE, 0, stream),
        _ => end.enqueue_all_reduce(&whole.send, &whole.recv, DTYPE, ReduceOp::Sum, stream),
    }
}
