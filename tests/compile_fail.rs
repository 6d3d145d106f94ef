//! Misuse of the safe layer that the compiler refuses.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("*.rs");
}
