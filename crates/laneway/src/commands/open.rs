//! `laneway open`: opens the dashboard of the server in a browser.

use std::process::{Command, Stdio};

use laneway_wire::Index;

use crate::client::Client;
use crate::exit::{CliError, Exit};
use crate::output::Output;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The address is printed in any case. On a machine without a browser, print it and open it on another one.

Examples:
  laneway open
  laneway open --print
  laneway --url http://jobs.example:7717 open")]
pub struct OpenArgs {
    /// Print the address and open nothing
    #[arg(long)]
    print: bool,
}

/// Programs that open an address in the browser of the user.
const OPENERS: [&str; 2] =
    if cfg!(target_os = "macos") { ["open", "xdg-open"] } else { ["xdg-open", "open"] };

/// Prints the address of the dashboard, and opens it.
pub async fn run(output: &Output, client: &Client, args: &OpenArgs) -> anyhow::Result<()> {
    let index: Index = client.get(&[], &[]).await?;
    let Some(path) = index.links.get("dashboard") else {
        let message = format!(
            "the server at {} has no dashboard; set dashboard.enabled to true in its configuration",
            client.base()
        );
        return Err(CliError::new(Exit::Rejected, message).into());
    };
    let address = format!("{}{path}", client.base());
    if output.json {
        output.document(&serde_json::json!({"url": address}))?;
    } else {
        output.line(&address);
    }
    if args.print {
        return Ok(());
    }
    if OPENERS.into_iter().any(|program| starts(program, &address)) {
        return Ok(());
    }
    let message = format!("found neither {} nor {}; open the address in a browser", OPENERS[0], OPENERS[1]);
    Err(CliError::new(Exit::Rejected, message).into())
}

/// True when the program could be started. It goes on by itself.
fn starts(program: &str, address: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}
