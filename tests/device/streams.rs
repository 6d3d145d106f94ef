//! Streams and events: order, waiting, time, threads.

use std::thread;
use std::time::Duration;

use ascend_tp::base::{DType, Number};
use ascend_tp::device::{Buffer, Cann, Communicator, Device, Event, Stream, Tensor};
use ascend_tp_emulator::{Config, Emulator};

use super::{Card, read_f32};

#[test]
fn an_event_orders_two_streams() {
    let card = Card::new();
    let second = Stream::new(&card.device).unwrap();
    let size = 96;
    for round in 0..10 {
        // The first stream computes before it fills x. The second stream must wait.
        let a = card.f32(&[size, size], &vec![1.0; size * size]);
        let product = card.empty(DType::F32, &[size, size]);
        let x = card.f32(&[4], &[-1.0; 4]);
        let y = card.f32(&[4], &[-1.0; 4]);
        let mut multiply = operator!(aclnnMatmul(&a, &a, &product, 0_i64)).unwrap();
        let mut fill = operator!(aclnnInplaceFillScalar(&x, Number::Float(f64::from(round)))).unwrap();
        let workspace =
            Buffer::new(&card.device, multiply.workspace_bytes().max(fill.workspace_bytes()).max(1)).unwrap();
        for _ in 0..20 {
            multiply.enqueue(&card.stream, Some(&workspace.whole())).unwrap();
        }
        fill.enqueue(&card.stream, Some(&workspace.whole())).unwrap();
        let filled = Event::new(&card.device).unwrap();
        card.stream.enqueue_record(&filled).unwrap();
        second.enqueue_wait(&filled).unwrap();
        second.enqueue_copy(y.slice(), x.slice()).unwrap();
        second.synchronize().unwrap();
        assert!(filled.is_done().unwrap());
        assert_eq!(read_f32(&y), [round as f32; 4]);
    }
}

#[test]
fn an_event_recorded_again_stands_for_the_later_work() {
    let card = Card::new();
    let event = Event::new(&card.device).unwrap();
    assert!(event.is_done().unwrap(), "an event that was never recorded counts as done");
    let x = card.f32(&[1], &[0.0]);
    for value in [1.0, 2.0, 3.0] {
        let mut fill = operator!(aclnnInplaceFillScalar(&x, Number::Float(value))).unwrap();
        fill.enqueue(&card.stream, None).unwrap();
        card.stream.enqueue_record(&event).unwrap();
        event.synchronize().unwrap();
        assert_eq!(read_f32(&x), [value as f32]);
    }
}

#[test]
fn a_failure_is_returned_once() {
    let card = Card::new();
    let table = card.f32(&[2, 1], &[1.0, 2.0]);
    let ids = Buffer::new(&card.device, 8).unwrap();
    ids.write(0, &7_i64.to_le_bytes()).unwrap();
    let ids = Tensor::contiguous(&ids.whole(), DType::I64, [1]).unwrap();
    let found = card.empty(DType::F32, &[1, 1]);
    let other = Stream::new(&card.device).unwrap();
    let mut lookup = operator!(aclnnEmbedding(&table, &ids, &found)).unwrap();
    lookup.enqueue(&other, None).unwrap();
    let error = other.synchronize().unwrap_err().to_string();
    assert!(error.contains("aclnnEmbedding"), "{error}");
    drop((lookup, other));
    Buffer::new(&card.device, 64).unwrap();
    Stream::new(&card.device).unwrap();
}

