//! `laneway completions`: what a shell needs to complete our command lines.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::screen::Screen;

/// Which shell.
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

/// Writes the completions of a shell.
pub fn run(screen: &Screen, args: &CompletionsArgs) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "laneway", &mut script);
    screen.write(&String::from_utf8_lossy(&script));
}
