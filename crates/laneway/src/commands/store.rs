//! `laneway store`: checks for damage, copies into another store, makes the tables anew, and accepts lost commits.

use std::path::PathBuf;

use laneway_store::StoreAddress;
use laneway_store::check::{CheckBounds, CheckReport, check_dir};
use laneway_store::copy::{self, History};
use laneway_store::transfer::{TransferProgress, transfer};
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
    /// Copy everything from a data directory to PostgreSQL, or back
    #[command(after_help = "\
No server may use either store, and TO must be empty. The copy appears as a whole or not at all, and the rows of every table are counted on both sides. FROM stays as \
it is. Files of the data directory (artifacts, browser profiles, secret.key) are not copied: keep the data directory beside a \
database. See docs/guides/postgresql.md.

Examples:
  laneway store copy --from sqlite:/var/lib/laneway --to postgres://laneway@db.example/laneway
  laneway store copy --from postgres://laneway@db.example/laneway --to sqlite:restored")]
    Copy {
        /// The store to copy: sqlite:DIR or postgres://user@host/database
        #[arg(long, value_name = "ADDRESS")]
        from: String,
        /// The empty store to copy into
        #[arg(long, value_name = "ADDRESS")]
        to: String,
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

/// Reads the address of a store. Problems do not show it: it may have a password.
fn parse_address(flag: &str, text: &str) -> Result<StoreAddress, CliError> {
    StoreAddress::parse(text).map_err(|problem| CliError::new(Exit::Rejected, format!("{flag} {problem}")))
}

/// Runs the command.
pub async fn run(output: &Output, environment: &Environment, args: StoreArgs) -> anyhow::Result<()> {
    if let Verb::Copy { from, to } = args.verb {
        return copy_store(output, parse_address("--from", &from)?, parse_address("--to", &to)?).await;
    }
    let dir = args.flags.directory(environment, "name a data directory with --store sqlite:DIR")?;
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
        Verb::Copy { .. } => Ok(()),
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

/// Copies a store into an empty one.
async fn copy_store(output: &Output, from: StoreAddress, to: StoreAddress) -> anyhow::Result<()> {
    let bar = bar(output);
    let shown = bar.clone();
    let (source, target) = (from.clone(), to.clone());
    let copied = tokio::task::spawn_blocking(move || {
        transfer(&source, &target, &mut |at: TransferProgress| {
            shown.set_length(at.total.max(1));
            shown.set_position(at.done);
            shown.set_message(at.stage);
        })
    });
    let copied = copied.await?;
    bar.finish_and_clear();
    let copied = copied.map_err(|error| store_error(&error))?;
    let rows: u64 = copied.iter().map(|table| table.rows).sum();
    if output.json {
        let tables: serde_json::Map<_, _> =
            copied.iter().map(|table| (table.table.to_owned(), json!(table.rows))).collect();
        return output.json_line(
            &json!({"from": from.to_string(), "to": to.to_string(), "rows": rows, "tables": tables}),
        );
    }
    for table in copied.iter().filter(|table| table.rows > 0) {
        output.line(format!("{:>12}  {}", table.rows, table.table));
    }
    output.line(format!("{rows} rows copied from {from} to {to}, counted on both sides"));
    Ok(())
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
