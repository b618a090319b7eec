//! Taking work from the store.
