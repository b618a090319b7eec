//! Mistakes are told in words that say what to do, and what is not one compiles.

#[test]
fn mistakes_are_told_in_words_that_say_what_to_do() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    cases.pass("tests/pass/*.rs");
}
