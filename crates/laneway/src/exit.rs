//! How the program ends: the exit codes, and the error that carries one.

use std::fmt;
use std::process::ExitCode;

use laneway_runtime::config::ConfigErrors;
use laneway_wire::Problem;
use serde_json::{Value, json};

/// How the program ends. The codes are documented in `docs/cli.md` and in `laneway --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It was refused, or it failed; also a job that ended badly under `--wait`.
    Refused = 1,
    /// The command line is wrong. What clap finds by itself ends with the same code.
    Usage = 2,
    /// There is no such job, lane, session, schedule or token.
    NotFound = 3,
    /// The server does not answer.
    Unreachable = 4,
    /// The token is missing, wrong, or not enough.
    NotAllowed = 5,
    /// The store failed: a disk error, a damaged or unusable data directory.
    Store = 74,
    /// Another server has the data directory.
    Taken = 75,
    /// The configuration is wrong.
    Config = 78,
}

/// What stands at the end of `laneway --help`.
pub const EXIT_CODES_HELP: &str = "\
Exit codes:
  0   done
  1   refused or failed; also a job that ended badly under --wait
  2   the command line is wrong
  3   no such job, lane, session, schedule or token
  4   the server does not answer
  5   not allowed: the token is missing, wrong, or not enough
  74  the store failed: a disk error, or a data directory that cannot be used
  75  another server has the data directory
  78  the configuration is wrong";

/// An error with the code that the program ends with.
#[derive(Debug)]
pub struct Trouble {
    /// What the program ends with.
    pub exit: Exit,
    /// One or more lines for people.
    pub message: String,
    /// What the server said, where it was the server.
    pub problem: Option<Box<Problem>>,
    /// Every problem of the configuration, where it was the configuration.
    pub config: Option<Box<ConfigErrors>>,
}

impl Trouble {
    /// Trouble with a message.
    pub fn new(exit: Exit, message: impl Into<String>) -> Trouble {
        Trouble { exit, message: message.into(), problem: None, config: None }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Trouble {}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// The code for any error: its own where it carries one.
pub fn code_of(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<Trouble>().map_or(Exit::Refused, |trouble| trouble.exit)
}

/// An error for programs: what it says, the code, and the server's or the configuration's own words where there are
/// some.
pub fn document(error: &anyhow::Error) -> Value {
    let mut document = json!({"error": format!("{error:#}"), "exit": code_of(error) as u8});
    let Some(trouble) = error.downcast_ref::<Trouble>() else { return document };
    if let Some(problem) = &trouble.problem {
        document["problem"] = json!(problem);
    }
    if let Some(errors) = &trouble.config {
        let problems = errors.list().iter().map(|problem| {
            json!({
                "code": problem.kind.word(),
                "key": problem.key,
                "place": problem.place,
                "message": problem.message,
            })
        });
        document["problems"] = problems.collect();
    }
    document
}
