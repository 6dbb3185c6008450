//! Figures: what was measured, beside what, and whether it is enough.

use serde_json::json;

use crate::screen::{Paint, Screen};
use crate::table::{Cell, Table};

/// One measured figure.
pub struct Figure {
    name: String,
    unit: Unit,
    ours: Vec<f64>,
    /// The raw limit, measured in turns with ours, and what it is.
    raw: Option<(Vec<f64>, &'static str)>,
    goal: Option<Goal>,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things a second: more is better.
    PerSecond,
    /// Milliseconds: less is better.
    Millis,
    /// Bytes: less is better.
    Bytes,
}

/// What is enough: of the ratio to the raw limit where there is one, else of the figure itself.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Figure {
    /// A figure without a raw limit.
    pub fn absolute(name: impl Into<String>, unit: Unit, ours: Vec<f64>, goal: Goal) -> Figure {
        Figure { name: name.into(), unit, ours, raw: None, goal: Some(goal) }
    }

    /// A figure beside its raw limit, measured in turns: `ours[n]` beside `raw[n]`.
    pub fn beside(
        name: impl Into<String>,
        unit: Unit,
        ours: Vec<f64>,
        raw: Vec<f64>,
        raw_is: &'static str,
        goal: Option<Goal>,
    ) -> Figure {
        Figure { name: name.into(), unit, ours, raw: Some((raw, raw_is)), goal }
    }

    /// The median of the ratios of each pair.
    fn ratio(&self) -> Option<f64> {
        let (raw, _) = self.raw.as_ref()?;
        Some(median(&self.ours.iter().zip(raw).map(|(ours, raw)| ours / raw).collect::<Vec<_>>()))
    }

    /// Is it enough? `None`: nothing is asked of it.
    fn met(&self) -> Option<bool> {
        let value = self.ratio().unwrap_or_else(|| median(&self.ours));
        Some(match self.goal? {
            Goal::AtLeast(goal) => value >= goal,
            Goal::AtMost(goal) => value <= goal,
        })
    }

    fn goal_words(&self) -> String {
        let word = |value: f64| match (self.raw.is_some(), self.unit) {
            (true, Unit::PerSecond) => format!("{:.0} %", value * 100.0),
            (true, _) => format!("{value} ×"),
            (false, unit) => unit.words(value),
        };
        match self.goal {
            None => String::new(),
            Some(Goal::AtLeast(goal)) => format!("≥ {}", word(goal)),
            Some(Goal::AtMost(goal)) => format!("≤ {}", word(goal)),
        }
    }

    fn ratio_words(&self) -> String {
        match (self.ratio(), self.unit) {
            (None, _) => String::new(),
            (Some(ratio), Unit::PerSecond) => format!("{:.0} %", ratio * 100.0),
            (Some(ratio), _) => format!("{ratio:.2} ×"),
        }
    }

    fn document(&self) -> serde_json::Value {
        let summary = |values: &[f64]| {
            let (low, high) = spread(values);
            json!({"median": median(values), "min": low, "max": high, "runs": values})
        };
        json!({
            "name": self.name,
            "unit": self.unit.word(),
            "ours": summary(&self.ours),
            "raw": self.raw.as_ref().map(|(raw, _)| summary(raw)),
            "raw_is": self.raw.as_ref().map(|(_, what)| what),
            "ratio": self.ratio(),
            "goal": self.goal.map(|_| self.goal_words()),
            "met": self.met(),
        })
    }
}

impl Unit {
    fn word(self) -> &'static str {
        match self {
            Unit::PerSecond => "per_second",
            Unit::Millis => "milliseconds",
            Unit::Bytes => "bytes",
        }
    }

    fn words(self, value: f64) -> String {
        match self {
            Unit::PerSecond => format!("{}/s", thousands(value)),
            Unit::Millis if value < 10.0 => format!("{value:.2} ms"),
            Unit::Millis => format!("{} ms", thousands(value)),
            Unit::Bytes if value < 1e6 => format!("{:.0} KB", value / 1e3),
            Unit::Bytes => format!("{:.0} MB", value / 1e6),
        }
    }

    fn spread_words(self, values: &[f64]) -> String {
        let (low, high) = spread(values);
        format!("{} … {}", self.words(low), self.words(high))
    }
}

/// Shows all figures: a table for people, one document for machines.
pub fn show(screen: &Screen, figures: &[Figure], quick: bool) -> anyhow::Result<()> {
    if screen.json {
        let document = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "quick": quick,
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "figures": figures.iter().map(Figure::document).collect::<Vec<_>>(),
        });
        println!("{}", serde_json::to_string_pretty(&document)?);
        return Ok(());
    }
    let mut table = Table::new()
        .left("FIGURE")
        .right("OURS")
        .left("SPREAD")
        .right("RAW")
        .right("RATIO")
        .left("GOAL")
        .left("MET");
    for figure in figures {
        let raw = figure.raw.as_ref().map_or(String::new(), |(raw, _)| figure.unit.words(median(raw)));
        let met = match figure.met() {
            None => Cell::plain(""),
            Some(true) => Cell::painted("yes", Paint::Green),
            Some(false) => Cell::painted("no", Paint::Red),
        };
        table.row(vec![
            Cell::plain(&figure.name),
            Cell::plain(figure.unit.words(median(&figure.ours))),
            Cell::plain(figure.unit.spread_words(&figure.ours)),
            Cell::plain(raw),
            Cell::plain(figure.ratio_words()),
            Cell::plain(figure.goal_words()),
            met,
        ]);
    }
    table.print(screen);
    for (figure, raw_is) in figures.iter().filter_map(|figure| Some((figure, figure.raw.as_ref()?.1))) {
        println!("{}: beside {raw_is}", figure.name);
    }
    if quick {
        println!("A quick run: a first look, not figures to quote.");
    }
    Ok(())
}

/// The middle value.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}

/// `1234567` as `1,234,567`.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
