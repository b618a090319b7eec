use proptest::prelude::*;

use super::*;

const ALL: [Dialect; 3] = [Dialect::Postgres, Dialect::MySql, Dialect::Sqlite];

fn schema() -> Namespace {
    Namespace::schema("app").unwrap()
}

fn compile(text: &str, dialect: Dialect, namespace: &Namespace) -> (String, Vec<String>) {
    let statement = Statement::compile(text.to_owned().leak(), dialect, namespace).unwrap();
    (statement.sql().as_str().to_owned(), statement.binds().iter().map(ToString::to_string).collect())
}

#[test]
fn parameters_are_numbered_by_first_mention_or_bound_at_each_mention() {
    let text = "SELECT :b, :a_1 WHERE :b > :a_1";
    for (dialect, sql, binds) in [
        (Dialect::Postgres, "SELECT $1, $2 WHERE $1 > $2", vec!["b", "a_1"]),
        (Dialect::MySql, "SELECT ?, ? WHERE ? > ?", vec!["b", "a_1", "b", "a_1"]),
        (Dialect::Sqlite, "SELECT ?, ? WHERE ? > ?", vec!["b", "a_1", "b", "a_1"]),
    ] {
        assert_eq!(
            compile(text, dialect, &schema()),
            (sql.to_owned(), binds.into_iter().map(str::to_owned).collect())
        );
    }
}

#[test]
fn quotes_comments_casts_and_bodies_hold_no_parameters() {
    for text in [
        "SELECT ':a', \"b:c\", 'it''s :d'",
        "SELECT 1 -- :a\n, 2 /* :b */",
        "SELECT 1::text, a[1 : n]",
        "DO $$ BEGIN x := y; PERFORM ':a', :b; END $$",
        "SELECT E'\\':a'",
    ] {
        assert_eq!(compile(text, Dialect::Postgres, &schema()), (text.to_owned(), vec![]), "{text}");
    }
    let text = r"SELECT '\':a', `b:c`, 1 # :d";
    assert_eq!(compile(text, Dialect::MySql, &schema()), (text.to_owned(), vec![]));
    assert_eq!(
        compile(":a::uuid[]", Dialect::Postgres, &schema()),
        ("$1::uuid[]".to_owned(), vec!["a".to_owned()])
    );
}

