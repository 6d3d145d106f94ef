//! Threads cannot share a communicator, because its calls would have no fixed order.

use std::thread;

use ascend_tp::device::{Communicator, Stream};

fn main() {}

fn share(communicator: &Communicator, streams: &[Stream; 2]) {
    thread::scope(|scope| {
        for stream in streams {
            scope.spawn(|| communicator.enqueue_barrier(stream));
        }
    });
}
