//! The state of the view, and what each key does to it. No terminal and no server: a key gives an action.

use std::cmp::Ordering;

use jiff::Timestamp;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::data::{Detail, Snapshot};
use super::detail;
use super::rows::{self, Key, Line, Sheet};

/// The lines of an open job that the smallest usual terminal shows.
const SCREEN: usize = 20;

/// A list of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    Lanes,
    Agents,
    Running,
    Waiting,
    Failures,
    Workers,
}

impl Tab {
    pub const ALL: [Tab; 6] =
        [Tab::Lanes, Tab::Agents, Tab::Running, Tab::Waiting, Tab::Failures, Tab::Workers];

    pub fn title(self) -> &'static str {
        match self {
            Tab::Lanes => "Lanes",
            Tab::Agents => "Agents",
            Tab::Running => "Running",
            Tab::Waiting => "Waiting",
            Tab::Failures => "Failures",
            Tab::Workers => "Workers",
        }
    }

    fn moved(self, by: usize) -> Tab {
        Tab::ALL[(self as usize + by) % Tab::ALL.len()]
    }
}

/// What a key asks of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Quit,
    /// Read the server again now.
    Reload,
    Pause(String),
    Resume(String),
    Cancel(String),
    Retry(String),
    Open(String),
}

/// What the keys go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    List,
    /// The filter is written.
    Filter,
    /// A question waits for y or n.
    Confirm(Action),
    Help,
    /// A job is open; the first line shown.
    Detail(usize),
}

/// Whether the server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// No answer yet.
    Connecting,
    Live,
    /// Why not.
    Away(String),
}

/// The state of the view.
pub struct State {
    pub title: String,
    pub server: String,
    pub tab: Tab,
    pub mode: Mode,
    pub link: Link,
    pub snapshot: Snapshot,
    pub detail: Option<Detail>,
    pub filter: String,
    /// A sentence about the last change.
    pub message: Option<Result<String, String>>,
    /// The job that is open or about to be.
    opening: Option<String>,
    /// Whether the list of each tab was read.
    pub has_read: [bool; 6],
    /// The selected line of each tab: its id, so that the selection follows its line, and its place.
    selected: [(String, usize); 6],
    /// The column that each tab is sorted by, and whether it descends.
    sorted: [Option<(usize, bool)>; 6],
}

impl State {
    pub fn new(title: &str, server: &str) -> State {
        State {
            title: title.to_owned(),
            server: server.to_owned(),
            tab: Tab::Lanes,
            mode: Mode::List,
            link: Link::Connecting,
            snapshot: Snapshot { now: Timestamp::UNIX_EPOCH, ..Snapshot::default() },
            detail: None,
            filter: String::new(),
            message: None,
            opening: None,
            has_read: [false; 6],
            selected: Default::default(),
            sorted: [None; 6],
        }
    }

    /// The server was read for this tab, or did not answer. Lists of other tabs stay as they are.
    pub fn loaded(&mut self, tab: Tab, read: Result<Snapshot, String>) {
        match read {
            Ok(snapshot) => {
                let before = std::mem::replace(&mut self.snapshot, snapshot);
                let now = &mut self.snapshot;
                let lists = [
                    (Tab::Running, &mut now.running, before.running),
                    (Tab::Waiting, &mut now.waiting, before.waiting),
                    (Tab::Failures, &mut now.failed, before.failed),
                ];
                for (of, list, before) in lists {
                    if of != tab {
                        *list = before;
                    }
                }
                if tab != Tab::Workers {
                    now.workers = before.workers;
                }
                self.has_read[tab as usize] = true;
                self.link = Link::Live;
            }
            Err(why) => self.link = Link::Away(why),
        }
    }

    /// A job was read.
    pub fn opened(&mut self, read: Result<Detail, String>) {
        match read {
            // The user has closed it meanwhile.
            Ok(detail) if self.opening.as_deref() != Some(&*detail.job.id) => {}
            Ok(detail) => {
                let first = if let Mode::Detail(first) = self.mode { first } else { 0 };
                (self.detail, self.mode) = (Some(detail), Mode::Detail(first));
            }
            Err(why) => self.message = Some(Err(why)),
        }
    }

