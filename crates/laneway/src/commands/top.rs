//! `laneway top`: a live view of a server in the terminal.
//!
//! `state.rs` has what is shown and what keys do, `draw.rs` draws it; neither knows the terminal or the server. This file
//! brings them together: it reads keys and the server, and carries out actions.

mod data;
mod detail;
mod draw;
mod rows;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::{DefaultTerminal, Terminal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use unicode_width::UnicodeWidthStr;

use crate::client::Client;
use crate::exit::{CliError, Exit};
use crate::output::Output;
use data::{Detail, Snapshot};
use rows::Line;
use state::{Action, Mode, State, Tab};

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: 1 to 6 choose a list, Enter opens a job, / filters, s sorts, p pauses a lane, c cancels, r retries, ? shows \
all keys, q quits.

Examples:
  laneway top
  laneway top --tab waiting --filter render
  laneway top --once
  laneway --url http://jobs.example:7717 --token-file token top")]
pub struct TopArgs {
    /// Print one picture as text and exit
    #[arg(long)]
    once: bool,
    /// The list to begin with
    #[arg(long, value_enum, default_value = "lanes", value_name = "LIST")]
    tab: TabArg,
    /// Show only lines that contain this text
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    filter: String,
}

/// The lists by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TabArg {
    Lanes,
    Agents,
    Running,
    Waiting,
    Failures,
    Workers,
}

/// How often the server is read.
const RELOAD: Duration = Duration::from_secs(1);
/// How often the reader of keys looks whether the view is gone.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Most keys that wait.
const KEYS_MAX: usize = 64;
/// The size of a picture without a terminal.
const ONCE_SIZE: (u16, u16) = (80, 24);

/// Shows the view until the user quits, or one picture of it.
pub async fn run(output: &Output, client: &Client, args: &TopArgs) -> anyhow::Result<()> {
    let TopArgs { once, tab, filter } = args;
    let mut state = State::new("laneway top", client.base());
    (state.tab, state.filter) = (Tab::ALL[*tab as usize], filter.clone());
    if *once || output.json {
        return print_once(output, client, state).await;
    }
    if !output.tty {
        let message = "standard output is not a terminal; use --once for one picture as text";
        return Err(CliError::new(Exit::Usage, message).into());
    }
    watch(output, client, state).await
}

/// Shows the view of the demo until the user quits.
pub async fn show(output: &Output, client: &Client, title: &str) -> anyhow::Result<()> {
    watch(output, client, State::new(title, client.base())).await
}

/// Prints one picture: as high as the list is long.
async fn print_once(output: &Output, client: &Client, mut state: State) -> anyhow::Result<()> {
    let tab = state.tab;
    state.loaded(tab, Ok(data::read(client, &[tab]).await?));
    if output.json {
        let sheet = state.sheet();
        let titles = || sheet.columns.iter().map(|column| column.title.to_lowercase());
        let line = |line: &Line| -> BTreeMap<String, String> {
            titles().zip(line.cells.iter().map(|cell| cell.text.clone())).collect()
        };
        return output.document(&sheet.lines.iter().map(line).collect::<Vec<_>>());
    }
    let width = match output.width() {
        usize::MAX => ONCE_SIZE.0,
        width => u16::try_from(width).unwrap_or(u16::MAX),
    };
    let rows = u16::try_from(state.sheet().lines.len()).unwrap_or(u16::MAX).saturating_add(5);
    let mut terminal = Terminal::new(TestBackend::new(width, rows.clamp(ONCE_SIZE.1, 400)))?;
    let drawn = terminal.draw(|frame| draw::draw(&state, false, frame))?;
    for line in text_of(drawn.buffer) {
        output.line(line);
    }
    Ok(())
}

