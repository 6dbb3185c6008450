//! What people see: colours where they help, JSON where it was asked for, and nothing when the reader is gone.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// How output is written.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// True: JSON for programs instead of tables for people.
    pub json: bool,
    /// True: colours.
    pub color: bool,
    /// True: standard output is a terminal that can be drawn over.
    pub tty: bool,
}

/// When colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    // Plain comments: clap would print doc comments in every help.
    // On a terminal, unless `NO_COLOR` is set.
    Auto,
    Always,
    Never,
}

/// A look of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Blue,
    Cyan,
}

impl Screen {
    /// Decides once for the whole run. `no_color` is whether the environment asks for none.
    pub fn new(json: bool, choice: ColorChoice, no_color: bool) -> Screen {
        let tty = io::stdout().is_terminal();
        let color = match choice {
            ColorChoice::Auto => tty && !no_color,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        Screen { json, color: color && !json, tty }
    }

    /// `text` in a colour, where there are colours.
    pub fn paint(&self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Plain => return text.to_owned(),
            Paint::Bold => "1",
            Paint::Dim => "2",
            Paint::Red => "31",
            Paint::Green => "32",
            Paint::Yellow => "33",
            Paint::Blue => "34",
            Paint::Cyan => "36",
        };
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// One line. A reader that went away (`laneway jobs list | head`) is no error: the program ends quietly.
    pub fn line(&self, text: impl AsRef<str>) {
        self.write(&format!("{}\n", text.as_ref()));
    }

    /// One line beside the output: on standard error, where it is in nobody's way. Nobody has to read it.
    pub fn aside(&self, text: impl AsRef<str>) {
        let _ = writeln!(io::stderr(), "{}", text.as_ref());
    }

    /// Text as it is.
    pub fn write(&self, text: &str) {
        let mut out = io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }

    /// One JSON document, indented.
    pub fn document(&self, value: &impl Serialize) -> anyhow::Result<()> {
        self.line(serde_json::to_string_pretty(value)?);
        Ok(())
    }

    /// One JSON document on one line, for streams.
    pub fn json_line(&self, value: &impl Serialize) -> anyhow::Result<()> {
        self.line(serde_json::to_string(value)?);
        Ok(())
    }

    /// How many characters fit a line; unlimited where output is no terminal.
    pub fn width(&self) -> usize {
        match (self.tty, terminal_size::terminal_size()) {
            (true, Some((width, _))) => usize::from(width.0).max(40),
            _ => usize::MAX,
        }
    }

    /// How many lines fit the terminal.
    pub fn height(&self) -> usize {
        match (self.tty, terminal_size::terminal_size()) {
            (true, Some((_, height))) => usize::from(height.0).max(10),
            _ => usize::MAX,
        }
    }
}

/// The colour of a job's or an attempt's state.
pub fn state_paint(state: &str) -> Paint {
    match state {
        "succeeded" | "active" | "ready" | "ok" => Paint::Green,
        "running" | "assigned" => Paint::Cyan,
        "queued" => Paint::Blue,
        "scheduled" | "skipped" | "retrying" | "paused" | "handed_back" => Paint::Yellow,
        "failed" | "error" | "timeout" | "interrupted" | "timed_out" | "expired" | "lost" | "rejected"
        | "revoked" => Paint::Red,
        "canceled" => Paint::Dim,
        _ => Paint::Plain,
    }
}
