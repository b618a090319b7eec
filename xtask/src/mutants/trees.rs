//! Digests of source trees: a result is valid as long as the sources that it depends on are the same.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use sha2::{Digest, Sha256};

/// The folder of a crate with its bank of mutants, which is not part of the crate's sources.
const BANK: &str = "mutants";

/// The source trees of one checkout; each is read once.
#[derive(Debug)]
pub(crate) struct Trees<'a> {
    workspace: &'a Path,
    digests: RefCell<BTreeMap<String, String>>,
}

impl<'a> Trees<'a> {
    pub(crate) fn new(workspace: &'a Path) -> Self {
        Self { workspace, digests: RefCell::default() }
    }

    /// The digest of a top-level folder: a crate, or `ddl`.
    pub(crate) fn digest(&self, folder: &str) -> Result<String> {
        if let Some(known) = self.digests.borrow().get(folder) {
            return Ok(known.clone());
        }
        let digest = digest(&self.workspace.join(folder))?;
        self.digests.borrow_mut().insert(folder.to_owned(), digest.clone());
        Ok(digest)
    }

    /// One short digest of some texts and of the trees of some folders.
    pub(crate) fn hash(&self, texts: &[&str], folders: &[&str]) -> Result<String> {
        let mut sum = Sha256::new();
        for text in texts {
            sum.update(Sha256::digest(text));
        }
        for folder in folders {
            sum.update(self.digest(folder)?);
        }
        let mut hash = hex(&sum.finalize());
        hash.truncate(16);
        Ok(hash)
    }
}

/// The top-level folder of a file of the workspace.
pub(crate) fn folder_of(file: &str) -> &str {
    file.split('/').next().unwrap_or(file)
}

fn digest(tree: &Path) -> Result<String> {
    let mut files = Vec::new();
    collect(tree, Path::new(""), &mut files)?;
    files.sort();
    let mut sum = Sha256::new();
    for file in files {
        sum.update(file.as_os_str().as_encoded_bytes());
        sum.update(Sha256::digest(fs::read(tree.join(&file))?));
    }
    Ok(hex(&sum.finalize()))
}

fn collect(tree: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(tree.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if path != Path::new(BANK) {
                collect(tree, &path, files)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs" || e == "toml" || e == "sql") {
            files.push(path);
        }
    }
    Ok(())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_follows_the_sources_and_not_the_bank() {
        let root = std::env::temp_dir().join(format!("xtask-trees-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/src/lib.rs", "one");
        write("b/src/lib.rs", "one");
        let hash = |folders: &[&str]| Trees::new(&root).hash(&["text"], folders).unwrap();
        let before = hash(&["a", "b"]);
        write("a/mutants/claim.toml", "not a source");
        write("a/notes.md", "not a source");
        assert_eq!(hash(&["a", "b"]), before);
        assert_ne!(Trees::new(&root).hash(&["other"], &["a", "b"]).unwrap(), before);
        write("b/src/lib.rs", "two");
        assert_ne!(hash(&["a", "b"]), before);
        assert_eq!(hash(&["a"]), hash(&["a"]));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_file_lies_in_its_crate() {
        assert_eq!(folder_of("ratchet-api/src/id.rs"), "ratchet-api");
        assert_eq!(folder_of("ddl/mysql/mysql-schema.sql"), "ddl");
    }
}
