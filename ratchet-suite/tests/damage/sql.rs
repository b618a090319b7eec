//! Rows in SQL databases. Statements are made of names from the catalogue, of keys as the server quotes them, and of
//! the expressions in this folder; `cargo xtask verify` lists this file among those that may build statement text.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_api::JobId;
use ratchet_api::store::JobStore;
use ratchet_suite::test_store::{File, Schema, TestStore as _, postgres_url};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _, SqliteConnection};

use crate::tables::{Cell, Hit, Key, Row, Tables, Wrong};
use crate::values;

/// A column of a table, as the catalogue describes it.
struct Column {
    name: String,
    in_key: bool,
    wrong: Arc<Vec<Wrong>>,
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Builds a query for all cells of a table, each quoted by its database.
fn select(table: &str, columns: &[Column], quote: impl Fn(&str) -> String) -> String {
    let cells: Vec<String> = columns.iter().map(|column| quote(&quoted(&column.name))).collect();
    format!("SELECT {} FROM {table}", cells.join(", "))
}

fn update(table: &str, hit: &Hit<'_>) -> String {
    let (Key::Sql(key), Wrong::Sql(value)) = (&hit.row.key, hit.value) else {
        panic!("a row of a document store");
    };
    format!("UPDATE {table} SET {} = {value} WHERE {key}", quoted(hit.column))
}

fn row(table: &str, columns: &[Column], contents: Vec<String>) -> Row {
    let cell = |(column, content): (&Column, String)| Cell {
        column: column.name.clone(),
        in_key: column.in_key,
        content,
        wrong: Arc::clone(&column.wrong),
    };
    let cells: Vec<Cell> = columns.iter().zip(contents).map(cell).collect();
    let keys = cells.iter().filter(|cell| cell.in_key);
    let key: Vec<String> = keys.map(|cell| format!("{} = {}", quoted(&cell.column), cell.content)).collect();
    Row { table: table.to_owned(), key: Key::Sql(key.join(" AND ")), cells }
}

#[derive(Default)]
pub(crate) struct Sqlite(File);

impl Sqlite {
    /// Opens a connection that bypasses the constraints.
    async fn shell(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.0.path());
        let options = options.pragma("ignore_check_constraints", "on").pragma("foreign_keys", "off");
        options.connect().await.expect("the file opens")
    }
}

#[async_trait]
impl Tables for Sqlite {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    async fn connect(&self) -> Arc<dyn JobStore> {
        self.0.connect().await
    }

    async fn rows(&self) -> Vec<Row> {
        let mut shell = self.shell().await;
        let catalogue = sqlx::query(
            "SELECT m.name, c.name, c.type, c.\"notnull\", c.pk
             FROM sqlite_schema m JOIN pragma_table_info(m.name) c
             WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid",
        );
        let mut tables: Vec<(String, Vec<Column>)> = Vec::new();
        for line in catalogue.fetch_all(&mut shell).await.expect("the catalogue") {
            let (table, kind): (String, String) = (line.get(0), line.get(2));
            let column = Column {
                name: line.get(1),
                in_key: line.get::<i64, _>(4) > 0,
                wrong: Arc::new(values::sqlite(&kind, line.get::<i64, _>(3) == 0)),
            };
            match tables.last_mut() {
                Some((last, columns)) if *last == table => columns.push(column),
                _ => tables.push((table, vec![column])),
            }
        }
        let mut rows = Vec::new();
        for (table, columns) in tables {
            // Bytes that are no valid text are read as bytes.
            let select = select(&quoted(&table), &columns, |column| format!("CAST(quote({column}) AS BLOB)"));
            for line in sqlx::query(AssertSqlSafe(select)).fetch_all(&mut shell).await.expect("the rows") {
                let contents = (0..columns.len())
                    .map(|at| String::from_utf8_lossy(&line.get::<Vec<u8>, _>(at)).into_owned());
                rows.push(row(&table, &columns, contents.collect()));
            }
        }
        rows
    }

