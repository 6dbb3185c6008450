//! Draws the state of the view. A function of the state and the size of the terminal, and of nothing else.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Sparkline, Table, TableState};
use unicode_width::UnicodeWidthStr;

use super::detail;
use super::rows::{self, Column, Sheet};
use super::state::{Action, Link, Mode, State, Tab};
use crate::output::{Paint, one_line};
use crate::short_id::short_id;
use crate::table::cut;
use crate::time_args::short;

/// From this height on, the lanes have a chart below them.
const CHART_FROM: u16 = 30;
const CHART_HEIGHT: u16 = 8;
/// Spaces between columns.
const GAP: usize = 2;
/// A flexible column is not narrower than this while others can be left out.
const FLEXIBLE_MIN: usize = 36;

/// A name is not cut below this width while columns can be left out.
const NAME_MIN: usize = 24;

const HELP: [(&str, &str); 15] = [
    ("1 … 6, Tab, ← →", "choose a list"),
    ("↑ ↓, k j", "select a line"),
    ("PgUp PgDn, Home End", "move further"),
    ("Enter", "open a job; show the jobs of a lane or an agent"),
    ("/", "show only lines with a text; Esc shows all again"),
    ("s", "sort by the next column"),
    ("S", "reverse the order"),
    ("p", "pause or resume the selected lane"),
    ("c", "cancel the selected job"),
    ("r", "retry the selected job: it becomes a new job"),
    ("Esc, q", "in an open job: back to the list"),
    ("? h", "this help"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("", "Lists have the newest 200 jobs. Every second they are read."),
];

/// The style of a colour; without colours only what a terminal always has.
pub fn style(paint: Paint, color: bool) -> Style {
    let plain = Style::new();
    match (paint, color) {
        (Paint::Plain, _) => plain,
        (Paint::Bold, _) => plain.add_modifier(Modifier::BOLD),
        (Paint::Dim, true) => plain.fg(Color::DarkGray),
        (Paint::Dim, false) => plain.add_modifier(Modifier::DIM),
        (_, false) => plain,
        (Paint::Red, _) => plain.fg(Color::Red),
        (Paint::Green, _) => plain.fg(Color::Green),
        (Paint::Yellow, _) => plain.fg(Color::Yellow),
        (Paint::Blue, _) => plain.fg(Color::Blue),
        (Paint::Cyan, _) => plain.fg(Color::Cyan),
    }
}

/// Draws the whole view.
pub fn draw(state: &State, color: bool, frame: &mut Frame<'_>) {
    let parts = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];
    let [head, numbers, tabs, body, foot] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(head_line(state, color, head.width), head);
    frame.render_widget(numbers_line(state, color), numbers);
    frame.render_widget(tabs_line(state, color), tabs);
    match (&state.mode, &state.detail) {
        (Mode::Detail(_) | Mode::Confirm(_) | Mode::Help, Some(detail)) => {
            let first = if let Mode::Detail(first) = state.mode { first } else { 0 };
            detail::draw(detail, state.snapshot.now, first, color, frame, body);
        }
        _ => draw_list(state, color, frame, body),
    }
    if state.mode == Mode::Help {
        draw_help(color, frame, body);
    }
    frame.render_widget(foot_line(state, color), foot);
}

fn head_line(state: &State, color: bool, width: u16) -> Line<'static> {
    let (link, paint) = match &state.link {
        Link::Connecting => ("connecting".to_owned(), Paint::Yellow),
        Link::Live => (state.snapshot.now.strftime("%H:%M:%S UTC").to_string(), Paint::Green),
        Link::Away(_) => ("away, trying again".to_owned(), Paint::Red),
    };
    let left = usize::from(width).saturating_sub(state.title.width() + link.width() + 2 * GAP);
    let server = cut(&one_line(&state.server), left);
    let fill = " ".repeat(left.saturating_sub(server.width()) + GAP);
    Line::from(vec![
        Span::styled(state.title.clone(), style(Paint::Bold, color)),
        Span::raw("  "),
        Span::styled(server, style(Paint::Dim, color)),
        Span::raw(fill),
        Span::styled(link, style(paint, color)),
    ])
}

