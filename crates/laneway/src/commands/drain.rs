//! `laneway drain`: rejects new jobs while waiting and running jobs go on, or admits new jobs again.

use laneway_wire::Drain;

use crate::client::Client;
use crate::output::{Output, Paint};

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A drained server rejects new jobs (503, draining) and is not ready in /readyz; waiting and running jobs go on. \
A restart ends the drain. To stop the process, send it SIGTERM.

Examples:
  laneway drain
  laneway drain --show
  laneway drain --end")]
pub struct DrainArgs {
    /// Admit new jobs again
    #[arg(long)]
    end: bool,
    /// Change nothing, and show the remaining work
    #[arg(long, conflicts_with = "end")]
    show: bool,
}

/// Starts, ends or shows the drain of a server.
pub async fn run(output: &Output, client: &Client, args: &DrainArgs) -> anyhow::Result<()> {
    let path = ["v1", "drain"];
    let drain: Drain = match (args.show, args.end) {
        (true, _) => client.get(&path, &[]).await?,
        (_, true) => {
            client.delete(&path).await?;
            client.get(&path, &[]).await?
        }
        _ => client.post(&path).await?,
    };
    if output.json {
        return output.document(&drain);
    }
    let Drain { draining, waiting, running } = drain;
    let (paint, name) =
        if draining { (Paint::Yellow, "new jobs are rejected") } else { (Paint::Green, "jobs are admitted") };
    output.line(format!("{}; {waiting} wait, {running} run", output.paint(paint, name)));
    Ok(())
}
