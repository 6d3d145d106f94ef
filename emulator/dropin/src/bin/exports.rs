//! Lists what the drop-in libraries export. Input: nothing. Output: on standard output, a line for each function: its library,
//! its name, and `modelled`, `elsewhere` or `refused`, parted by tabs and ordered by library and name.

#[expect(clippy::print_stdout, reason = "a command line says what it was asked for")]
fn main() {
    for export in ascend_tp_emulator_dropin::exports() {
        println!("{}\t{}\t{}", export.library, export.name, export.answer);
    }
}
