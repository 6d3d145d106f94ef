//! Opens a card, allocates memory, and copies data to the card and back.
//!
//! `cargo run --example 01_buffer`
#![expect(clippy::print_stdout, reason = "examples print their results")]

use ascend_tp::Cann;
use ascend_tp::device::{Buffer, Device, Stream};
use ascend_tp::emulator::{Config, Emulator};

fn main() -> anyhow::Result<()> {
    // Eight cards on the CPU. On a machine with NPUs, use `Cann::load(None)?`.
    let emulator = Emulator::new(Config::default())?;
    let cann = Cann::new(emulator.table())?;
    println!("{} cards, {}", cann.device_count()?, cann.soc_name().unwrap_or_default());

    let device = Device::open(&cann, 0)?;
    let memory = device.memory()?;
    println!("card 0 has {} of {} free", memory.free, memory.total);

    let (a, b) = (Buffer::new(&device, 16)?, Buffer::new(&device, 16)?);
    a.write(0, b"sixteen bytes on")?;
    let stream = Stream::new(&device)?;
    stream.enqueue_copy(&b.whole(), &a.whole())?;
    stream.synchronize()?;
    let mut bytes = [0; 16];
    b.read(0, &mut bytes)?;
    println!("copied on the card: {}", String::from_utf8_lossy(&bytes));

    // An allocation that does not fit returns an error with the card's free memory.
    let too_much = Buffer::new(&device, usize::MAX >> 16);
    println!("too much: {}", too_much.err().map(|error| error.to_string()).unwrap_or_default());
    Ok(())
}
