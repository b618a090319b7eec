//! Confirmation before a change that cannot be undone.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Result, bail, ensure};

use crate::output::escape;

/// The limit up to which affected rows are counted before the question.
pub(crate) const COUNTED: usize = 1_000;

/// The option to skip the confirmation.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Confirm {
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

impl Confirm {
    /// Asks for confirmation that this `will_be` done, unless `--yes` is given. Fails if the answer is no, or if there
    /// is no terminal to ask on.
    pub(crate) fn ask(self, will_be: &str) -> Result<()> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            bail!("{will_be}: say --yes if that is meant");
        }
        let mut screen = io::stderr();
        write!(screen, "{}. Go on? [y/N] ", escape::text(will_be))?;
        screen.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        let meant = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
        ensure!(meant, "nothing was changed");
        Ok(())
    }
}

/// The number found, as text; counts stop at [`COUNTED`].
pub(crate) fn how_many(found: usize, one: &str) -> String {
    match found {
        1 => format!("1 {one}"),
        COUNTED => format!("{COUNTED} {one}s or more"),
        found => format!("{found} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_exact_up_to_where_it_was_counted() {
        assert_eq!(how_many(1, "job"), "1 job");
        assert_eq!(how_many(17, "dead letter"), "17 dead letters");
        assert_eq!(how_many(COUNTED, "job"), "1000 jobs or more");
    }
}
