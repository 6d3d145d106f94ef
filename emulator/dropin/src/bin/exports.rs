//! Lists the exports of the drop-in libraries. Each line has library, name, and `modelled`,
//! `elsewhere` or `refused`, separated by tabs.

#[expect(clippy::print_stdout, reason = "the requested output of a command")]
fn main() {
    for export in ascend_tp_emulator_dropin::exports() {
        println!("{}\t{}\t{}", export.library, export.name, export.answer);
    }
}
