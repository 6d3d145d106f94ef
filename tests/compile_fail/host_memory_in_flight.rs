//! A transfer owns the host memory until it has ended.

use ascend_tp::device::{BufferSlice, HostBuffer, Result, Stream};

fn main() {}

fn upload(stream: &Stream, to: &BufferSlice, mut host: HostBuffer) -> Result<()> {
    let transfer = stream.enqueue_upload(to, host)?;
    host[0] = 1;
    transfer.wait()?;
    Ok(())
}
