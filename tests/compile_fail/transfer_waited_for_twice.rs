//! A transfer returns its host memory only once.

use ascend_tp::device::{HostBuffer, Result, Transfer};

fn main() {}

fn wait(transfer: Transfer) -> Result<(HostBuffer, HostBuffer)> {
    Ok((transfer.wait()?, transfer.wait()?))
}
