//! The device layer on the emulator: memory, copies, streams, events, operators, collectives,
//! refusals.

/// Prepares an operator by C name and C arguments.
macro_rules! operator {
    ($name:ident($($argument:expr),* $(,)?)) => {
        ascend_tp::device::operator::prepare(
            stringify!($name),
            [$(ascend_tp::base::Argument::from($argument)),*],
        )
    };
}

mod collectives;
mod memory;
mod operators;
mod refusals;
mod streams;

use std::sync::Arc;

use ascend_tp::base::{DType, Shape};
use ascend_tp::device::{Buffer, Cann, Device, Prepared, Result, Stream, Tensor};

use crate::common::cann;

struct Card {
    device: Arc<Device>,
    stream: Stream,
}

impl Card {
    fn new() -> Self {
        Self::open(&cann(1), 0)
    }

    fn open(cann: &Arc<Cann>, ordinal: usize) -> Self {
        let device = Device::open(cann, ordinal).unwrap();
        let stream = Stream::new(&device).unwrap();
        Self { device, stream }
    }

    fn bytes(&self, dtype: DType, shape: &[usize], bytes: &[u8]) -> Tensor {
        let buffer = Buffer::new(&self.device, bytes.len().max(1)).unwrap();
        buffer.write(0, bytes).unwrap();
        Tensor::contiguous(&buffer.whole(), dtype, shape).unwrap()
    }

    fn f32(&self, shape: &[usize], values: &[f32]) -> Tensor {
        self.bytes(
            DType::F32,
            shape,
            &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>(),
        )
    }

    fn i64(&self, shape: &[usize], values: &[i64]) -> Tensor {
        self.bytes(
            DType::I64,
            shape,
            &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>(),
        )
    }

    fn bool(&self, shape: &[usize], values: &[bool]) -> Tensor {
        self.bytes(DType::Bool, shape, &values.iter().map(|value| u8::from(*value)).collect::<Vec<_>>())
    }

    fn f16(&self, shape: &[usize], values: &[f32]) -> Tensor {
        let bytes: Vec<u8> =
            values.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()).collect();
        self.bytes(DType::F16, shape, &bytes)
    }

    fn empty(&self, dtype: DType, shape: &[usize]) -> Tensor {
        let len = Shape::from(shape).elems() * dtype.size_bytes();
        self.bytes(dtype, shape, &vec![0xAA; len])
    }

    fn run(&self, operator: Result<Prepared>) {
        let mut operator = operator.unwrap();
        let workspace = match operator.workspace_bytes() {
            0 => None,
            bytes => Some(Buffer::new(&self.device, bytes).unwrap().whole()),
        };
        operator.enqueue(&self.stream, workspace.as_ref()).unwrap();
        self.stream.synchronize().unwrap();
    }
}

fn read(tensor: &Tensor) -> Vec<u8> {
    let mut bytes = vec![0; tensor.shape().elems() * tensor.dtype().size_bytes()];
    tensor.slice().buffer().read(tensor.slice().start(), &mut bytes).unwrap();
    bytes
}

fn read_f32(tensor: &Tensor) -> Vec<f32> {
    assert_eq!(tensor.dtype(), DType::F32);
    read(tensor)
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect()
}

fn read_f16(tensor: &Tensor) -> Vec<f32> {
    assert_eq!(tensor.dtype(), DType::F16);
    read(tensor)
        .chunks_exact(2)
        .map(|bytes| half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32())
        .collect()
}

fn read_i64(tensor: &Tensor) -> Vec<i64> {
    assert_eq!(tensor.dtype(), DType::I64);
    read(tensor).chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

fn read_bool(tensor: &Tensor) -> Vec<bool> {
    assert_eq!(tensor.dtype(), DType::Bool);
    read(tensor).into_iter().map(|byte| byte != 0).collect()
}

fn close(found: &[f32], expected: &[f32], bound: f32) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= bound, "element {index}: expected {expected}, found {found}");
    }
}
