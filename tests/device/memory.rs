//! Device and page-locked memory, and copies between them.

use ascend_tp::device::{Buffer, HostBuffer};

use super::{Card, cann};

#[test]
fn what_is_written_is_read() {
    let card = Card::new();
    let buffer = Buffer::new(&card.device, 1000).unwrap();
    let bytes: Vec<u8> = (0..1000).map(|index| (index % 251) as u8).collect();
    buffer.write(0, &bytes).unwrap();
    let mut found = vec![0; 500];
    buffer.read(300, &mut found).unwrap();
    assert_eq!(found, bytes[300..800]);
    buffer.write(300, &[7; 3]).unwrap();
    buffer.read(299, &mut found[..5]).unwrap();
    assert_eq!(found[..5], [bytes[299], 7, 7, 7, bytes[303]]);
}

#[test]
fn slices_of_slices_count_from_their_own_start() {
    let card = Card::new();
    let buffer = Buffer::new(&card.device, 100).unwrap();
    let slice = buffer.slice(20..80).unwrap().slice(10..20).unwrap();
    assert_eq!((slice.start(), slice.len_bytes()), (30, 10));
    assert!(slice.overlaps(&buffer.slice(39..50).unwrap()));
    assert!(!slice.overlaps(&buffer.slice(40..50).unwrap()));
    assert!(!slice.overlaps(&slice.slice(3..3).unwrap()));
}

#[test]
fn memory_is_counted_and_given_back() {
    let card = Card::new();
    let before = card.device.memory().unwrap();
    let buffer = Buffer::new(&card.device, 64 << 20).unwrap();
    let during = card.device.memory().unwrap();
    assert!(during.free.0 + (64 << 20) <= before.free.0, "{during:?} after {before:?}");
    assert_eq!(during.total, before.total);
    let clone = buffer.clone();
    drop(buffer);
    assert_eq!(card.device.memory().unwrap(), during);
    drop(clone);
    assert_eq!(card.device.memory().unwrap(), before);
}

#[test]
fn a_copy_within_the_card() {
    let card = Card::new();
    let buffer = Buffer::new(&card.device, 64).unwrap();
    buffer.write(0, &[3; 32]).unwrap();
    card.stream.enqueue_copy(&buffer.slice(32..64).unwrap(), &buffer.slice(0..32).unwrap()).unwrap();
    let mut found = [0; 32];
    buffer.read(32, &mut found).unwrap();
    assert_eq!(found, [3; 32]);
}

#[test]
fn page_locked_memory_goes_up_and_comes_down() {
    let card = Card::new();
    let buffer = Buffer::new(&card.device, 1 << 20).unwrap();
    let mut host = HostBuffer::new(&card.device, 1 << 20).unwrap();
    assert!(host.iter().all(|byte| *byte == 0));
    for (index, byte) in host.iter_mut().enumerate() {
        *byte = (index % 253) as u8;
    }
    let expected = host.to_vec();
    let up = card.stream.enqueue_upload(&buffer.whole(), host).unwrap();
    let back = HostBuffer::new(&card.device, 1 << 20).unwrap();
    let down = card.stream.enqueue_download(back, &buffer.whole()).unwrap();
    assert_eq!(down.wait().unwrap()[..], expected);
    assert_eq!(up.wait().unwrap()[..], expected);
}

#[test]
fn a_transfer_that_nobody_waits_for_ends_by_itself() {
    let card = Card::new();
    let buffer = Buffer::new(&card.device, 4096).unwrap();
    let mut host = HostBuffer::new(&card.device, 4096).unwrap();
    host.fill(9);
    drop(card.stream.enqueue_upload(&buffer.whole(), host).unwrap());
    let mut found = [0; 1];
    buffer.read(4095, &mut found).unwrap();
    assert_eq!(found, [9]);
}

#[test]
fn a_host_buffer_serves_many_transfers() {
    let card = Card::new();
    let buffer = Buffer::new(&card.device, 8).unwrap();
    let mut host = HostBuffer::new(&card.device, 16).unwrap();
    for round in 0..50_u8 {
        host[..8].fill(round);
        host = card.stream.enqueue_upload(&buffer.whole(), host).unwrap().wait().unwrap();
        let mut found = [0; 8];
        buffer.read(0, &mut found).unwrap();
        assert_eq!(found, [round; 8]);
    }
}

#[test]
fn page_locked_memory_goes_from_card_to_card() {
    let cann = cann(2);
    let cards = [0, 1].map(|ordinal| Card::open(&cann, ordinal));
    let buffers = cards.each_ref().map(|card| Buffer::new(&card.device, 4096).unwrap());
    let mut host = HostBuffer::new(&cards[0].device, 4096).unwrap();
    for (at, value) in [(1, 5), (0, 6), (1, 7)] {
        host.fill(value);
        host = cards[at].stream.enqueue_upload(&buffers[at].whole(), host).unwrap().wait().unwrap();
    }
    let mut found = [[0; 4096]; 2];
    for (buffer, found) in buffers.iter().zip(&mut found) {
        buffer.read(0, found).unwrap();
    }
    assert_eq!(found, [[6; 4096], [7; 4096]]);
    let [first, second] = cards;
    let [buffer_of_first, buffer] = buffers;
    drop((buffer_of_first, first));
    host.fill(8);
    let up = second.stream.enqueue_upload(&buffer.whole(), host).unwrap();
    drop(second.stream.enqueue_download(up.wait().unwrap(), &buffer.whole()).unwrap());
    buffer.read(0, &mut found[1]).unwrap();
    assert_eq!(found[1], [8; 4096]);
}
