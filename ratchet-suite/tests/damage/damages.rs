//! The list of damages: every wrong value in every column of every row that the scenes have.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::scenes::SCENES;
use crate::tables::{Tables, Wrong};
use crate::world::{assign, stage};

/// One value in one column of a row in one state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Damage {
    /// The index of its scene in [`SCENES`].
    pub(crate) scene: usize,
    pub(crate) table: String,
    /// The index of the row among the scene's rows of this table.
    pub(crate) role: usize,
    pub(crate) column: String,
    pub(crate) value: Wrong,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, role, column, value, .. } = self;
        let value: String = format!("{value:?}").chars().take(80).collect();
        write!(f, "{table}.{column} = {value} ({}, row {role})", SCENES[self.scene].name)
    }
}

/// Returns every damage, derived from the catalogue and one instance of each scene.
pub(crate) async fn damages(tables: Arc<dyn Tables>) -> Vec<Damage> {
    let stage = stage(&tables).await;
    let mut built = Vec::new();
    for scene in SCENES {
        built.push((scene.build)(&stage, 1).await);
    }
    let rows = tables.rows().await;
    let mut all = Vec::new();
    for ((scene, _, table, role), row) in assign(&rows, &built) {
        if SCENES[scene].skip.contains(&table) {
            continue;
        }
        for cell in &row.cells {
            all.extend(cell.wrong.iter().map(|value| Damage {
                scene,
                table: table.to_owned(),
                role,
                column: cell.column.clone(),
                value: value.clone(),
            }));
        }
    }
    tables.remove().await;
    all.sort_by_key(|damage| (damage.scene, damage.table.clone(), damage.role, damage.column.clone()));
    if tables.in_every_state() { all } else { spread(all) }
}

/// Assigns each value of a column to one of the states that its rows can be in, in turn.
fn spread(all: Vec<Damage>) -> Vec<Damage> {
    let mut columns: BTreeMap<(String, String), BTreeMap<String, Vec<Damage>>> = BTreeMap::new();
    for damage in all {
        let values = columns.entry((damage.table.clone(), damage.column.clone())).or_default();
        values.entry(format!("{:?}", damage.value)).or_default().push(damage);
    }
    let mut chosen = Vec::new();
    for (at, values) in columns.into_values().enumerate() {
        for (turn, mut states) in values.into_values().enumerate() {
            chosen.push(states.swap_remove((at + turn) % states.len()));
        }
    }
    chosen
}
