//! Copies of texts of `ddl/`, which exist because each place must be complete by itself.
//!
//! A published crate contains only its own folder, so a store carries a copy of its migrations. And a clean install
//! records the migrations that it replaces, with the checksum of each.

use std::{
    collections::BTreeMap,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::Violations;

/// The folder of a dialect in `ddl/`, and the crate that carries its migrations.
const DIALECTS: [(&str, &str); 3] = [
    ("postgresql", "ratchet-store-postgres"),
    ("mysql", "ratchet-store-mysql"),
    ("sqlite", "ratchet-store-sqlite"),
];

/// Scripts by file name.
type Scripts = BTreeMap<String, String>;

/// Finds crates whose copies differ from `ddl/`.
pub(super) fn copies(workspace: &Path) -> Result<Violations> {
    let mut found = Vec::new();
    for (original, copy) in folders(workspace) {
        let shown = copy.strip_prefix(workspace).unwrap_or(&copy).display().to_string();
        found.extend(differences(&shown, &scripts(&original)?, &scripts(&copy)?));
    }
    Ok(found)
}

/// Makes every copy equal to `ddl/`.
pub(super) fn write_copies(workspace: &Path) -> Result<()> {
    for (original, copy) in folders(workspace) {
        let (wanted, there) = (scripts(&original)?, scripts(&copy)?);
        for name in there.keys().filter(|name| !wanted.contains_key(*name)) {
            fs::remove_file(copy.join(name))?;
        }
        for (name, text) in wanted.iter().filter(|(name, text)| there.get(*name) != Some(text)) {
            fs::create_dir_all(&copy)?;
            fs::write(copy.join(name), text)?;
        }
    }
    Ok(())
}

/// Finds clean installs that record wrong checksums.
pub(super) fn records(workspace: &Path) -> Result<Violations> {
    let mut found = Vec::new();
    for (shown, install, scripts) in installs(workspace)? {
        found.extend(wrong_records(&install, &scripts).into_iter().map(|wrong| format!("{shown}: {wrong}")));
    }
    Ok(found)
}

/// Writes the right checksums into the clean installs. A missing row must be added by hand.
pub(super) fn write_records(workspace: &Path) -> Result<()> {
    for (shown, install, scripts) in installs(workspace)? {
        let mended = mend(&install, &scripts);
        if mended != install {
            fs::write(workspace.join(shown), mended)?;
        }
    }
    Ok(())
}

/// The folders of the migrations and of their copies, for each existing store.
fn folders(workspace: &Path) -> Vec<(PathBuf, PathBuf)> {
    let stores = DIALECTS.iter().filter(|(_, store)| workspace.join(store).join("Cargo.toml").exists());
    stores
        .map(|(dialect, store)| {
            (workspace.join("ddl").join(dialect).join("migrations"), workspace.join(store).join("migrations"))
        })
        .collect()
}

/// The clean installs with their names and scripts.
fn installs(workspace: &Path) -> Result<Vec<(String, String, Scripts)>> {
    let mut found = Vec::new();
    for (dialect, _) in DIALECTS {
        let shown = format!("ddl/{dialect}/{dialect}-schema.sql");
        if let Ok(install) = fs::read_to_string(workspace.join(&shown)) {
            let scripts = scripts(&workspace.join("ddl").join(dialect).join("migrations"))?;
            found.push((shown, install, scripts));
        }
    }
    Ok(found)
}

/// The scripts in a folder; none if it does not exist.
fn scripts(folder: &Path) -> Result<Scripts> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Scripts::new()),
        Err(error) => return Err(error).with_context(|| folder.display().to_string()),
    };
    let mut scripts = Scripts::new();
    for entry in entries {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        scripts.insert(name, text);
    }
    Ok(scripts)
}

fn differences(shown: &str, wanted: &Scripts, there: &Scripts) -> Violations {
    let wrong = wanted.iter().filter_map(|(name, text)| match there.get(name) {
        None => Some(format!("{shown}/{name} is missing")),
        Some(copy) if copy != text => Some(format!("{shown}/{name} has another text")),
        Some(_) => None,
    });
    let extra = there.keys().filter(|name| !wanted.contains_key(*name));
    wrong.chain(extra.map(|name| format!("{shown}/{name} is no migration of ddl/"))).collect()
}

fn wrong_records(install: &str, scripts: &Scripts) -> Violations {
    let judge = |(name, text): (&String, &String)| match recorded(install, name) {
        None => Some(format!("does not record {name}")),
        Some(place) if install[place.clone()] != checksum(text) => {
            Some(format!("records {name} with another checksum"))
        }
        Some(_) => None,
    };
    scripts.iter().filter_map(judge).collect()
}

fn mend(install: &str, scripts: &Scripts) -> String {
    let mut mended = install.to_owned();
    for (name, text) in scripts {
        if let Some(place) = recorded(&mended, name) {
            mended.replace_range(place, &checksum(text));
        }
    }
    mended
}

/// The position of a script's checksum: the quoted text after its version and description, on one line.
fn recorded(install: &str, name: &str) -> Option<Range<usize>> {
    let (version, words) = name.strip_prefix('V')?.strip_suffix(".sql")?.split_once("__")?;
    let version = format!("('{:03}', ", version.parse::<u32>().ok()?);
    let description = format!(", '{}', '", words.replace('_', " "));
    let row = install.find(&version)?;
    let line = install[row..].lines().next()?;
    let start = row + line.find(&description)? + description.len();
    let length = install[start..].find('\'')?;
    Some(start..start + length)
}

/// The checksum as the migrator computes it: SHA-256, independent of line endings.
fn checksum(text: &str) -> String {
    let digest = Sha256::digest(text.replace("\r\n", "\n"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripts_of(files: &[(&str, &str)]) -> Scripts {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_copy_that_differs_is_found() {
        let wanted = scripts_of(&[("V001__a.sql", "a"), ("V002__b.sql", "b")]);
        assert!(differences("m", &wanted, &wanted.clone()).is_empty());
        let there = scripts_of(&[("V001__a.sql", "x"), ("V003__c.sql", "c")]);
        assert_eq!(
            differences("m", &wanted, &there),
            [
                "m/V001__a.sql has another text",
                "m/V002__b.sql is missing",
                "m/V003__c.sql is no migration of ddl/"
            ]
        );
    }

    #[test]
    fn a_record_with_another_checksum_is_found_and_mended() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let scripts = scripts_of(&[("V001__add_all.sql", "abc")]);
        let install = "CREATE TABLE a;\nVALUES ('001', now(), 'add all', 'old');\n";
        assert_eq!(wrong_records(install, &scripts), ["records V001__add_all.sql with another checksum"]);

        let mended = mend(install, &scripts);
        assert_eq!(mended, format!("CREATE TABLE a;\nVALUES ('001', now(), 'add all', '{abc}');\n"));
        assert!(wrong_records(&mended, &scripts).is_empty());
    }

    #[test]
    fn a_script_that_is_not_recorded_is_found() {
        let scripts = scripts_of(&[("V002__b.sql", "b")]);
        let install = "VALUES ('001', now(), 'b', 'x');";
        assert_eq!(wrong_records(install, &scripts), ["does not record V002__b.sql"]);
        assert_eq!(mend(install, &scripts), install);
    }

    #[test]
    fn line_ends_do_not_count() {
        assert_eq!(checksum("a\r\nb"), checksum("a\nb"));
        assert_ne!(checksum("a\nb"), checksum("a b"));
    }
}
