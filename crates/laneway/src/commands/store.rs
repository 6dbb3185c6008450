//! `laneway store`: checks for damage, makes the tables anew, and accepts lost commits.

use std::path::PathBuf;

use laneway_store::check::{CheckBounds, CheckReport, check_dir};
use laneway_store::copy::{self, History};
use serde_json::json;

use crate::commands::backup::{bar, print_restored, show, show_check};
use crate::exit::{CliError, Exit};
use crate::output::Output;
use crate::server::store_error;
use crate::settings::{ConfigFlags, Environment};

/// Commands for the store.
#[derive(Debug, clap::Args)]
pub struct StoreArgs {
    #[command(flatten)]
    flags: ConfigFlags,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Check for damage: pages, event hashes, every row, links between tables
    #[command(after_help = "\
Reads only, and may run beside a server. Exit code 0: no damage was found. Exit code 74: the store is damaged; every finding \
names its table and row. What a check can and cannot find: docs/guides/backup.md.")]
    Check {
        /// Stop after this many seconds; the rest is not checked
        #[arg(long, value_name = "SECONDS")]
        limit: Option<u64>,
    },
    /// Make the tables anew, from a backup and the commit log
    #[command(after_help = "\
For a store with damaged tables whose commit log was kept since the backup (setting log.keep). The damaged store is moved into a folder \
`replaced-…` in the directory. No server may use the directory. See docs/guides/backup.md.

Examples:
  laneway store rebuild --backup /backups/laneway-monday.db --data-dir /var/lib/laneway")]
    Rebuild {
        /// A backup file of this store
        #[arg(long, value_name = "FILE")]
        backup: PathBuf,
    },
    /// Open a data directory whose files do not belong together, and lose the missing commits
    #[command(after_help = "\
For a directory that a start rejects because commits are missing, when there is no backup. Existing data is kept; the \
missing commits are lost. Copy the directory first.")]
    Accept {
        /// Confirm the loss
        #[arg(long, required = true)]
        yes: bool,
    },
}

/// Runs the command.
pub async fn run(output: &Output, environment: &Environment, args: StoreArgs) -> anyhow::Result<()> {
    let dir = args.flags.resolve(environment)?.server.data_dir;
    match args.verb {
        Verb::Check { limit } => {
            let bar = bar(output);
            let shown = bar.clone();
            let bounds = CheckBounds { rows_max: None, time_max: limit.map(std::time::Duration::from_secs) };
            let at = dir.clone();
            let report =
                tokio::task::spawn_blocking(move || check_dir(&at, bounds, &mut |at| show_check(&shown, at)));
            let report = report.await?;
            bar.finish_and_clear();
            print_report(output, &report.map_err(|error| store_error(&error))?)
        }
        Verb::Rebuild { backup } => {
            let bar = bar(output);
            let (shown, at) = (bar.clone(), dir.clone());
            let rebuilt = tokio::task::spawn_blocking(move || {
                let history = History { from: at.clone(), until: None };
                copy::restore(&backup, &at, true, Some(&history), &mut |at| show(&shown, at))
            });
            let rebuilt = rebuilt.await?;
            bar.finish_and_clear();
            print_restored(output, &dir, rebuilt.map_err(|error| store_error(&error))?)
        }
        Verb::Accept { yes: _ } => {
            let at = dir.clone();
            let accepted = tokio::task::spawn_blocking(move || copy::accept(&at)).await?;
            match accepted.map_err(|error| store_error(&error))? {
                None => output.line(format!("{}: no commits are missing", dir.display())),
                Some(why) => output.line(format!("accepted: {why}")),
            }
            Ok(())
        }
    }
}

fn print_report(output: &Output, report: &CheckReport) -> anyhow::Result<()> {
    let CheckReport { damage, rows, events, complete } = report;
    if output.json {
        let damage: Vec<_> = damage
            .iter()
            .map(|found| json!({"table": found.table, "key": found.key, "what": found.what}))
            .collect();
        output.json_line(&json!({"damage": damage, "rows": rows, "events": events, "complete": complete}))?;
    } else {
        for found in damage {
            let key = if found.key.is_empty() { String::new() } else { format!(" {}", found.key) };
            output.line(format!("{}{key}: {}", found.table, found.what));
        }
        let cut = if *complete { "" } else { " (stopped before the end)" };
        output.line(format!("{rows} rows and {events} events checked{cut}, {} damaged", damage.len()));
    }
    if damage.is_empty() {
        return Ok(());
    }
    Err(CliError::new(Exit::Store, "the store is damaged; restore a backup with `laneway restore`").into())
}
