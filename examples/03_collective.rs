//! Sums values over eight ranks, one thread each.
//!
//! `cargo run --example 03_collective`
#![expect(clippy::print_stdout, reason = "examples print their results")]

use ascend_tp::device::{Buffer, Communicator, Device, ReduceOp, RootInfo, Stream};
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::{Cann, DType, HostTensor};

const WORLD: usize = 8;

fn main() -> anyhow::Result<()> {
    let emulator = Emulator::new(Config::with_cards(WORLD))?;
    let cann = Cann::new(emulator.table())?;
    let devices = (0..WORLD).map(|card| Device::open(&cann, card)).collect::<Result<Vec<_>, _>>()?;
    // One rank creates the token that all ranks join with.
    let root = RootInfo::create(&devices[0])?;
    let sums = std::thread::scope(|scope| {
        let rank = |rank: usize| {
            let (device, root) = (&devices[rank], &root);
            scope.spawn(move || -> anyhow::Result<Vec<f32>> {
                let communicator = Communicator::join(root, WORLD, rank, device)?;
                let mine =
                    HostTensor::float([3], DType::F32, vec![rank as f32, 1.0, rank as f32 * rank as f32]);
                let buffer = Buffer::new(device, 12)?;
                buffer.write(0, &mine.to_bytes())?;
                let stream = Stream::new(device)?;
                let whole = buffer.whole();
                communicator.enqueue_all_reduce(&whole, &whole, DType::F32, ReduceOp::Sum, &stream)?;
                stream.synchronize()?;
                let mut bytes = [0; 12];
                buffer.read(0, &mut bytes)?;
                Ok(HostTensor::from_bytes([3], DType::F32, &bytes).floats().to_vec())
            })
        };
        let threads: Vec<_> = (0..WORLD).map(rank).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for (rank, sum) in sums.into_iter().enumerate() {
        let sum = sum.map_err(|_| anyhow::anyhow!("rank {rank} panicked"))??;
        println!("rank {rank}: Σ r, Σ 1, Σ r² = {sum:?}");
        anyhow::ensure!(sum == [28.0, 8.0, 140.0], "rank {rank} has a wrong sum");
    }
    Ok(())
}
