//! Runs an operator on a stream, and lets another stream wait for it with an event.
//!
//! `cargo run --example 02_operator`
#![expect(clippy::print_stdout, reason = "examples print their results")]

use ascend_tp::device::{Buffer, Device, Event, Stream, Tensor, prepare};
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::{Cann, DType, HostTensor, Number};

fn main() -> anyhow::Result<()> {
    let emulator = Emulator::new(Config::default())?;
    let device = Device::open(&Cann::new(emulator.table())?, 0)?;
    let upload = |tensor: &HostTensor| -> anyhow::Result<Tensor> {
        let bytes = tensor.to_bytes();
        let buffer = Buffer::new(&device, bytes.len())?;
        buffer.write(0, &bytes)?;
        Ok(Tensor::contiguous(&buffer.whole(), tensor.dtype, tensor.shape.clone())?)
    };
    let a = upload(&HostTensor::float([2, 3], DType::F32, vec![1., 2., 3., 4., 5., 6.]))?;
    let b = upload(&HostTensor::float([3, 2], DType::F32, vec![1., 0., 0., 1., 1., 1.]))?;
    let product = upload(&HostTensor::zeros([2, 2], DType::F32))?;
    let doubled = upload(&HostTensor::zeros([2, 2], DType::F32))?;

    // Arguments follow the C function: a product in the operands' precision, a sum with factor 1.
    // The library checks them during preparation. A prepared operator can be enqueued repeatedly.
    let multiply = |a: &Tensor, b: &Tensor, out: &Tensor| {
        prepare("aclnnMatmul", [a.into(), b.into(), out.into(), 0_i64.into()])
    };
    let mut matmul = multiply(&a, &b, &product)?;
    let one = Number::Float(1.0);
    let mut twice =
        prepare("aclnnAdd", [(&product).into(), (&product).into(), one.into(), (&doubled).into()])?;
    let workspace = Buffer::new(&device, matmul.workspace_bytes().max(twice.workspace_bytes()).max(512))?;

    let (first, second) = (Stream::new(&device)?, Stream::new(&device)?);
    let done = Event::new(&device)?;
    matmul.enqueue(&first, Some(&workspace.whole()))?;
    first.enqueue_record(&done)?;
    second.enqueue_wait(&done)?;
    twice.enqueue(&second, Some(&workspace.whole()))?;
    second.synchronize()?;

    let mut bytes = vec![0; 16];
    doubled.slice().buffer().read(0, &mut bytes)?;
    println!("2·A·B = {:?}", HostTensor::from_bytes([2, 2], DType::F32, &bytes).floats());

    // The card's rules are checked when the operator is prepared.
    let refused = multiply(&a, &product, &doubled);
    println!("refused: {}", refused.err().map(|error| error.to_string()).unwrap_or_default());
    Ok(())
}
