//! How busy the machine is, from 0 to 10, and how quiet that makes it.
//!
//! The rating adds up what each figure is worth, so that two things that are somewhat full weigh like one that is very
//! full. Readings are smoothed first. A worse state holds at once; a better one only after several looks in a row, so that a
//! short pause in a busy hour lets nothing heavy loose.

use laneway_core::QuietState;
use laneway_core::capacity::BUSY_MAX;

use super::api_meter::ApiLoad;
use super::host::HostSample;

/// Looks in a row that must agree before a better state holds.
const STREAK: u32 = 3;
/// How much a new figure counts against those before it.
const WEIGHT: f64 = 0.5;

/// The rating of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Rating {
    /// From 0 (idle) to 10.
    pub busy: u8,
    /// How quiet it is.
    pub quiet: QuietState,
    /// The smoothed readings behind it.
    pub host: HostSample,
    /// The load of the API.
    pub api: ApiLoad,
}

/// Rates one look after the other.
#[derive(Debug, Default)]
pub struct Rater {
    host: Option<HostSample>,
    state: Option<QuietState>,
    /// Looks in a row that were better than the state in force, and the worst of them.
    better: Option<(u32, QuietState)>,
}

impl Rater {
    /// Rates a look at the machine.
    pub fn rate(&mut self, sample: HostSample, api: ApiLoad) -> Rating {
        let host = self.host.map_or(sample, |before| smooth(&before, &sample));
        self.host = Some(host);
        let busy = busy(&host, &api);
        Rating { busy, quiet: self.follow(state_of(busy)), host, api }
    }

    /// The state in force after a look that found `now`.
    fn follow(&mut self, now: QuietState) -> QuietState {
        let Some(state) = self.state.filter(|state| now < *state) else {
            self.better = None;
            return *self.state.insert(now);
        };
        let (count, worst) = self.better.map_or((1, now), |(count, worst)| (count + 1, worst.max(now)));
        self.better = Some((count, worst));
        if count < STREAK {
            return state;
        }
        self.better = None;
        *self.state.insert(worst)
    }
}

fn smooth(before: &HostSample, now: &HostSample) -> HostSample {
    let mix = |before: f64, now: f64| before + WEIGHT * (now - before);
    let mix_some = |before: Option<f64>, now: Option<f64>| match (before, now) {
        (Some(before), Some(now)) => Some(mix(before, now)),
        (_, now) => now,
    };
    HostSample {
        cpu_percent: mix(before.cpu_percent, now.cpu_percent),
        memory_percent: mix(before.memory_percent, now.memory_percent),
        load_per_core: mix(before.load_per_core, now.load_per_core),
        io_pressure: mix_some(before.io_pressure, now.io_pressure),
        memory_pressure: mix_some(before.memory_pressure, now.memory_pressure),
        cpu_pressure: mix_some(before.cpu_pressure, now.cpu_pressure),
        drops_per_second: mix_some(before.drops_per_second, now.drops_per_second),
    }
}

/// The points of each reading: one for each threshold that it reaches.
fn busy(host: &HostSample, api: &ApiLoad) -> u8 {
    let points = [
        marks(host.cpu_percent, &[50.0, 70.0, 85.0, 95.0]),
        marks(host.memory_percent, &[70.0, 85.0, 95.0]),
        marks(host.load_per_core, &[1.5, 3.0]),
        marks(host.io_pressure.unwrap_or(0.0), &[10.0, 30.0, 60.0]),
        marks(host.memory_pressure.unwrap_or(0.0), &[5.0, 20.0, 50.0]),
        marks(host.cpu_pressure.unwrap_or(0.0), &[40.0, 80.0]),
        marks(host.drops_per_second.unwrap_or(0.0), &[10.0, 100.0]),
        marks(api.p95_ms, &[400.0, 800.0, 1_500.0]),
        marks(api.error_rate, &[0.01, 0.03, 0.10]),
        marks(f64::from(api.in_flight), &[50.0, 100.0]),
    ];
    points.iter().sum::<u8>().min(BUSY_MAX)
}

fn marks(value: f64, marks: &[f64]) -> u8 {
    marks.iter().map(|mark| u8::from(value >= *mark)).sum()
}