/// The most important numbers.
fn numbers_line(state: &State, color: bool) -> Line<'static> {
    let Some(stats) = &state.snapshot.stats else { return Line::default() };
    let mut spans = Vec::new();
    let counts = [
        (stats.running + stats.assigned + stats.still_running, "running", Paint::Cyan),
        (stats.queued, "queued", Paint::Blue),
        (stats.scheduled, "scheduled", Paint::Yellow),
    ];
    for (count, name, paint) in counts {
        let before = if spans.is_empty() { "" } else { " · " };
        spans.push(Span::raw(before));
        spans.push(Span::styled(count.to_string(), style(paint, color)));
        spans.push(Span::raw(format!(" {name}")));
        if name == "running" {
            spans.push(Span::raw(format!(" of {}", stats.running_max)));
        }
    }
    if let Some(history) = &state.snapshot.history {
        let total = &history.total;
        let ended = total.succeeded + total.failed + total.canceled;
        spans.push(Span::raw(format!(" · 1h: {ended} ended, ")));
        let paint = if total.failed > 0 { Paint::Red } else { Paint::Plain };
        spans.push(Span::styled(format!("{} failed", total.failed), style(paint, color)));
        if let Some(wait) = total.wait.p95_ms {
            spans.push(Span::raw(format!(" · wait p95 {}", short(wait))));
        }
    }
    for (is_set, text) in [(stats.draining, " · draining"), (stats.storage_low, " · storage is low")] {
        if is_set {
            spans.push(Span::styled(text, style(Paint::Red, color)));
        }
    }
    Line::from(spans)
}

fn tabs_line(state: &State, color: bool) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, tab) in (1..).zip(Tab::ALL) {
        let is_shown = tab == state.tab;
        let tab_style =
            if is_shown { Style::new().add_modifier(Modifier::REVERSED) } else { style(Paint::Dim, color) };
        spans.push(Span::styled(format!(" {number} {} ", tab.title()), tab_style));
    }
    if !state.filter.is_empty() && state.mode != Mode::Filter {
        let filter = cut(&one_line(&state.filter), 24);
        spans.push(Span::styled(format!("  /{filter}"), style(Paint::Yellow, color)));
    }
    Line::from(spans)
}

fn foot_line(state: &State, color: bool) -> Line<'static> {
    let question = |verb: &str, what: &str| format!("{verb} {}? y: yes, any other key: no", one_line(what));
    let (text, paint) = match (&state.mode, &state.link, &state.message) {
        (Mode::Filter, _, _) => {
            (format!("/{}█  Enter: done, Esc: show all", one_line(&state.filter)), Paint::Yellow)
        }
        (Mode::Confirm(Action::Pause(lane)), _, _) => (question("pause lane", lane), Paint::Yellow),
        (Mode::Confirm(Action::Cancel(id)), _, _) => (question("cancel job", short_id(id)), Paint::Yellow),
        (Mode::Confirm(Action::Retry(id)), _, _) => (question("retry job", short_id(id)), Paint::Yellow),
        (_, Link::Away(why), _) => (one_line(why.lines().next().unwrap_or_default()), Paint::Red),
        (_, _, Some(Err(why))) => (one_line(why), Paint::Red),
        (_, _, Some(Ok(done))) => (one_line(done), Paint::Green),
        (Mode::Detail(_), ..) => ("↑↓ scroll  c cancel  r retry  Esc back  ? help".to_owned(), Paint::Dim),
        _ => (
            "Enter open  / filter  s sort  p pause  c cancel  r retry  ? help  q quit".to_owned(),
            Paint::Dim,
        ),
    };
    Line::from(Span::styled(text, style(paint, color)))
}

fn draw_list(state: &State, color: bool, frame: &mut Frame<'_>, area: Rect) {
    let sheet = state.sheet();
    let selected = state.selected_in(&sheet);
    if state.tab != Tab::Lanes || frame.area().height < CHART_FROM {
        draw_sheet(state, &sheet, (state.sort(), selected), color, frame, area);
        return;
    }
    // The lanes as high as they are, agents in the rest, the chart below.
    let lanes = (sheet.lines.len() as u16).saturating_add(2).min(area.height / 2);
    let parts = [Constraint::Length(lanes), Constraint::Fill(1), Constraint::Length(CHART_HEIGHT)];
    let [list, agents, chart] = Layout::vertical(parts).areas(area);
    draw_sheet(state, &sheet, (state.sort(), selected), color, frame, list);
    draw_sheet(state, &rows::sheet(Tab::Agents, &state.snapshot), (None, None), color, frame, agents);
    draw_chart(state, color, frame, chart);
}