    /// The lines of the tab: filtered and sorted.
    pub fn sheet(&self) -> Sheet {
        let mut sheet = rows::sheet(self.tab, &self.snapshot);
        let filter = self.filter.to_lowercase();
        sheet.lines.retain(|line| filter.is_empty() || line.matches(&filter));
        if let Some((column, descends)) = self.sort() {
            let key =
                |line: &Line| line.cells.get(column).map(|cell| cell.key.clone()).unwrap_or(Key::Number(0));
            sheet.lines.sort_by(|a, b| {
                let order = key(a).cmp(&key(b));
                if descends { order.reverse() } else { order }
            });
        }
        sheet
    }

    /// The column that the tab is sorted by, and whether it descends.
    pub fn sort(&self) -> Option<(usize, bool)> {
        self.sorted[self.tab as usize]
    }

    /// The place of the selected line.
    pub fn selected_in(&self, sheet: &Sheet) -> Option<usize> {
        let (id, at) = &self.selected[self.tab as usize];
        let found = sheet.lines.iter().position(|line| line.id == *id);
        found.or_else(|| sheet.lines.len().checked_sub(1).map(|last| (*at).min(last)))
    }

    /// What a key does.
    pub fn on_key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(Action::Quit);
        }
        match &mut self.mode {
            Mode::Filter => {
                self.on_filter_key(key.code);
                None
            }
            Mode::Confirm(action) => {
                let action = action.clone();
                self.mode = if self.detail.is_some() { Mode::Detail(0) } else { Mode::List };
                matches!(key.code, KeyCode::Char('y' | 'Y')).then_some(action)
            }
            Mode::Help => {
                self.mode = if self.detail.is_some() { Mode::Detail(0) } else { Mode::List };
                None
            }
            Mode::Detail(first) => {
                let mut first = *first;
                self.on_detail_key(key.code, &mut first)
            }
            Mode::List => self.on_list_key(key.code),
        }
    }

    fn on_filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::List;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            // A filter longer than a name finds nothing.
            KeyCode::Char(letter) if self.filter.len() < 128 && !letter.is_control() => {
                self.filter.push(letter)
            }
            _ => {}
        }
    }

    fn on_detail_key(&mut self, code: KeyCode, first: &mut usize) -> Option<Action> {
        let id = self.detail.as_ref().map(|detail| detail.job.id.to_string());
        match code {
            KeyCode::Esc | KeyCode::Char('q') | KeyCode::Backspace | KeyCode::Left => {
                (self.detail, self.mode, self.opening) = (None, Mode::List, None);
                return None;
            }
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Char('c') => return self.confirm(id.map(Action::Cancel)),
            KeyCode::Char('r') => return self.confirm(id.map(Action::Retry)),
            code => {
                // The last lines stay on the screen.
                let last =
                    self.detail.as_ref().map_or(0, |detail| detail::height(detail).saturating_sub(SCREEN));
                *first = scrolled(code, *first, last);
                self.mode = Mode::Detail(*first);
            }
        }
        None
    }

    fn on_list_key(&mut self, code: KeyCode) -> Option<Action> {
        let tab = self.tab;
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc => {
                self.filter.clear();
                self.message = None;
            }
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('s') => self.sort_next(),
            KeyCode::Char('S') => {
                if let Some((_, descends)) = &mut self.sorted[tab as usize] {
                    *descends = !*descends;
                }
            }
            KeyCode::Char(digit @ '1'..='6') => self.tab = Tab::ALL[digit as usize - '1' as usize],
            KeyCode::Tab | KeyCode::Right => self.tab = tab.moved(1),
            KeyCode::BackTab | KeyCode::Left => self.tab = tab.moved(Tab::ALL.len() - 1),
            KeyCode::Char('p') => return self.toggle_lane(),
            KeyCode::Char('c') => return self.on_job(Action::Cancel),
            KeyCode::Char('r') => return self.on_job(Action::Retry),
            KeyCode::Enter => return self.enter(),
            code => self.select(code),
        }
        (self.tab != tab).then_some(Action::Reload)
    }

    fn sort_next(&mut self) {
        let columns = rows::sheet(self.tab, &self.snapshot).columns;
        let sorted = &mut self.sorted[self.tab as usize];
        let next = sorted.map_or(0, |(column, _)| column + 1);
        // Numbers are more interesting from the top, names from the bottom.
        *sorted = columns.get(next).map(|column| (next, column.is_number));
    }

    fn select(&mut self, code: KeyCode) {
        let sheet = self.sheet();
        let Some(last) = sheet.lines.len().checked_sub(1) else { return };
        let at = scrolled(code, self.selected_in(&sheet).unwrap_or(0), last);
        self.selected[self.tab as usize] = (sheet.lines[at].id.clone(), at);
    }

    fn selected_line(&self) -> Option<Line> {
        let sheet = self.sheet();
        self.selected_in(&sheet).map(|at| sheet.lines[at].clone())
    }

    fn toggle_lane(&mut self) -> Option<Action> {
        let lane = self.selected_line().filter(|_| self.tab == Tab::Lanes).map(|line| line.id);
        let lanes = self.snapshot.stats.as_ref().map(|stats| &stats.lanes);
        let found = lanes.into_iter().flatten().find(|of| Some(&of.name) == lane.as_ref());
        match found {
            Some(lane) if lane.paused => Some(Action::Resume(lane.name.clone())),
            Some(lane) => self.confirm(Some(Action::Pause(lane.name.clone()))),
            None => {
                self.message = Some(Err("select a lane (1) to pause or resume it".to_owned()));
                None
            }
        }
    }

    /// Asks before a change of the selected job.
    fn on_job(&mut self, action: fn(String) -> Action) -> Option<Action> {
        let jobs = matches!(self.tab, Tab::Running | Tab::Waiting | Tab::Failures);
        let job = self.selected_line().filter(|_| jobs).map(|line| line.id);
        if job.is_none() {
            self.message = Some(Err("select a job first: 3 running, 4 waiting, 5 failures".to_owned()));
        }
        self.confirm(job.map(action))
    }

    fn confirm(&mut self, action: Option<Action>) -> Option<Action> {
        self.mode = Mode::Confirm(action?);
        None
    }

    /// Opens a job, or shows the jobs of a lane or an agent.
    fn enter(&mut self) -> Option<Action> {
        let line = self.selected_line()?;
        match self.tab {
            Tab::Running | Tab::Waiting | Tab::Failures => {
                self.opening = Some(line.id.clone());
                return Some(Action::Open(line.id));
            }
            Tab::Lanes | Tab::Agents => {
                self.filter = line.cells.first().map(|cell| cell.text.clone()).unwrap_or_default();
                self.tab = Tab::Waiting;
            }
            Tab::Workers => return None,
        }
        Some(Action::Reload)
    }
}

/// The place after a key that moves.
fn scrolled(code: KeyCode, at: usize, last: usize) -> usize {
    const PAGE: usize = 10;
    let moved = match code {
        KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => at.saturating_add(1),
        KeyCode::PageUp => at.saturating_sub(PAGE),
        KeyCode::PageDown | KeyCode::Char(' ') => at.saturating_add(PAGE),
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => last,
        _ => at,
    };
    moved.min(last)
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        match (self, other) {
            (Key::Number(a), Key::Number(b)) => a.cmp(b),
            (Key::Text(a), Key::Text(b)) => a.cmp(b),
            (Key::Number(_), Key::Text(_)) => Ordering::Less,
            (Key::Text(_), Key::Number(_)) => Ordering::Greater,
        }
    }
}