#[test]
fn the_schema_that_texts_are_written_for_gives_way_to_the_namespace() {
    let prefix = Namespace::prefix("app_").unwrap();
    for (namespace, text, sql) in [
        (schema(), "FROM ratchet.job j", r#"FROM "app"."job" j"#),
        (schema(), "CREATE SCHEMA ratchet;", r#"CREATE SCHEMA "app";"#),
        (schema(), "ratchet.\"User\"", r#""app"."User""#),
        (schema(), "INTO ratchet.ratchet_schema_version", r#"INTO "app"."ratchet_schema_version""#),
        (prefix.clone(), "FROM ratchet.job j", r#"FROM "app_job" j"#),
        (prefix, "CREATE INDEX ratchet.i ON ratchet.job", r#"CREATE INDEX "app_i" ON "app_job""#),
        (Namespace::bare(), "FROM ratchet.job j", r#"FROM "job" j"#),
        (schema(), "DO $x$ DELETE FROM ratchet.job $x$", r#"DO $x$ DELETE FROM "app"."job" $x$"#),
    ] {
        assert_eq!(compile(text, Dialect::Postgres, &namespace).0, sql);
    }
    assert_eq!(compile("FROM ratchet.job", Dialect::MySql, &schema()).0, "FROM `app`.`job`");
}

#[test]
fn what_only_resembles_the_schema_stays() {
    for text in [
        "'ratchet.job'",
        "-- ratchet.job",
        "/* ratchet */",
        "t.ratchet",
        "x.ratchet.y",
        "ratchet_node",
        "my_ratchet.job",
        "\"ratchet\".job",
        "RATCHET.job",
        "$$don't ratchet.job$$",
    ] {
        assert_eq!(compile(text, Dialect::Postgres, &schema()).0, text);
    }
}

#[test]
fn a_text_that_names_the_schema_needs_one() {
    let prefix = Namespace::prefix("app_").unwrap();
    for namespace in [prefix, Namespace::bare()] {
        for text in ["CREATE SCHEMA ratchet", "FROM ratchet.\"User\""] {
            let error = Statement::compile(text, Dialect::Postgres, &namespace).unwrap_err();
            assert_eq!(error, TextError::NeedsSchema, "{text}");
        }
    }
}

#[test]
fn a_text_without_an_end_is_refused_with_its_line() {
    let error = Statement::compile("SELECT\n 'a", Dialect::Postgres, &schema()).unwrap_err();
    assert_eq!(error.to_string(), "line 2: a quote, comment or body begins here and never ends");
}

#[test]
fn a_script_is_cut_at_its_semicolons_only() {
    let text = "-- head; 'quote\nCREATE TABLE ratchet.a (x TEXT DEFAULT ';');;\n\n\
                INSERT INTO ratchet.a VALUES ('it\\'s; b'); # end; of\n/* ; */ ;\n\
                /*!80000 SET x = 1; */;\nDROP TABLE `b;c`";
    let found = statements(text, Dialect::MySql, &schema()).unwrap();
    let found: Vec<&str> = found.iter().map(SqlStr::as_str).collect();
    assert_eq!(
        found,
        [
            "-- head; 'quote\nCREATE TABLE `app`.`a` (x TEXT DEFAULT ';')",
            "INSERT INTO `app`.`a` VALUES ('it\\'s; b')",
            "/*!80000 SET x = 1; */",
            "DROP TABLE `b;c`",
        ]
    );
}

#[test]
fn a_script_keeps_what_looks_like_a_parameter() {
    let text = "CREATE TABLE ratchet.a (x int DEFAULT :y);";
    let sql = script(text, Dialect::Postgres, &schema()).unwrap();
    assert_eq!(sql.as_str(), "CREATE TABLE \"app\".\"a\" (x int DEFAULT :y);");
}

#[test]
fn the_names_of_a_script_are_those_in_the_schema() {
    let text = "CREATE TABLE ratchet.a (x int); -- ratchet.b\nCREATE INDEX i ON ratchet.a (x); 'ratchet.c' t.ratchet.d";
    assert_eq!(names(text, Dialect::Postgres).unwrap().into_iter().collect::<Vec<_>>(), ["a"]);
}

/// A piece of text, and its expected form on PostgreSQL in the schema `app`.
#[derive(Clone, Debug)]
enum Part {
    Same(String),
    Param(String),
    Table(String),
}

fn part() -> impl Strategy<Value = Part> {
    let name = "[a-z][a-z0-9_]{0,8}";
    prop_oneof![
        "[A-Z]{1,6}".prop_map(Part::Same),
        "[-+*/(),<>=]".prop_map(Part::Same),
        "'([^'\\\\]|''){0,10}'".prop_map(Part::Same),
        "\"[^\"]{0,10}\"".prop_map(Part::Same),
        "-- [^\n]{0,10}\n".prop_map(Part::Same),
        "/\\*[^*/]{0,10}\\*/".prop_map(Part::Same),
        "\\$q\\$[^$']{0,10}\\$q\\$".prop_filter("no schema", |t| !t.contains("ratchet")).prop_map(Part::Same),
        "[a-z]{1,5}::[a-z]{1,5}".prop_filter("no schema", |t| !t.contains("ratchet")).prop_map(Part::Same),
        name.prop_map(Part::Param),
        name.prop_map(Part::Table),
    ]
}

proptest! {
    #[test]
    fn every_parameter_and_table_is_replaced_and_nothing_else(parts in prop::collection::vec(part(), 0..20)) {
        let (mut text, mut expected, mut binds) = (String::new(), String::new(), Vec::<String>::new());
        for part in &parts {
            match part {
                Part::Same(same) => {
                    text += same;
                    expected += same;
                }
                Part::Param(name) => {
                    let place = binds.iter().position(|bind| bind == name).unwrap_or_else(|| {
                        binds.push(name.clone());
                        binds.len() - 1
                    });
                    text += &format!(":{name}");
                    expected += &format!("${}", place + 1);
                }
                Part::Table(name) => {
                    text += &format!("ratchet.{name}");
                    expected += &format!("\"app\".\"{name}\"");
                }
            }
            text.push(' ');
            expected.push(' ');
        }
        let (sql, found) = compile(&text, Dialect::Postgres, &schema());
        prop_assert_eq!(sql, expected);
        prop_assert_eq!(found, binds);
    }

    #[test]
    fn no_text_at_all_makes_the_compiler_panic(text in "\\PC{0,40}") {
        for dialect in ALL {
            let _ = Statement::compile(text.clone().leak(), dialect, &schema());
        }
    }

    #[test]
    fn a_compiled_text_without_mentions_is_the_text_itself(text in "[A-Z0-9 ,=()'\"\n;-]{0,40}") {
        for dialect in ALL {
            if let Ok(statement) = Statement::compile(text.clone().leak(), dialect, &schema()) {
                prop_assert!(statement.sql().as_str() == text);
                prop_assert!(statement.binds().is_empty());
            }
        }
    }
}
