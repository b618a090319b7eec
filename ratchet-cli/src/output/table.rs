//! Aligned columns.

use std::fmt;

use super::escape;

/// Rows under a heading; columns of numbers are right-aligned.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(heading: [&'static str; N]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with one cell per column. Only the first line of a cell is shown.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into_iter().map(first_line).collect());
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.chain([self.heading[column].len()]).max().unwrap_or_default()
    }

    fn is_number(&self, column: usize) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row[column].parse::<u64>().is_ok())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<_> =
            (0..self.heading.len()).map(|column| (self.width(column), self.is_number(column))).collect();
        let heading = self.heading.iter().map(|title| (*title).to_owned()).collect();
        for row in std::iter::once(&heading).chain(&self.rows) {
            let mut line = String::new();
            for (cell, (width, number)) in row.iter().zip(&columns) {
                let cell = if *number { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
                line.push_str(&cell);
                line.push_str("  ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The first line of a text, with a mark if there are more.
fn first_line(text: String) -> String {
    let text = match text.split_once('\n') {
        Some((line, _)) => format!("{} …", line.trim_end()),
        None => text,
    };
    escape::text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_stand_to_the_right() {
        let mut table = Table::new(["NAME", "COUNT", "SAYS"]);
        table.row(["é".to_owned(), "7".to_owned(), "one\ntwo".to_owned()]);
        table.row(["longer".to_owned(), "1200".to_owned(), String::new()]);
        assert_eq!(table.to_string(), "NAME    COUNT  SAYS\né           7  one …\nlonger   1200\n");
    }

    #[test]
    fn a_column_is_as_wide_as_its_escapes() {
        let mut table = Table::new(["NAME", "SAYS"]);
        table.row(["\u{202e}a".to_owned(), "x".to_owned()]);
        assert_eq!(table.to_string(), "NAME       SAYS\n\\u{202e}a  x\n");
    }
}
