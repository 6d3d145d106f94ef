//! Refusals of the device layer, and their messages.

use std::path::Path;
use std::sync::Arc;

use ascend_tp::base::{Argument, DType};
use ascend_tp::device::{
    Buffer, Cann, Communicator, Device, Error, ErrorKind, Event, HostBuffer, RankParts, ReduceOp, Stream,
    Tensor,
};

use super::{Card, cann};

fn text<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error.to_string()
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    text(result, ErrorKind::InvalidArgument)
}

#[test]
fn no_toolkit() {
    let text = text(Cann::load(Some(Path::new("/nonexistent/cann"))), ErrorKind::NoToolkit);
    assert!(text.contains("/nonexistent/cann") && text.contains("ASCEND_TOOLKIT_HOME"), "{text}");
}

#[test]
fn no_such_card() {
    let text = refused(Device::open(&cann(2), 2));
    assert!(text.contains("device 2") && text.contains("below 2"), "{text}");
}

#[test]
fn out_of_memory_names_the_numbers() {
    let card = Card::new();
    let total = card.device.memory().unwrap().total;
    let text = text(Buffer::new(&card.device, 1 << 40), ErrorKind::OutOfMemory);
    for part in
        ["device 0", "aclrtMalloc", "ACL_ERROR_RT_MEMORY_ALLOCATION (207001)", "1.0 TiB", &total.to_string()]
    {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

#[test]
fn a_buffer_of_no_bytes() {
    let card = Card::new();
    refused(Buffer::new(&card.device, 0));
    refused(HostBuffer::new(&card.device, 0));
}

#[test]
fn ranges_outside_a_buffer() {
    let card = Card::new();
    let buffer = Buffer::new(&card.device, 100).unwrap();
    let text = refused(buffer.slice(90..101));
    assert_eq!(
        text,
        "device 0: bytes 0..100 of 100: range out of bounds: expected a range within 0..100, found 90..101"
    );
    #[expect(clippy::reversed_empty_ranges, reason = "a reversed range is what is refused")]
    let reversed = 20..10;
    refused(buffer.slice(reversed));
    refused(buffer.slice(10..20).unwrap().slice(0..11));
    refused(buffer.write(98, &[0; 3]));
    refused(buffer.write(usize::MAX, &[0; 3]));
    refused(buffer.read(101, &mut []));
}

#[test]
fn tensors_outside_a_slice() {
    let card = Card::new();
    let buffer = Buffer::new(&card.device, 100).unwrap();
    let slice = buffer.slice(4..28).unwrap();
    Tensor::contiguous(&slice, DType::F32, [2, 3]).unwrap();
    let text = refused(Tensor::contiguous(&slice, DType::F32, [7]));
    assert!(text.contains("f32[7]") && text.contains("at most 6 elements"), "{text}");
    refused(Tensor::with_strides(&slice, DType::F32, [2, 3], &[3, 1], 1));
    refused(Tensor::contiguous(&buffer.slice(2..10).unwrap(), DType::F32, [1]));
}

#[test]
fn copies_that_do_not_fit() {
    let card = Card::new();
    let buffer = Buffer::new(&card.device, 64).unwrap();
    let slice = |range| buffer.slice(range).unwrap();
    refused(card.stream.enqueue_copy(&slice(0..8), &slice(8..17)));
    refused(card.stream.enqueue_copy(&slice(0..8), &slice(4..12)));
    let host = HostBuffer::new(&card.device, 63).unwrap();
    let text = refused(card.stream.enqueue_upload(&buffer.whole(), host));
    assert!(text.contains("at least 64 bytes") && text.contains("63"), "{text}");
}

#[test]
fn values_of_different_cards() {
    let cann = cann(2);
    let (first, second) = (Card::open(&cann, 0), Card::open(&cann, 1));
    let event = Event::new(&second.device).unwrap();
    let text = refused(first.stream.enqueue_wait(&event));
    assert!(text.contains("expected device 0, found device 1"), "{text}");
    let (a, b) = (first.f32(&[1], &[0.0]), second.f32(&[1], &[0.0]));
    refused(first.stream.enqueue_copy(a.slice(), b.slice()));
    refused(operator!(aclnnNeg(&a, &b)));
    refused(operator!(aclnnNeg(&b, &b)).unwrap().enqueue(&first.stream, None));
    refused(operator!(aclnnCat(Argument::Tensors(vec![a, b.clone()]), 0_i64, &b)));
}

#[test]
fn what_the_library_refuses_carries_its_words() {
    let card = Card::new();
    let a = card.f32(&[2, 3], &[0.0; 6]);
    let out = card.empty(DType::F32, &[2, 2]);
    let text = refused(operator!(aclnnMatmul(&a, &a, &out, 0_i64)));
    assert!(
        text.contains("device 0, aclnnMatmulGetWorkspaceSize failed with ACLNN_ERR_PARAM_INVALID (161002): "),
        "{text}"
    );
}

#[test]
fn a_card_closed_while_in_use() {
    let cann = cann(1);
    let device = Device::open(&cann, 0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let text = refused(Arc::clone(&device).close());
    assert!(text.contains("2 handles"), "{text}");
    drop(stream);
    device.close().unwrap();
}

#[test]
fn collectives_that_do_not_fit() {
    let cann = cann(2);
    let cards = [Card::open(&cann, 0), Card::open(&cann, 1)];
    let devices = [Arc::clone(&cards[0].device), Arc::clone(&cards[1].device)];
    let ends = Communicator::init_all(&devices).unwrap();
    let (card, end) = (&cards[0], &ends[0]);
    let buffer = Buffer::new(&card.device, 64).unwrap();
    let slice = |range| buffer.slice(range).unwrap();
    let (sum, stream) = (ReduceOp::Sum, &card.stream);
    let text = refused(end.enqueue_all_reduce(&slice(0..8), &slice(8..20), DType::F32, sum, stream));
    assert_eq!(text, "rank 0: all_reduce: lengths do not fit: expected 2 elements, found 3 elements");
    refused(end.enqueue_all_reduce(&slice(0..8), &slice(4..12), DType::F32, sum, stream));
    refused(end.enqueue_all_reduce(&slice(0..6), &slice(8..14), DType::F32, sum, stream));
    refused(end.enqueue_all_reduce(&slice(2..6), &slice(10..14), DType::F32, sum, stream));
    refused(end.enqueue_all_gather(&slice(0..8), &slice(8..16), DType::F32, stream));
    refused(end.enqueue_all_gather(&slice(0..8), &slice(0..16), DType::F32, stream));
    refused(end.enqueue_reduce_scatter(&slice(0..12), &slice(16..24), DType::F32, sum, stream));
    refused(end.enqueue_all_to_all(&slice(0..12), &slice(16..28), DType::F32, stream));
    refused(end.enqueue_reduce(&slice(0..8), &slice(8..16), DType::F32, sum, 2, stream));
    refused(end.enqueue_broadcast(&slice(0..8), DType::F32, 2, stream));
    refused(end.enqueue_send(&slice(0..8), DType::F32, 2, stream));
    refused(end.enqueue_barrier(&cards[1].stream));
    let parts = |counts, displacements| RankParts { counts, displacements };
    let v = |parts| end.enqueue_all_gather_v(&slice(0..8), &slice(8..24), parts, DType::F32, stream);
    refused(v(parts(&[2], &[0])));
    refused(v(parts(&[2, 2], &[0])));
    refused(v(parts(&[1, 2], &[0, 1])));
    let text = refused(v(parts(&[2, 3], &[0, 2])));
    assert!(
        text.contains("the part of rank 1 does not fit") && text.contains("at most 4 elements"),
        "{text}"
    );
}

#[test]
fn communicators_that_cannot_be() {
    let cann = cann(1);
    refused(Communicator::init_all(&[]));
    let device = Device::open(&cann, 0).unwrap();
    text(Communicator::init_all(&[Arc::clone(&device), Arc::clone(&device)]), ErrorKind::InvalidArgument);
}

#[test]
fn the_first_error_of_a_teardown_is_parked() {
    let mut table = ascend_tp_sys::Table::clone(
        &ascend_tp_emulator::Emulator::new(ascend_tp_emulator::Config::with_cards(1)).unwrap().table(),
    );
    extern "C" fn refuse(_: *mut ascend_tp_sys::c_void) -> ascend_tp_sys::aclError {
        ascend_tp_sys::ACL_ERROR_RT_PARAM_INVALID
    }
    table.aclrtFree = refuse;
    let cann = Cann::new(Arc::new(table)).unwrap();
    let device = Device::open(&cann, 0).unwrap();
    let buffers = [Buffer::new(&device, 16).unwrap(), Buffer::new(&device, 16).unwrap()];
    drop(buffers);
    let text = refused(device.memory());
    assert!(text.contains("aclrtFree failed with ACL_ERROR_RT_PARAM_INVALID"), "{text}");
    device.memory().unwrap();
    drop(Buffer::new(&device, 16).unwrap());
    refused(device.close());
}