    async fn damage(&self, hits: &[Hit<'_>]) -> Vec<bool> {
        let mut shell = self.shell().await;
        let mut all = shell.begin().await.expect("a transaction");
        let mut taken = Vec::with_capacity(hits.len());
        for hit in hits {
            let update = update(&quoted(&hit.row.table), hit);
            let answer = sqlx::query(AssertSqlSafe(update)).execute(&mut *all).await;
            taken.push(answer.is_ok_and(|done| done.rows_affected() == 1));
        }
        all.commit().await.expect("the rows are written");
        taken
    }

    fn id(&self, job: JobId) -> String {
        format!("X'{}'", job.as_uuid().simple().to_string().to_uppercase())
    }

    fn text(&self, text: &str) -> String {
        format!("'{text}'")
    }

    async fn remove(&self) {}
}

pub(crate) struct Postgres(Schema);

impl Postgres {
    pub(crate) async fn new() -> Self {
        Self(Schema::migrated().await)
    }

    fn schema(&self) -> &str {
        self.0.0.schema_name().expect("a schema")
    }

    async fn shell(&self) -> PgConnection {
        let mut shell = PgConnection::connect(&postgres_url()).await.expect("the server answers");
        // No case cuts the power.
        sqlx::query("SET synchronous_commit = off").execute(&mut shell).await.expect("it is set");
        shell
    }

    fn table(&self, name: &str) -> String {
        format!("{}.{}", quoted(self.schema()), quoted(name))
    }
}

#[async_trait]
impl Tables for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    async fn connect(&self) -> Arc<dyn JobStore> {
        self.0.connect().await
    }

    async fn rows(&self) -> Vec<Row> {
        let mut shell = self.shell().await;
        let catalogue = sqlx::query(
            "SELECT c.table_name::text, c.column_name::text, c.data_type::text, c.is_nullable = 'YES', EXISTS (
                 SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
                 WHERE i.indisprimary AND a.attname = c.column_name
                   AND i.indrelid = (quote_ident(c.table_schema) || '.' || quote_ident(c.table_name))::regclass
             )
             FROM information_schema.columns c
             JOIN information_schema.tables t USING (table_schema, table_name)
             WHERE c.table_schema = $1 AND t.table_type = 'BASE TABLE' AND c.is_updatable = 'YES'
             ORDER BY c.table_name, c.ordinal_position",
        );
        let catalogue = catalogue.bind(self.schema()).fetch_all(&mut shell).await.expect("the catalogue");
        let mut tables: HashMap<String, Vec<Column>> = HashMap::new();
        for line in catalogue {
            let wrong = Arc::new(values::postgres(line.get(2), line.get(3)));
            let column = Column { name: line.get(1), in_key: line.get(4), wrong };
            tables.entry(line.get(0)).or_default().push(column);
        }
        let mut rows = Vec::new();
        for (table, columns) in tables {
            let quote = |column: &str| format!("coalesce(quote_literal({column}::text), 'NULL')");
            let select = select(&self.table(&table), &columns, quote);
            for line in sqlx::query(AssertSqlSafe(select)).fetch_all(&mut shell).await.expect("the rows") {
                let contents = (0..columns.len()).map(|at| line.get::<String, _>(at)).collect();
                rows.push(row(&table, &columns, contents));
            }
        }
        rows
    }

    async fn damage(&self, hits: &[Hit<'_>]) -> Vec<bool> {
        let mut shell = self.shell().await;
        let mut taken = Vec::with_capacity(hits.len());
        for hit in hits {
            let update = update(&self.table(&hit.row.table), hit);
            let answer = sqlx::query(AssertSqlSafe(update)).persistent(false).execute(&mut shell).await;
            taken.push(answer.is_ok_and(|done| done.rows_affected() == 1));
        }
        taken
    }

    fn id(&self, job: JobId) -> String {
        format!("'{job}'")
    }

    fn text(&self, text: &str) -> String {
        format!("'{text}'")
    }

    async fn remove(&self) {
        self.0.remove().await;
    }
}
