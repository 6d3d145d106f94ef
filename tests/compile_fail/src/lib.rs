//! Misuse of the safe device layer that must not compile; the cases are in the parent folder.

#[cfg(test)]
mod tests {
    #[test]
    fn misuse_does_not_compile() {
        trybuild::TestCases::new().compile_fail("*.rs");
    }
}
