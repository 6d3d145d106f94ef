//! One thread at a time uses a communicator: two could not agree on the order of its calls.

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
