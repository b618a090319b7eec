use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::REDACTED;

static NUMBERS: LazyLock<Regex> =
    LazyLock::new(|| super::rule::regex(r"[0-9]{13,}|[0-9]{4}(?:[ -][0-9]+){2,}"));

/// How the digits of a card are grouped in print.
const SHAPES: [&[usize]; 4] = [&[4, 4, 4, 4], &[4, 4, 4, 4, 3], &[4, 6, 5], &[4, 6, 4]];

/// Replaces card numbers: the right length and shape, a first digit that issuers use, and a valid check digit.
pub(super) fn strip_card_numbers(text: &str) -> String {
    NUMBERS.replace_all(text, |found: &Captures<'_>| strip_from(&found[0])).into_owned()
}

/// Replaces cards in digits that are grouped by single spaces or dashes.
fn strip_from(numbers: &str) -> String {
    let groups: Vec<&str> = numbers.split([' ', '-']).collect();
    let (mut out, mut at, mut next) = (String::with_capacity(numbers.len()), 0, 0);
    while next < groups.len() {
        if next > 0 {
            out.push_str(&numbers[at..=at]);
            at += 1;
        }
        let taken = card_at(&groups[next..]);
        let used = taken.max(1);
        let len = groups[next..next + used].iter().map(|group| group.len() + 1).sum::<usize>() - 1;
        out.push_str(if taken > 0 { REDACTED } else { &numbers[at..at + len] });
        at += len;
        next += used;
    }
    out
}

/// How many groups at the beginning are a card.
fn card_at(groups: &[&str]) -> usize {
    if (13..=19).contains(&groups[0].len()) && is_card(groups[0]) {
        return 1;
    }
    let fits = |shape: &&&[usize]| {
        groups.len() >= shape.len()
            && groups.iter().zip(shape.iter()).all(|(group, len)| group.len() == *len)
            && is_card(&groups[..shape.len()].concat())
    };
    SHAPES.iter().filter(fits).map(|shape| shape.len()).max().unwrap_or(0)
}

fn is_card(digits: &str) -> bool {
    let issuer = match digits.as_bytes()[0] {
        b'3'..=b'6' => true,
        b'2' => ("2221"..="2720").contains(&&digits[..4]),
        _ => false,
    };
    issuer && luhn(digits)
}

fn luhn(digits: &str) -> bool {
    let sum: u32 = digits
        .bytes()
        .rev()
        .map(|digit| u32::from(digit - b'0'))
        .enumerate()
        .map(|(place, digit)| match (place % 2, digit * 2) {
            (0, _) => digit,
            (_, twice) => twice / 10 + twice % 10,
        })
        .sum();
    sum.is_multiple_of(10)
}