fn state_of(busy: u8) -> QuietState {
    match busy {
        0..=2 => QuietState::Quiet,
        3..=5 => QuietState::Normal,
        6..=7 => QuietState::Busy,
        _ => QuietState::Panic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: HostSample = HostSample {
        cpu_percent: 3.0,
        memory_percent: 40.0,
        load_per_core: 0.1,
        io_pressure: Some(0.0),
        memory_pressure: Some(0.0),
        cpu_pressure: Some(1.0),
        drops_per_second: Some(0.0),
    };

    const CALM: ApiLoad = ApiLoad { p95_ms: 3.0, error_rate: 0.0, in_flight: 1, per_second: 4.0 };

    fn rated(host: HostSample, api: ApiLoad) -> (u8, QuietState) {
        let rating = Rater::default().rate(host, api);
        (rating.busy, rating.quiet)
    }

    #[test]
    fn w7_every_figure_counts() {
        assert_eq!(rated(IDLE, CALM), (0, QuietState::Quiet));
        let worst = HostSample { cpu_percent: 99.0, memory_percent: 99.0, ..IDLE };
        let slow = ApiLoad { p95_ms: 5_000.0, ..CALM };
        assert_eq!(
            rated(worst, slow),
            (10, QuietState::Panic),
            "a host at 99 % with answers of 5 s is in a panic"
        );
        let hosts: [(HostSample, u8); 7] = [
            (HostSample { cpu_percent: 95.0, ..IDLE }, 4),
            (HostSample { memory_percent: 95.0, ..IDLE }, 3),
            (HostSample { load_per_core: 3.0, ..IDLE }, 2),
            (HostSample { io_pressure: Some(60.0), ..IDLE }, 3),
            (HostSample { memory_pressure: Some(50.0), ..IDLE }, 3),
            (HostSample { cpu_pressure: Some(80.0), ..IDLE }, 2),
            (HostSample { drops_per_second: Some(100.0), ..IDLE }, 2),
        ];
        for (host, points) in hosts {
            assert_eq!(rated(host, CALM).0, points, "{host:?}");
        }
        for (api, points) in [
            (ApiLoad { p95_ms: 800.0, ..CALM }, 2),
            (ApiLoad { error_rate: 0.03, ..CALM }, 2),
            (ApiLoad { in_flight: 100, ..CALM }, 2),
        ] {
            assert_eq!(rated(IDLE, api).0, points, "{api:?}");
        }
    }

    #[test]
    fn w8_a_full_processor_is_not_quiet() {
        let full = HostSample { cpu_percent: 100.0, load_per_core: 4.0, cpu_pressure: None, ..IDLE };
        assert_eq!(rated(full, CALM), (6, QuietState::Busy));
    }

    #[test]
    fn states_have_their_marks() {
        let states: Vec<&str> = (0..=10).map(|busy| state_of(busy).as_str()).collect();
        let expected = "quiet quiet quiet normal normal normal busy busy panic panic panic";
        assert_eq!(states.join(" "), expected);
    }

    #[test]
    fn a_worse_state_holds_at_once_and_a_better_one_after_a_streak() {
        use QuietState::*;
        let mut rater = Rater::default();
        let looks =
            [Quiet, Panic, Quiet, Normal, Busy, Normal, Panic, Quiet, Quiet, Normal, Quiet, Quiet, Quiet];
        let states: Vec<QuietState> = looks.into_iter().map(|look| rater.follow(look)).collect();
        let expected =
            [Quiet, Panic, Panic, Panic, Busy, Busy, Panic, Panic, Panic, Normal, Normal, Normal, Quiet];
        assert_eq!(states, expected);
    }

    #[test]
    fn readings_are_smoothed() {
        let mut rater = Rater::default();
        rater.rate(IDLE, CALM);
        let peak = HostSample { cpu_percent: 99.0, ..IDLE };
        assert_eq!(rater.rate(peak, CALM).busy, 1, "one peak is half a peak");
        assert_eq!(rater.rate(peak, CALM).busy, 2);
        assert_eq!(rater.rate(peak, CALM).busy, 3);
    }
}
