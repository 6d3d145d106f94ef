//! Writes the drop-in libraries to a folder and prints their paths. Cargo must have built the
//! shared library.

use std::path::Path;

use anyhow::bail;
use ascend_tp_emulator_dropin::{real_library, write_libraries};

#[expect(clippy::print_stdout, reason = "the output of a command")]
fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [folder] = arguments.as_slice() else { bail!("usage: write-libraries DIR") };
    for path in write_libraries(Path::new(folder), &real_library()?)? {
        println!("{}", path.display());
    }
    Ok(())
}
