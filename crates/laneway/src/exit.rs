//! The exit codes of the program, and the error that carries one.

use std::fmt;
use std::process::ExitCode;

use laneway_runtime::config::ConfigErrors;
use laneway_wire::Problem;
use serde_json::{Value, json};

/// The exit codes. They are documented in `docs/cli.md` and in `laneway --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The request was rejected or failed; also for an awaited job that did not succeed.
    Rejected = 1,
    /// The command line is invalid. Errors that clap finds have the same code.
    Usage = 2,
    /// There is no such job, lane, session, schedule or token.
    NotFound = 3,
    /// The server does not answer.
    Unreachable = 4,
    /// The token is missing, invalid, or lacks permission.
    NotAllowed = 5,
    /// The awaited event did not happen in time.
    TimedOut = 124,
    /// Ctrl-C ended a wait; the job goes on.
    Interrupted = 130,
    /// The store failed: a disk error, a damaged or unusable data directory.
    Store = 74,
    /// Another server has the data directory.
    Taken = 75,
    /// The configuration is invalid.
    Config = 78,
}

/// The end of `laneway --help`.
pub const EXIT_CODES_HELP: &str = "\
Exit codes:
  0   done
  1   rejected or failed; also an awaited job that did not succeed
  2   the command line is wrong
  3   no such job, lane, session, schedule or token
  4   the server does not answer
  5   denied: the token is missing, invalid, or lacks permission
  74  the store failed: a disk error, damage, or a data directory that cannot be used
  75  another server has the data directory
  78  the configuration is wrong
  124 `jobs wait --timeout`: the job has not ended in time; it goes on
  130 Ctrl-C ended a wait; the job goes on";

/// An error with its exit code.
#[derive(Debug)]
pub struct CliError {
    /// The exit code.
    pub exit: Exit,
    /// The message, one or more lines.
    pub message: String,
    /// The problem document of the server, if it sent one.
    pub problem: Option<Box<Problem>>,
    /// The problems of the configuration, if there are any.
    pub config: Option<Box<ConfigErrors>>,
}

impl CliError {
    /// An error with a message.
    pub fn new(exit: Exit, message: impl Into<String>) -> CliError {
        CliError { exit, message: message.into(), problem: None, config: None }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// The exit code for any error.
pub fn code_of(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<CliError>().map_or(Exit::Rejected, |cli_error| cli_error.exit)
}

/// An error as JSON: its message, its code, and the problems of the server or of the configuration.
pub fn document(error: &anyhow::Error) -> Value {
    let mut document = json!({"error": format!("{error:#}"), "exit": code_of(error) as u8});
    let Some(cli_error) = error.downcast_ref::<CliError>() else { return document };
    if let Some(problem) = &cli_error.problem {
        document["problem"] = json!(problem);
    }
    if let Some(errors) = &cli_error.config {
        let problems = errors.list().iter().map(|problem| {
            json!({
                "code": problem.kind.as_str(),
                "key": problem.key,
                "place": problem.place,
                "message": problem.message,
            })
        });
        document["problems"] = problems.collect();
    }
    document
}
