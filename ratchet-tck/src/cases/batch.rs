//! (to be written)

use crate::case::cases;

cases! { "batch"; }
