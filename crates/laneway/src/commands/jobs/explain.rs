//! `laneway jobs explain`: why a job is not running.

use laneway_wire::Explanation;

use crate::client::Client;
use crate::moment;
use crate::screen::{Paint, Screen, state_paint};
use crate::table::{Cell, Table};

/// Explains a job.
pub async fn run(screen: &Screen, client: &Client, id: &str) -> anyhow::Result<()> {
    let explanation: Explanation = client.get(&["v1", "jobs", id, "explain"], &[]).await?;
    if screen.json {
        return screen.document(&explanation);
    }
    let state = screen.paint(state_paint(&explanation.state), &explanation.state);
    screen.line(format!("{}  {state}", explanation.id));
    screen.line(&explanation.summary);
    if !explanation.holds.is_empty() {
        screen.line("");
        holds_table(&explanation).print(screen);
    }
    Ok(())
}

fn holds_table(explanation: &Explanation) -> Table {
    let mut table = Table::new().left("HELD BY").left("WHICH").left("FIGURES").flexible("MEANING");
    for hold in &explanation.holds {
        let which = match (&hold.name, &hold.value) {
            (Some(name), Some(value)) => Some(format!("{name}={value}")),
            (name, _) => name.clone(),
        };
        let figures = match (hold.used, hold.limit, hold.ahead, hold.remaining_ms) {
            (Some(used), Some(limit), _, _) => Some(format!("{used} of {limit}")),
            (_, _, Some(ahead), _) => Some(format!("{ahead} first")),
            (_, _, _, Some(millis)) => Some(format!("{} left", moment::short(millis))),
            _ => hold.at.as_deref().map(moment::distance),
        };
        table.row(vec![
            Cell::painted(&hold.code, Paint::Yellow),
            Cell::maybe(which),
            Cell::maybe(figures),
            Cell::plain(&hold.message),
        ]);
    }
    table
}
