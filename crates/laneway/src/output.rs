//! Output for people and programs: colours, tables, JSON.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// How output is written.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// True: JSON for programs instead of tables for people.
    pub json: bool,
    /// True: colours.
    pub color: bool,
    /// True: standard output is a terminal that can be drawn over.
    pub tty: bool,
    /// The width of the reader where output is not a terminal, from the environment (`COLUMNS`).
    pub columns: Option<usize>,
}

/// The smallest width.
const WIDTH_MIN: usize = 40;

/// When colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    // Plain comments: clap would print doc comments in every help.
    // On a terminal, unless `NO_COLOR` is set.
    Auto,
    Always,
    Never,
}

/// The colour of a text.
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

impl Output {
    /// Decides once for the whole process. `no_color` and `columns` come from the environment.
    pub fn new(json: bool, choice: ColorChoice, no_color: bool, columns: Option<usize>) -> Output {
        let tty = io::stdout().is_terminal();
        let color = match choice {
            ColorChoice::Auto => tty && !no_color,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        Output { json, color: color && !json, tty, columns }
    }

    /// `text` in a colour, if colours are on.
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

    /// Writes one line. A closed pipe (`laneway jobs list | head`) is not an error: the program ends quietly.
    pub fn line(&self, text: impl AsRef<str>) {
        self.write(&format!("{}\n", harmless(text.as_ref(), self.escapes())));
    }

    /// `text` in a colour for standard error, if that is a terminal and colours are on.
    pub fn paint_stderr(&self, paint: Paint, text: &str) -> String {
        let color = self.color && io::stderr().is_terminal();
        Output { color, ..*self }.paint(paint, text)
    }

    /// Writes one line to standard error, separate from the output. Errors are ignored.
    pub fn note(&self, text: impl AsRef<str>) {
        let _ = writeln!(io::stderr(), "{}", harmless(text.as_ref(), self.escapes()));
    }

    fn escapes(&self) -> Escapes {
        if self.json { Escapes::Json } else { Escapes::Text { colors: self.color } }
    }

    /// Writes text unchanged.
    pub fn write(&self, text: &str) {
        if self.try_write(text).is_err() {
            std::process::exit(0);
        }
    }

    /// The same, for commands that have to clean up when the output is closed.
    pub fn try_write(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    }

    /// One line, for such commands.
    pub fn try_line(&self, text: &str) -> io::Result<()> {
        self.try_write(&format!("{}\n", harmless(text, self.escapes())))
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

    /// How many characters fit on a line; unlimited where output is not a terminal and the environment sets
    /// no width.
    pub fn width(&self) -> usize {
        match (self.tty, terminal_size::terminal_size()) {
            (true, Some((width, _))) => usize::from(width.0).max(WIDTH_MIN),
            _ => self.columns.map_or(usize::MAX, |columns| columns.max(WIDTH_MIN)),
        }
    }
}

/// How characters that could deceive the reader are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escapes {
    /// As `\u202e`, which is equivalent in a JSON string.
    Json,
    /// As `\u{202e}`; colour codes of the program itself are kept if colours are on.
    Text {
        /// True: colour codes belong to the program.
        colors: bool,
    },
}

/// True for characters that are invisible but change the order of others: names and messages are untrusted and
/// must not look like something else.
pub fn is_deceptive(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// `text` with every character escaped that could hide or reorder others, or control the terminal.
pub fn harmless(text: &str, escapes: Escapes) -> Cow<'_, str> {
    let is_bad =
        |letter: char| (letter.is_control() && letter != '\n' && letter != '\t') || is_deceptive(letter);
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(is_bad) {
        clean.push_str(&rest[..at]);
        rest = &rest[at..];
        if escapes == (Escapes::Text { colors: true })
            && let Some(len) = color_len(rest)
        {
            clean.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        let Some(letter) = rest.chars().next() else { break };
        match escapes {
            Escapes::Json => {
                letter
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|unit| clean.push_str(&format!("\\u{unit:04x}")));
            }
            Escapes::Text { .. } => clean.extend(letter.escape_unicode()),
        }
        rest = &rest[letter.len_utf8()..];
    }
    clean.push_str(rest);
    Cow::Owned(clean)
}

/// `text` on one line of a terminal: control characters are spaces, others that could deceive are escaped.
pub fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    harmless(&line, Escapes::Text { colors: false }).into_owned()
}

/// The length of the colour code at the start of the text: `ESC [`, up to eight digits and semicolons, `m`.
fn color_len(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\x1b[")?;
    let end = codes.find(|letter: char| !letter.is_ascii_digit() && letter != ';')?;
    (end <= 8 && codes[end..].starts_with('m')).then_some(end + 3)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defect_13_characters_that_reorder_or_steer_are_escaped() {
        let text = Escapes::Text { colors: false };
        let name = "report-\u{202e}fdp.exe\x1b[2Jx";
        assert_eq!(harmless(name, text), "report-\\u{202e}fdp.exe\\u{1b}[2Jx");
        let json = serde_json::to_string(name).unwrap();
        let shown = harmless(&json, Escapes::Json);
        assert!(shown.is_ascii(), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), name, "it means the same");
        for plain in ["Grüße, 世界 🚀", "a\tb\nc"] {
            assert_eq!(harmless(plain, text), plain);
        }
        let colors = Escapes::Text { colors: true };
        assert_eq!(harmless("\x1b[32mok\x1b[0m\x1b[2J", colors), "\x1b[32mok\x1b[0m\\u{1b}[2J");
    }
}