#[test]
fn memory_waits_for_the_work_of_its_own_opening_only() {
    let cann = super::cann(2);
    let second = Device::open(&cann, 0).unwrap();
    let devices = [Device::open(&cann, 0).unwrap(), Device::open(&cann, 1).unwrap()];
    let mut ends = Communicator::init_all(&devices).unwrap();
    let (last, first) = (ends.pop().unwrap(), ends.pop().unwrap());
    let streams = devices.each_ref().map(|device| Stream::new(device).unwrap());
    let memory = devices.each_ref().map(|device| Buffer::new(device, 64).unwrap().whole());
    first.enqueue_broadcast(&memory[0], DType::F32, 0, &streams[0]).unwrap();
    // Card 0 has work that waits for rank 1; another opening of the card does not wait for it.
    let buffer = Buffer::new(&second, 16).unwrap();
    buffer.write(0, &[7; 16]).unwrap();
    let mut bytes = [0; 16];
    buffer.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 16]);
    drop((buffer, second));
    last.enqueue_broadcast(&memory[1], DType::F32, 0, &streams[1]).unwrap();
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
}

#[test]
fn time_passes_between_two_events() {
    let card = Card::new();
    let (start, end) = (Event::with_time(&card.device).unwrap(), Event::with_time(&card.device).unwrap());
    let a = card.f32(&[64, 64], &vec![1.0; 64 * 64]);
    let out = card.empty(DType::F32, &[64, 64]);
    card.stream.enqueue_record(&start).unwrap();
    card.run(operator!(aclnnMatmul(&a, &a, &out, 0_i64)));
    card.stream.enqueue_record(&end).unwrap();
    end.synchronize().unwrap();
    let elapsed_us = end.elapsed_us(&start).unwrap();
    assert!(elapsed_us >= 0.0 && elapsed_us.is_finite(), "{elapsed_us}");
}

#[test]
fn an_idle_stream_says_so() {
    let card = Card::new();
    card.stream.synchronize().unwrap();
    assert!(card.stream.is_idle().unwrap());
    card.stream.synchronize_within(Duration::from_secs(5)).unwrap();
}

#[test]
fn one_card_serves_several_threads() {
    let card = Card::new();
    thread::scope(|scope| {
        for value in 1..=4_u8 {
            let device = &card.device;
            scope.spawn(move || {
                let stream = Stream::new(device).unwrap();
                let buffer = Buffer::new(device, 128).unwrap();
                buffer.write(0, &[value; 64]).unwrap();
                stream.enqueue_copy(&buffer.slice(64..128).unwrap(), &buffer.slice(0..64).unwrap()).unwrap();
                stream.synchronize().unwrap();
                let mut found = [0; 64];
                buffer.read(64, &mut found).unwrap();
                assert_eq!(found, [value; 64]);
            });
        }
    });
}

#[test]
fn one_thread_serves_several_cards_and_machines() {
    let (first, second) = (super::cann(2), super::cann(1));
    let cards = [Card::open(&first, 0), Card::open(&first, 1), Card::open(&second, 0)];
    let tensors: Vec<Tensor> = cards.iter().map(|card| card.f32(&[1], &[0.0])).collect();
    for round in 0..3 {
        for (index, (card, tensor)) in cards.iter().zip(&tensors).enumerate() {
            card.run(operator!(aclnnInplaceFillScalar(tensor, Number::Float((10 * round + index) as f64))));
        }
        let found: Vec<f32> = tensors.iter().flat_map(read_f32).collect();
        assert_eq!(found, [0, 1, 2].map(|index| (10 * round + index) as f32));
    }
}

#[test]
fn the_machine_outlives_its_emulator_value() {
    let emulator = Emulator::new(Config::with_cards(2)).unwrap();
    let cann = Cann::new(emulator.table()).unwrap();
    drop(emulator);
    assert_eq!(cann.device_count().unwrap(), 2);
    assert_eq!(cann.soc_name().as_deref(), Some("Ascend910B3"));
    Device::open(&cann, 1).unwrap().close().unwrap();
}

#[test]
fn a_card_can_be_opened_again_after_it_was_closed() {
    let cann = super::cann(1);
    for _ in 0..3 {
        let device = Device::open(&cann, 0).unwrap();
        let buffer = Buffer::new(&device, 16).unwrap();
        buffer.write(0, &[1; 16]).unwrap();
        drop(buffer);
        device.close().unwrap();
    }
}
