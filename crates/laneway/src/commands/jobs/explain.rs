//! `laneway jobs explain`: why a job is not running.

use laneway_wire::Explanation;

use crate::client::Client;
use crate::output::{Output, Paint, state_paint};
use crate::table::{Cell, Table};
use crate::time_args;

/// Explains a job.
pub async fn run(output: &Output, client: &Client, id: &str) -> anyhow::Result<()> {
    let explanation: Explanation = client.get(&["v1", "jobs", id, "explain"], &[]).await?;
    if output.json {
        return output.document(&explanation);
    }
    let state = output.paint(state_paint(&explanation.state), &explanation.state);
    output.line(format!("{}  {state}", explanation.id));
    output.line(&explanation.summary);
    if !explanation.blocked_by.is_empty() {
        output.line("");
        gates_table(&explanation).print(output);
    }
    Ok(())
}

fn gates_table(explanation: &Explanation) -> Table {
    // The message repeats the columns before it: they are left out first on a narrow terminal.
    let mut table =
        Table::new().left("BLOCKED BY").left("WHICH").spare(2).left("DETAIL").spare(1).left("MEANING");
    for blocker in &explanation.blocked_by {
        let which = match (&blocker.name, &blocker.value) {
            (Some(name), Some(value)) => Some(format!("{name}={value}")),
            (name, _) => name.clone(),
        };
        let detail = match (blocker.used, blocker.limit, blocker.ahead, blocker.remaining_ms) {
            (Some(used), Some(limit), _, _) => Some(format!("{used} of {limit}")),
            (_, _, Some(ahead), _) => Some(format!("{ahead} first")),
            (_, _, _, Some(millis)) => Some(format!("{} left", time_args::short(millis))),
            _ => blocker.at.as_deref().map(time_args::distance),
        };
        table.row(vec![
            Cell::painted(&blocker.code, Paint::Yellow),
            Cell::maybe(which),
            Cell::maybe(detail),
            Cell::plain(&blocker.message),
        ]);
    }
    table
}
