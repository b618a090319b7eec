//! The catalogue's description of the tables of a namespace, as lines that can be compared.

use ratchet_store_core::Dialect;

use crate::place::{Product, TestDatabase};

/// Reads everything in the catalogue that a script can decide, as lines without the namespace.
pub(crate) async fn of(place: &TestDatabase) -> Vec<String> {
    let queries = match place.product.dialect() {
        Dialect::Postgres => POSTGRES,
        Dialect::MySql => MYSQL,
        Dialect::Sqlite => SQLITE,
    };
    // Only MariaDB reports the algorithm of a view; the texts for MySQL are the same.
    let more = if place.product == Product::MariaDb { ALGORITHM } else { &[] };
    let mut client = place.connect().await;
    let mut lines = Vec::new();
    for (what, query, by_name) in queries.iter().chain(more) {
        let names: &[&str] = if *by_name { &[&place.name] } else { &[] };
        let found = client.texts(query, names).await;
        assert!(!found.is_empty(), "no {what}");
        lines.extend(found.into_iter().map(|line| format!("{what}: {}", plain(&line, &place.name))));
    }
    lines
}

/// The text without the namespace, without comments, and with single blanks.
fn plain(line: &str, namespace: &str) -> String {
    let code = line.lines().map(|line| line.split("--").next().unwrap_or_default());
    let text = code.collect::<Vec<_>>().join(" ").replace(namespace, "ratchet");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A query of the catalogue: its subject, its text, and whether the name of the schema is its parameter.
type Query = (&'static str, &'static str, bool);

const POSTGRES: &[Query] = &[
    (
        "relation",
        "SELECT concat_ws('|', c.relname, c.relkind, c.relpersistence, c.reloptions::text, am.amname, c.relrowsecurity) \
         FROM pg_class c LEFT JOIN pg_am am ON am.oid = c.relam \
         WHERE c.relnamespace = to_regnamespace(:schema) ORDER BY c.relname",
        true,
    ),
    (
        "column",
        "SELECT concat_ws('|', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, \
             a.attidentity, a.attgenerated, a.attstorage, a.attcompression, l.collname, \
             pg_get_expr(d.adbin, d.adrelid)) \
         FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
         LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
         LEFT JOIN pg_collation l ON l.oid = a.attcollation \
         WHERE c.relnamespace = to_regnamespace(:schema) AND a.attnum > 0 AND c.relkind IN ('r', 'v') \
         ORDER BY c.relname, a.attnum",
        true,
    ),
    (
        "index",
        "SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
         WHERE c.relnamespace = to_regnamespace(:schema) ORDER BY c.relname",
        true,
    ),
    (
        "constraint",
        "SELECT concat_ws('|', conrelid::regclass, conname, contype, convalidated, pg_get_constraintdef(oid)) \
         FROM pg_constraint WHERE connamespace = to_regnamespace(:schema) ORDER BY conrelid::regclass::text, conname",
        true,
    ),
    (
        "view",
        "SELECT concat_ws('|', viewname, definition) FROM pg_views WHERE schemaname = :schema ORDER BY viewname",
        true,
    ),
    (
        "sequence",
        "SELECT concat_ws('|', sequencename, data_type, start_value, increment_by, cycle) \
         FROM pg_sequences WHERE schemaname = :schema ORDER BY sequencename",
        true,
    ),
    (
        "count of triggers and functions",
        "SELECT (SELECT count(*) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
             WHERE c.relnamespace = to_regnamespace(:schema))::text || '|' || \
             (SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace(:schema))",
        true,
    ),
];

