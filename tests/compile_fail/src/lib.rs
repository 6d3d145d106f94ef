//! Misuse of the safe layer that the compiler refuses: the cases beside this folder.

#[cfg(test)]
mod tests {
    #[test]
    fn misuse_does_not_compile() {
        trybuild::TestCases::new().compile_fail("*.rs");
    }
}
