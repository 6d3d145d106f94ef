//! A prepared operator has one executor, so two callers cannot enqueue it at the same time.

use ascend_tp::device::{Prepared, Stream};

fn main() {}

fn share(operator: &Prepared, stream: &Stream) {
    let _ = operator.enqueue(stream, None);
}
