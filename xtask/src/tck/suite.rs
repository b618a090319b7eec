//! Runs of the suite against one store: `cargo xtask tck <store> [filter…]`.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::output::Results;
use crate::{
    cargo::FEATURES,
    servers::{self, Running, Server},
    test::{STORES, crate_of},
};

/// Runs every case, or those that a filter matches, and prints the results.
pub(crate) fn run(workspace: &Path, store: &str, filters: &[String]) -> Result<()> {
    let needed = servers_of(store)?;
    if !workspace.join(crate_of(store)).is_dir() {
        bail!("the {store} store is not yet built");
    }
    let all: Vec<String> = ratchet_tck::cases::all().map(ratchet_tck::Case::id).collect();
    let selections = if filters.is_empty() {
        vec![Vec::new()]
    } else {
        filters.iter().map(|filter| selection(filter, &all)).collect::<Result<_>>()?
    };
    let run = |running: &[Running]| run_all(workspace, store, selections, running);
    let (results, sound) = servers::during(workspace, needed, false, run)?;
    print!("{}", closing(&results));
    if !results.failed.is_empty() {
        bail!("{} cases failed on {store}", results.failed.len());
    }
    if !sound {
        bail!("the suite could not run on {store}");
    }
    Ok(())
}

fn servers_of(store: &str) -> Result<&'static [Server]> {
    let known = STORES.iter().find(|(name, _)| *name == store);
    let names = STORES.map(|(name, _)| name).join(", ");
    known.map(|(_, servers)| *servers).with_context(|| format!("there is no store `{store}`, only {names}"))
}

/// Runs the suite once for each selection.
fn run_all(
    workspace: &Path,
    store: &str,
    selections: Vec<Vec<String>>,
    running: &[Running],
) -> Result<(Results, bool)> {
    let mut results = Results::default();
    let mut sound = true;
    for selection in selections {
        let mut command = crate::cargo();
        command.args(["test", "--package", &crate_of(store), "--test", "tck"]).args(FEATURES);
        command.arg("--").args(selection);
        command.envs(running.iter().map(Running::variable));
        let (part, success) = stream(command.current_dir(workspace))?;
        results.extend(part);
        sound &= success;
    }
    Ok((results, sound))
}

/// The arguments that select the cases of a filter. A case that is asked for runs even if the store lists it as not yet
/// built.
fn selection(filter: &str, all: &[String]) -> Result<Vec<String>> {
    let mut arguments = vec![filter.to_owned(), "--include-ignored".to_owned()];
    if all.iter().any(|case| case == filter) {
        arguments.push("--exact".to_owned());
    } else if !all.iter().any(|case| case.contains(filter)) {
        bail!("no case is called like `{filter}`; `cargo xtask tck --list` shows them all");
    }
    Ok(arguments)
}

/// Runs a test program, prints its lines as they come, and reads them.
fn stream(command: &mut Command) -> Result<(Results, bool)> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let mut results = Results::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            results.line(&line);
        }
    }
    Ok((results, child.wait()?.success()))
}

/// The last lines: cases not yet built, by area, and the three counts.
fn closing(results: &Results) -> String {
    let mut areas: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for case in &results.ignored {
        let (area, name) = case.split_once("::").unwrap_or(("", case));
        areas.entry(area).or_default().push(name);
    }
    let mut text = String::new();
    if !areas.is_empty() {
        text.push_str("not yet built:\n");
    }
    for (area, names) in areas {
        text.push_str(&format!("  {area} ({})\n", names.len()));
        names.iter().for_each(|name| text.push_str(&format!("    {name}\n")));
    }
    let Results { passed, failed, ignored } = results;
    text.push_str(&format!(
        "passed {} / failed {} / not yet built {}\n",
        passed.len(),
        failed.len(),
        ignored.len()
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases() -> Vec<String> {
        ["lock::is_exclusive", "lock::is_exclusive_under_a_race", "claim::is_disjoint"]
            .map(str::to_owned)
            .to_vec()
    }

    #[test]
    fn a_case_that_is_named_runs_alone_and_even_if_it_is_not_built() {
        let arguments = selection("lock::is_exclusive", &cases()).unwrap();
        assert_eq!(arguments, ["lock::is_exclusive", "--include-ignored", "--exact"]);
    }

    #[test]
    fn a_part_of_a_name_selects_all_that_have_it() {
        assert_eq!(selection("exclusive", &cases()).unwrap(), ["exclusive", "--include-ignored"]);
    }

    #[test]
    fn a_filter_that_selects_nothing_is_a_mistake() {
        let error = selection("exclusiv_", &cases()).unwrap_err().to_string();
        assert_eq!(error, "no case is called like `exclusiv_`; `cargo xtask tck --list` shows them all");
    }

    #[test]
    fn what_is_not_built_is_listed_by_area() {
        let results = Results {
            passed: vec!["claim::is_disjoint".into()],
            failed: vec![],
            ignored: vec!["lock::is_exclusive".into(), "batch::counts".into(), "lock::expires".into()],
        };
        let expected = "not yet built:\n  batch (1)\n    counts\n  lock (2)\n    is_exclusive\n    expires\n\
                        passed 1 / failed 0 / not yet built 3\n";
        assert_eq!(closing(&results), expected);
    }

    #[test]
    fn each_store_gets_its_servers() {
        assert_eq!(servers_of("memory").unwrap(), []);
        assert_eq!(servers_of("mongodb").unwrap(), [Server::Mongodb]);
        let error = servers_of("oracle").unwrap_err().to_string();
        assert_eq!(error, "there is no store `oracle`, only memory, postgres, mongodb, mysql, sqlite");
    }
}
