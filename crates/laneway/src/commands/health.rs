//! `laneway health`: whether the server is well, for people, scripts and container engines.

use laneway_wire::Health;

use crate::client::Client;
use crate::exit::{CliError, Exit};
use crate::output::{Output, Paint};

/// Shows the health of the server. A degraded server is an error, so that the exit code tells.
pub async fn run(output: &Output, client: &Client) -> anyhow::Result<()> {
    let health: Health = client.get(&["health"], &[]).await?;
    if output.json {
        output.document(&health)?;
    }
    match &health.reason {
        None if output.json => Ok(()),
        None => {
            let Health { version, uptime_seconds, .. } = &health;
            let ok = output.paint(Paint::Green, &health.status);
            output.line(format!("{ok}: laneway {version} at {}, up {uptime_seconds} s", client.base()));
            Ok(())
        }
        Some(reason) => {
            Err(CliError::new(Exit::Rejected, format!("the server is {}: {reason}", health.status)).into())
        }
    }
}
