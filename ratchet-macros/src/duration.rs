//! Durations and backoffs in text form: `30s`, `exponential 30s`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, LitStr};

/// Parses a duration: digits and one of `ms`, `s`, `m`, `h`, `d`.
pub(crate) fn duration(text: &LitStr) -> syn::Result<TokenStream> {
    let millis = millis(&text.value()).ok_or_else(|| wrong_duration(text))?;
    Ok(quote!(::core::time::Duration::from_millis(#millis)))
}

/// Parses a backoff: `none`, `fixed 10s` or `exponential 30s`.
pub(crate) fn backoff(text: &LitStr) -> syn::Result<TokenStream> {
    let value = text.value();
    let (policy, delay) = value.split_once(' ').unwrap_or((&value, ""));
    let wrong = || Error::new(text.span(), "a backoff is \"none\", \"fixed 10s\" or \"exponential 30s\"");
    if policy == "none" && delay.is_empty() {
        return Ok(quote!(::ratchet_core::Backoff::None));
    }
    let millis = millis(delay).ok_or_else(wrong)?;
    let delay = quote!(::core::time::Duration::from_millis(#millis));
    match policy {
        "fixed" => Ok(quote!(::ratchet_core::Backoff::Fixed(#delay))),
        "exponential" => Ok(quote!(::ratchet_core::Backoff::Exponential(#delay))),
        _ => Err(wrong()),
    }
}

fn wrong_duration(text: &LitStr) -> Error {
    Error::new(text.span(), "a duration is a number and a unit: \"250ms\", \"30s\", \"5m\", \"2h\" or \"1d\"")
}

fn millis(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, expected) in [
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("1d", Some(86_400_000)),
            ("5", None),
            ("s", None),
            ("1.5s", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
    }
}
