//! What stands at a plug point until a user puts something else there.

mod sanitizer;

pub use sanitizer::DefaultErrorSanitizer;