/// Draws a list, with the column that it is sorted by and the selected line.
fn draw_sheet(
    state: &State,
    sheet: &Sheet,
    (sort, selected): (Option<(usize, bool)>, Option<usize>),
    color: bool,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let widths = widths(sheet, usize::from(area.width));
    let shown: Vec<usize> = (0..widths.len()).filter(|at| widths[*at].is_some()).collect();
    let width = |at: usize| widths[at].unwrap_or(0);
    let aligned = |text: &str, at: usize| {
        let text = cut(text, width(at));
        let padding = " ".repeat(width(at).saturating_sub(text.width()));
        if sheet.columns[at].is_number { padding + &text } else { text + &padding }
    };
    let head = shown.iter().map(|at| {
        let title = aligned(&title(&sheet.columns[*at], *at, sort), *at);
        Span::styled(title, style(Paint::Bold, color))
    });
    let lines = sheet.lines.iter().map(|line| {
        let cell = |at: &usize| {
            Span::styled(aligned(&line.cells[*at].text, *at), style(line.cells[*at].paint, color))
        };
        Row::new(shown.iter().map(cell))
    });
    let constraints = shown.iter().map(|at| Constraint::Length(width(*at) as u16));
    let table = Table::new(lines, constraints)
        .header(Row::new(head))
        .column_spacing(GAP as u16)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut TableState::default().with_selected(selected));
    if sheet.lines.is_empty() && area.height > 1 {
        let text = match (&state.link, state.filter.is_empty()) {
            (Link::Connecting, _) => "waiting for the server",
            _ if !state.has_read[state.tab as usize] => "reading …",
            (_, false) => "no line contains the text of the filter; Esc shows all",
            (_, true) => sheet.empty,
        };
        let below = Rect { y: area.y + 1, height: 1, ..area };
        frame.render_widget(Span::styled(text, style(Paint::Dim, color)), below);
    }
}

/// The title of a column, with an arrow where the list is sorted by it.
fn title(column: &Column, at: usize, sort: Option<(usize, bool)>) -> String {
    match sort {
        Some((sorted, descends)) if sorted == at => {
            format!("{}{}", column.title, if descends { "▼" } else { "▲" })
        }
        _ => column.title.to_owned(),
    }
}

/// The width of every column so that a line fits; `None`: it is left out.
fn widths(sheet: &Sheet, most: usize) -> Vec<Option<usize>> {
    let natural = |at: usize| {
        let cells = sheet.lines.iter().map(|line| line.cells[at].text.width());
        // An arrow may follow the title.
        cells.max().unwrap_or(0).max(sheet.columns[at].title.width() + 1)
    };
    let mut widths: Vec<Option<usize>> = (0..sheet.columns.len()).map(|at| Some(natural(at))).collect();
    let total = |widths: &[Option<usize>]| {
        widths.iter().flatten().sum::<usize>() + GAP * widths.iter().flatten().count().saturating_sub(1)
    };
    let narrow = |widths: &mut Vec<Option<usize>>, columns: fn(&Column) -> bool, least: usize| {
        for _ in 0..total(widths).saturating_sub(most) {
            let cut = (0..widths.len()).filter(|at| columns(&sheet.columns[*at]));
            let widest =
                cut.filter(|at| widths[*at].is_some_and(|width| width > least)).max_by_key(|at| widths[*at]);
            let Some(at) = widest else { return };
            widths[at] = widths[at].map(|width| width - 1);
        }
    };
    // Names come from clients and may be long.
    narrow(&mut widths, |column| !column.is_flexible && !column.is_number, NAME_MIN);
    loop {
        let mut tried = widths.clone();
        narrow(&mut tried, |column| column.is_flexible, FLEXIBLE_MIN);
        if total(&tried) <= most {
            return tried;
        }
        let spare = (0..widths.len()).filter(|at| widths[*at].is_some());
        let spare = spare.filter_map(|at| Some((sheet.columns[at].spare?, at))).min();
        let Some((_, at)) = spare else {
            narrow(&mut widths, |column| !column.is_number, 6);
            return widths;
        };
        widths[at] = None;
    }
}

/// Jobs that ended and jobs that waited in the last hour.
fn draw_chart(state: &State, color: bool, frame: &mut Frame<'_>, area: Rect) {
    let Some(history) = &state.snapshot.history else { return };
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)]);
    let [left, _, right] = halves.areas(area);
    let ended: Vec<u64> =
        history.points.iter().map(|point| point.succeeded + point.failed + point.canceled).collect();
    let waiting: Vec<u64> = history.points.iter().map(|point| point.waiting).collect();
    for (area, values, name, paint) in
        [(left, ended, "ended per minute", Paint::Green), (right, waiting, "waiting", Paint::Blue)]
    {
        let (now, most) = (values.last().copied().unwrap_or(0), values.iter().copied().max().unwrap_or(0));
        let title = format!("{name}: now {now}, most in the last hour {most}");
        let shown = rows::last(&values, usize::from(area.width)).to_vec();
        let chart = Sparkline::default()
            .data(shown)
            .style(style(paint, color))
            .block(Block::new().title(Span::styled(title, style(Paint::Bold, color))));
        let below_gap = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        frame.render_widget(chart, below_gap);
    }
}

fn draw_help(color: bool, frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (78.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let inside = Rect { x, y, width, height };
    let lines = HELP.map(|(key, text)| {
        Line::from(vec![Span::styled(format!("{key:<20}"), style(Paint::Bold, color)), Span::raw(text)])
    });
    frame.render_widget(Clear, inside);
    frame.render_widget(Paragraph::new(lines.to_vec()).block(Block::bordered().title(" help ")), inside);
}
