//! The parser of `docs/requirements.md`: lines `- **S12** — text`.

use anyhow::{Context, Result, bail};

/// The last number; the first is 1.
pub(crate) const LAST: u16 = 194;

/// One requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) number: u16,
    pub(crate) text: String,
    /// The page that shows it, if no test can.
    pub(crate) page: Option<String>,
}

/// Every requirement in order; an error unless each number occurs once.
pub(crate) fn parse(document: &str) -> Result<Vec<Item>> {
    let items = document.lines().filter_map(|line| line.strip_prefix("- **S")).map(item);
    let items = items.collect::<Result<Vec<Item>>>()?;
    let mut problems = Vec::new();
    for number in 1..=LAST {
        match items.iter().filter(|item| item.number == number).count() {
            1 => {}
            0 => problems.push(format!("S{number} is missing")),
            count => problems.push(format!("S{number} stands there {count} times")),
        }
    }
    let beyond = items.iter().filter(|item| item.number == 0 || item.number > LAST);
    problems.extend(beyond.map(|item| format!("S{} is not between S1 and S{LAST}", item.number)));
    if !problems.is_empty() {
        bail!("the requirements are not in order: {}", problems.join(", "));
    }
    Ok(items)
}

/// Parses the rest of a line after `- **S`.
fn item(line: &str) -> Result<Item> {
    let (number, text) = line.split_once("** — ").with_context(|| format!("cannot read `- **S{line}`"))?;
    let number = number.parse().with_context(|| format!("`S{number}` is not a number"))?;
    let page = text.strip_suffix("`)").and_then(|text| text.split_once(" (by inspection: `"));
    Ok(match page {
        Some((text, page)) => Item { number, text: text.into(), page: Some(page.into()) },
        None => Item { number, text: text.into(), page: None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(change: impl Fn(u16) -> String) -> String {
        (1..=LAST).map(change).collect()
    }

    fn plain(number: u16) -> String {
        format!("- **S{number}** — It holds.\n")
    }

    #[test]
    fn every_number_stands_there_once() {
        assert_eq!(parse(&document(plain)).unwrap().len(), 194);
        let error = |change: &dyn Fn(u16) -> String| parse(&document(change)).unwrap_err().to_string();
        let missing = error(&|n| if n == 7 { String::new() } else { plain(n) });
        assert_eq!(missing, "the requirements are not in order: S7 is missing");
        let twice = error(&|n| if n == 7 { plain(n).repeat(2) } else { plain(n) });
        assert_eq!(twice, "the requirements are not in order: S7 stands there 2 times");
        let beyond = error(&|n| if n == 7 { plain(n) + &plain(195) } else { plain(n) });
        assert_eq!(beyond, "the requirements are not in order: S195 is not between S1 and S194");
    }

    #[test]
    fn a_line_that_cannot_be_read_is_an_error() {
        assert!(item("1** - ascii dash").is_err());
        assert!(item("x** — no number").is_err());
    }

    #[test]
    fn what_only_a_reader_can_check_names_the_page() {
        let read = item("187** — May change. (by inspection: `docs/reliability.md`)").unwrap();
        assert_eq!((read.text.as_str(), read.page.as_deref()), ("May change.", Some("docs/reliability.md")));
    }
}
