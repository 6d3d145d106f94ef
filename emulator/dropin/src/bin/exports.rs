//! Lists the exports of the drop-in libraries on standard output. Each line contains the library,
//! the name, and `modelled`, `elsewhere` or `refused`, separated by tabs. The lines are ordered by
//! library and name.

#[expect(clippy::print_stdout, reason = "the requested output of a command")]
fn main() {
    for export in ascend_tp_emulator_dropin::exports() {
        println!("{}\t{}\t{}", export.library, export.name, export.answer);
    }
}