const MYSQL: &[Query] = &[
    (
        "table",
        "SELECT CAST(concat_ws('|', table_name, table_type, coalesce(engine, '-'), coalesce(row_format, '-'), \
             coalesce(table_collation, '-'), coalesce(create_options, '-')) AS CHAR) \
         FROM information_schema.tables WHERE table_schema = :schema ORDER BY table_name",
        true,
    ),
    (
        "column",
        "SELECT CAST(concat_ws('|', table_name, ordinal_position, column_name, column_type, is_nullable, \
             coalesce(column_default, '-'), coalesce(collation_name, '-'), column_key, extra, \
             coalesce(generation_expression, '-')) AS CHAR) \
         FROM information_schema.columns WHERE table_schema = :schema ORDER BY table_name, ordinal_position",
        true,
    ),
    (
        "index",
        "SELECT CAST(concat_ws('|', table_name, index_name, seq_in_index, column_name, non_unique, \
             coalesce(sub_part, '-'), coalesce(collation, '-'), index_type) AS CHAR) \
         FROM information_schema.statistics WHERE table_schema = :schema \
         ORDER BY table_name, index_name, seq_in_index",
        true,
    ),
    (
        "constraint",
        "SELECT CAST(concat_ws('|', table_name, constraint_name, constraint_type) AS CHAR) \
         FROM information_schema.table_constraints WHERE table_schema = :schema ORDER BY table_name, constraint_name",
        true,
    ),
    (
        "check",
        "SELECT CAST(concat_ws('|', constraint_name, check_clause) AS CHAR) \
         FROM information_schema.check_constraints WHERE constraint_schema = :schema \
         ORDER BY constraint_name, check_clause",
        true,
    ),
    (
        "reference",
        "SELECT CAST(concat_ws('|', k.table_name, k.constraint_name, k.ordinal_position, k.column_name, \
             k.referenced_table_schema, k.referenced_table_name, k.referenced_column_name, r.delete_rule, \
             r.update_rule) AS CHAR) \
         FROM information_schema.key_column_usage k JOIN information_schema.referential_constraints r \
             ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name \
         WHERE k.table_schema = :schema ORDER BY k.table_name, k.constraint_name, k.ordinal_position",
        true,
    ),
    (
        "view",
        "SELECT CAST(concat_ws('|', table_name, security_type, check_option, view_definition) AS CHAR) \
         FROM information_schema.views WHERE table_schema = :schema ORDER BY table_name",
        true,
    ),
    (
        "count of triggers and routines",
        "SELECT CAST(concat_ws('|', \
             (SELECT count(*) FROM information_schema.triggers WHERE trigger_schema = s.name), \
             (SELECT count(*) FROM information_schema.routines WHERE routine_schema = s.name)) AS CHAR) \
         FROM (SELECT :schema AS name) s",
        true,
    ),
];

const ALGORITHM: &[Query] = &[(
    "algorithm",
    "SELECT CAST(concat_ws('|', table_name, algorithm) AS CHAR) FROM information_schema.views \
     WHERE table_schema = :schema ORDER BY table_name",
    true,
)];

const SQLITE: &[Query] = &[
    (
        "table",
        "SELECT concat_ws('|', name, type, ncol, wr, strict) FROM pragma_table_list \
         WHERE schema = 'main' AND name NOT LIKE 'sqlite_%' ORDER BY name",
        false,
    ),
    (
        "column",
        "SELECT concat_ws('|', t.name, c.cid, c.name, c.type, c.\"notnull\", coalesce(c.dflt_value, '-'), c.pk, c.hidden) \
         FROM pragma_table_list t JOIN pragma_table_xinfo(t.name) c \
         WHERE t.schema = 'main' AND t.name NOT LIKE 'sqlite_%' ORDER BY t.name, c.cid",
        false,
    ),
    (
        "index",
        "SELECT concat_ws('|', t.name, i.name, i.\"unique\", i.origin, i.partial, c.seqno, c.name, c.\"desc\", c.coll, c.key) \
         FROM pragma_table_list t JOIN pragma_index_list(t.name) i JOIN pragma_index_xinfo(i.name) c \
         WHERE t.schema = 'main' ORDER BY t.name, i.name, c.seqno",
        false,
    ),
    (
        "reference",
        "SELECT concat_ws('|', t.name, f.id, f.seq, f.\"table\", f.\"from\", coalesce(f.\"to\", '-'), f.on_update, f.on_delete) \
         FROM pragma_table_list t JOIN pragma_foreign_key_list(t.name) f \
         WHERE t.schema = 'main' ORDER BY t.name, f.id, f.seq",
        false,
    ),
    (
        "text",
        "SELECT concat_ws('|', type, name, sql) FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name",
        false,
    ),
];
