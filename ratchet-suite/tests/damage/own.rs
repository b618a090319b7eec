//! A node whose own row is damaged while it works goes on, with its next beat or as a new owner.

use std::sync::Arc;
use std::time::Duration;

use crate::damages::Damage;
use crate::innocent::Innocents;
use crate::tables::{Hit, Row, Tables};
use crate::world::{node, stage};

/// The longest wait for a node to go on: many leases, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Where values are too many, one of so many is tried in each column, in turn.
const SOME: usize = 6;

/// Tries every wrong value in every column of the row, one after the other; returns how many were applied.
pub(crate) async fn run(tables: Arc<dyn Tables>) -> usize {
    let stage = stage(&tables).await;
    let node = node(tables.connect().await).await;
    let own = async || {
        let name = tables.text(node.owner().as_str());
        let is_own = |row: &Row| {
            row.table == "scheduler_node" && row.cells.iter().any(|cell| cell.in_key && cell.content == name)
        };
        tables.rows().await.into_iter().find(is_own)
    };
    let mut applied = 0;
    let first = own().await.expect("the node has a row");
    let step = if tables.in_every_state() { 1 } else { SOME };
    for (at, cell) in first.cells.iter().enumerate() {
        for value in cell.wrong.iter().skip(at % step).step_by(step) {
            let damage = Damage {
                scene: 0,
                table: first.table.clone(),
                role: 0,
                column: cell.column.clone(),
                value: value.clone(),
            };
            let mut innocents = Innocents::default();
            let work = async {
                // Between two lives the node has no row for a moment.
                let row = loop {
                    if let Some(row) = own().await {
                        break row;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                };
                let taken = tables.damage(&[Hit { row: &row, column: &cell.column, value }]).await;
                applied += usize::from(taken[0]);
                innocents.submit(&stage).await;
                while !innocents.left(&*stage.store).await.is_empty() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let done = tokio::time::timeout(PATIENCE, work).await;
            assert!(done.is_ok(), "{}: the node does not go on after {damage}", tables.name());
        }
    }
    node.stop().await;
    tables.remove().await;
    applied
}