/// The text of a picture, without the last line, which has the keys, and without empty lines before it.
fn text_of(buffer: &ratatui::buffer::Buffer) -> Vec<String> {
    let area = buffer.area;
    let line = |y: u16| {
        let (mut line, mut x) = (String::new(), 0);
        while x < area.width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character takes the next cell as well.
            x += u16::try_from(symbol.width()).unwrap_or(1).max(1);
        }
        line.trim_end().to_owned()
    };
    let mut lines: Vec<String> = (0..area.height.saturating_sub(1)).map(line).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// What a task has read or changed.
enum Update {
    Read(Tab, Box<anyhow::Result<Snapshot>>),
    Opened(Box<anyhow::Result<Detail>>),
    Changed(anyhow::Result<String>),
}

/// The terminal in its alternate screen; restored on drop. A panic restores it as well.
struct Screen(DefaultTerminal);

impl Screen {
    fn begin() -> std::io::Result<Screen> {
        ratatui::try_init().map(Screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = ratatui::try_restore();
    }
}

async fn watch(output: &Output, client: &Client, mut state: State) -> anyhow::Result<()> {
    let (mut terminate, mut hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut screen = Screen::begin()?;
    let mut keys = read_keys()?;
    let mut tasks = JoinSet::new();
    let mut ticks = tokio::time::interval(RELOAD);
    let mut is_reading = false;
    loop {
        screen.0.draw(|frame| draw::draw(&state, output.color, frame))?;
        tokio::select! {
            key = keys.recv() => match key {
                // The terminal is gone.
                None => return Ok(()),
                Some(Input::Resized) => {}
                Some(Input::Key(key)) => match state.on_key(key) {
                    Some(Action::Quit) => return Ok(()),
                    Some(Action::Reload) => ticks.reset_immediately(),
                    Some(action) => start(&mut tasks, client, action),
                    None => {}
                },
            },
            _ = ticks.tick() => {
                if !is_reading {
                    is_reading = true;
                    reopen(&mut tasks, client, &state);
                    let (client, tab) = (client.clone(), state.tab);
                    tasks.spawn(async move { Update::Read(tab, Box::new(data::read(&client, &[tab]).await)) });
                }
            }
            Some(Ok(update)) = tasks.join_next() => match update {
                Update::Read(tab, read) => {
                    is_reading = false;
                    state.loaded(tab, (*read).map_err(|error| format!("{error:#}")));
                    // The tab changed meanwhile: its list was not read.
                    if state.tab != tab {
                        ticks.reset_immediately();
                    }
                }
                Update::Opened(read) => state.opened((*read).map_err(|error| format!("{error:#}"))),
                Update::Changed(done) => {
                    state.message = Some(done.map_err(|error| format!("{error:#}")));
                    ticks.reset_immediately();
                }
            },
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        }
    }
}

/// Reads the open job again, so that it stays live.
fn reopen(tasks: &mut JoinSet<Update>, client: &Client, state: &State) {
    if let (Mode::Detail(_), Some(detail)) = (&state.mode, &state.detail) {
        start(tasks, client, Action::Open(detail.job.id.to_string()));
    }
}

fn start(tasks: &mut JoinSet<Update>, client: &Client, action: Action) {
    let client = client.clone();
    tasks.spawn(async move {
        match action {
            Action::Open(id) => Update::Opened(Box::new(data::open(&client, &id).await)),
            action => Update::Changed(data::change(&client, &action).await),
        }
    });
}

/// What the terminal sends.
enum Input {
    Key(KeyEvent),
    Resized,
}

/// Reads keys on a thread of its own, because reading blocks. The thread ends with the receiver.
fn read_keys() -> std::io::Result<mpsc::Receiver<Input>> {
    let (sender, keys) = mpsc::channel(KEYS_MAX);
    std::thread::Builder::new().name("laneway-keys".into()).spawn(move || {
        while !sender.is_closed() {
            match event::poll(KEY_WAIT) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => return,
            }
            let input = match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Input::Key(key),
                Ok(Event::Resize(..)) => Input::Resized,
                Ok(_) => continue,
                Err(_) => return,
            };
            if sender.blocking_send(input).is_err() {
                return;
            }
        }
    })?;
    Ok(keys)
}
