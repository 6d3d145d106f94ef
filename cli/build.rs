//! Tells the program at which level it is optimised: a measurement says so if that is low.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").expect("cargo sets OPT_LEVEL");
    println!("cargo::rustc-env=ASCEND_TP_OPT_LEVEL={level}");
}
