//! The files of `ddl/`, read when a test runs: a published crate does not contain them.

use std::path::PathBuf;

use ratchet_store_core::Dialect;

use crate::place::Product;

/// The texts in `ddl/` of one dialect.
pub(crate) struct Texts {
    folder: PathBuf,
    dialect: &'static str,
}

/// The texts for a product.
pub(crate) fn of(product: Product) -> Texts {
    let dialect = match product.dialect() {
        Dialect::Postgres => "postgresql",
        Dialect::MySql => "mysql",
        Dialect::Sqlite => "sqlite",
    };
    Texts { folder: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../ddl").join(dialect), dialect }
}

impl Texts {
    /// The clean install.
    pub(crate) fn install(&self) -> &'static str {
        self.read(&format!("{}-schema.sql", self.dialect))
    }

    /// The migrations, by the names of their files.
    pub(crate) fn migrations(&self) -> Vec<(&'static str, &'static str)> {
        let folder = self.folder.join("migrations");
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<&str> = names.map(|name| &*name.leak()).collect();
        names.sort_unstable();
        names.into_iter().map(|name| (name, self.read(&format!("migrations/{name}")))).collect()
    }

    /// Reads one file.
    pub(crate) fn read(&self, name: &str) -> &'static str {
        let path = self.folder.join(name);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.leak()
    }
}
