//! Mistakes are told in words that say what to do.

#[test]
fn mistakes_are_told_in_words_that_say_what_to_do() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
