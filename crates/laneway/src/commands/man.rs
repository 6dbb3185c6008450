//! `laneway man`: manual pages of every command, for packages.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::Cli;
use crate::output::Output;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  laneway man ~/.local/share/man/man1
  laneway man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// The directory; it is created if it is missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes one page for the program and one for each command.
pub fn run(output: &Output, args: &ManArgs) -> anyhow::Result<()> {
    let ManArgs { dir } = args;
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    clap_mangen::generate_to(Cli::command(), dir)
        .with_context(|| format!("cannot write the pages to {}", dir.display()))?;
    if !output.json {
        output.line(format!("wrote the manual pages to {}", dir.display()));
    }
    Ok(())
}
