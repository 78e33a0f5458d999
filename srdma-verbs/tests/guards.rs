//! What must not compile: a batch or completion that outlives what it borrows, and wrong methods.

#[cfg(test)]
mod tests {
    #[test]
    fn guards_are_borrows() {
        let cases = trybuild::TestCases::new();
        cases.compile_fail("tests/compile_fail/*.rs");
    }
}
