//! A database user who is not the owner.

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

use super::{TestDatabase, url};

/// A user whose name and password must not appear in any error.
pub(crate) struct User {
    pub(crate) name: String,
    admin: PgConnection,
}

pub(crate) const PASSWORD: &str = "s3cret";

impl User {
    pub(crate) async fn new() -> Self {
        let name = format!("user_{:08x}", rand::random::<u32>());
        let admin = PgConnection::connect(&url()).await.expect("the server answers");
        let mut user = Self { name, admin };
        user.run(&format!("CREATE ROLE {} LOGIN PASSWORD '{PASSWORD}'", user.name)).await;
        user
    }

    pub(crate) async fn run(&mut self, statement: &str) {
        // The name is made of plain characters.
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()))
            .execute(&mut self.admin)
            .await
            .expect(statement);
    }

    /// Grants everything that a store needs in a schema.
    pub(crate) async fn grant(&mut self, place: &TestDatabase) {
        let (schema, name) = (place.name().to_owned(), self.name.clone());
        self.run(&format!("GRANT USAGE ON SCHEMA {schema} TO {name}")).await;
        self.run(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {name}"))
            .await;
    }

    /// Makes the server refuse writes of nodes and live jobs that are not made at READ COMMITTED.
    pub(crate) async fn refuse_other_levels(&mut self, place: &TestDatabase) {
        let schema = place.name().to_owned();
        self.run(&format!(
            "CREATE FUNCTION {schema}.level() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF current_setting('transaction_isolation') <> 'read committed' THEN
                     RAISE EXCEPTION 'the level is %', current_setting('transaction_isolation');
                 END IF;
                 RETURN NULL;
             END $$;
             CREATE TRIGGER level AFTER INSERT OR UPDATE ON {schema}.scheduler_node
                 FOR EACH STATEMENT EXECUTE FUNCTION {schema}.level();
             CREATE TRIGGER level AFTER INSERT OR UPDATE ON {schema}.scheduler_job_queue
                 FOR EACH STATEMENT EXECUTE FUNCTION {schema}.level();"
        ))
        .await;
    }

    /// The address of a database for this user.
    pub(crate) fn url(&self, database: Option<&str>) -> String {
        let server: PgConnectOptions = url().parse().expect("a URL of PostgreSQL");
        let database = database.or(server.get_database()).unwrap_or("postgres");
        let (host, port) = (server.get_host(), server.get_port());
        format!("postgres://{}:{PASSWORD}@{host}:{port}/{database}", self.name)
    }

    pub(crate) async fn drop(mut self) {
        self.run(&format!("DROP OWNED BY {0}; DROP ROLE {0}", self.name.clone())).await;
    }
}
