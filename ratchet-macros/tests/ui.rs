//! Mistakes are reported with a message that says what to do; correct code compiles.

#[test]
fn mistakes_are_told_in_words_that_say_what_to_do() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    cases.pass("tests/pass/*.rs");
}
