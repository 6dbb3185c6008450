//! `laneway completions`: shell completions.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output::Output;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  laneway completions bash > ~/.local/share/bash-completion/completions/laneway
  laneway completions zsh > ~/.zfunc/_laneway
  laneway completions fish > ~/.config/fish/completions/laneway.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Writes the completions for a shell.
pub fn run(output: &Output, args: &CompletionsArgs) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "laneway", &mut script);
    output.write(&String::from_utf8_lossy(&script));
}
