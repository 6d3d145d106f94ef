//! An aborted communicator cannot be used.

use ascend_tp::device::{Communicator, Result, Stream};

fn main() {}

fn leave(communicator: Communicator, stream: &Stream) -> Result<()> {
    communicator.abort()?;
    communicator.enqueue_barrier(stream)
}
