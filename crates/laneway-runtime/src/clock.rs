//! The only module that reads time.
//!
//! The system's clock for the real loop, a manual one for tests. The monotonic clock counts the time in which the process
//! could run: a process that was stopped (SIGSTOP, a frozen machine) could not hear its workers, so that time is taken
//! back and no lease or timeout ends because of it.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use laneway_core::engine::Wakeup;
use laneway_core::{Mono, Now, Span, Wall};
use tokio::sync::watch;

/// The longest wait at once: the wall clock may jump meanwhile, and a stop of the process is seen only by waking up.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// A wait that took this much longer than asked for means that the process did not run.
const STALL_MIN: Duration = Duration::from_secs(1);

/// A clock. Clones show the same time.
#[derive(Clone)]
pub struct Clock {
    source: Source,
}

#[derive(Clone)]
enum Source {
    System { start: Instant, taken_back_ms: Arc<AtomicU64> },
    Manual(Arc<Manual>),
}

struct Manual {
    now: Mutex<Now>,
    moved: watch::Sender<()>,
}

impl Clock {
    /// The system's clocks.
    pub fn system() -> Clock {
        Clock { source: Source::System { start: Instant::now(), taken_back_ms: Arc::default() } }
    }

    /// A clock that stands still until it is moved.
    pub fn manual(now: Now) -> Clock {
        let manual = Manual { now: Mutex::new(now), moved: watch::Sender::new(()) };
        Clock { source: Source::Manual(Arc::new(manual)) }
    }

    /// Both clocks, now.
    pub fn now(&self) -> Now {
        match &self.source {
            Source::System { start, taken_back_ms } => {
                let ran = millis(start.elapsed());
                Now {
                    mono: Mono(ran.saturating_sub(taken_back_ms.load(Ordering::Relaxed))),
                    wall: system_wall(),
                }
            }
            Source::Manual(manual) => *manual.now.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Moves both hands of a manual clock. Panics on the system's clock.
    pub fn advance(&self, span: Span) {
        let Source::Manual(manual) = &self.source else { panic!("the system's clock moves by itself") };
        let mut now = manual.now.lock().unwrap_or_else(PoisonError::into_inner);
        *now = Now { mono: now.mono + span, wall: now.wall + span };
        drop(now);
        manual.moved.send_replace(());
    }

    /// Sets the wall hand of a manual clock ahead or back, by milliseconds. Panics on the system's clock.
    pub fn set_wall(&self, by_ms: i64) {
        let Source::Manual(manual) = &self.source else { panic!("the system's clock is not ours to set") };
        let mut now = manual.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.wall = Wall(now.wall.0.saturating_add(by_ms));
        drop(now);
        manual.moved.send_replace(());
    }

    /// Waits for `span`.
    pub async fn sleep(&self, span: Span) {
        match &self.source {
            Source::System { .. } => tokio::time::sleep(Duration::from_millis(span.0)).await,
            Source::Manual(_) => self.manual_wait(Some(self.now().mono + span), None).await,
        }
    }

    /// Waits until the engine wants to look at the clock, or a little less: the caller looks again.
    pub(crate) async fn wait_for(&self, wakeup: Wakeup) {
        match &self.source {
            Source::System { .. } => tokio::time::sleep(self.until(wakeup).min(WAIT_MAX)).await,
            Source::Manual(_) => self.manual_wait(wakeup.mono, wakeup.wall).await,
        }
    }

    fn until(&self, wakeup: Wakeup) -> Duration {
        let now = self.now();
        let mono = wakeup.mono.map_or(u64::MAX, |at| at.since(now.mono).0);
        let wall = wakeup.wall.map_or(u64::MAX, |at| at.since(now.wall).0);
        Duration::from_millis(mono.min(wall))
    }

    async fn manual_wait(&self, mono: Option<Mono>, wall: Option<Wall>) {
        let Source::Manual(manual) = &self.source else { return pending().await };
        let mut moved = manual.moved.subscribe();
        loop {
            let now = self.now();
            if mono.is_some_and(|at| at <= now.mono) || wall.is_some_and(|at| at <= now.wall) {
                return;
            }
            if moved.changed().await.is_err() {
                return pending().await;
            }
        }
    }

    /// Takes time in which the process did not run back from the monotonic clock.
    fn take_back(&self, time: Duration) {
        if let Source::System { taken_back_ms, .. } = &self.source {
            taken_back_ms.fetch_add(millis(time), Ordering::Relaxed);
        }
    }
}

/// Measures how long something took.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Notices that the process did not run while it should have. The loop wakes up every second at the latest: when it finds
/// that much more time gone, no message could be received meanwhile.
pub(crate) struct StallWatch {
    clock: Clock,
    last: Instant,
}

impl StallWatch {
    pub(crate) fn new(clock: Clock) -> StallWatch {
        StallWatch { clock, last: Instant::now() }
    }

    /// Called once for every round of the loop, before the clock is read. Gives the time that was taken back.
    pub(crate) fn look(&mut self) -> Option<Duration> {
        let gone = self.last.elapsed();
        self.last = Instant::now();
        let stall = gone.saturating_sub(WAIT_MAX);
        if stall < STALL_MIN || matches!(self.clock.source, Source::Manual(_)) {
            return None;
        }
        self.clock.take_back(stall);
        Some(stall)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn system_wall() -> Wall {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => Wall(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
        Err(before) => Wall(-i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_gap_between_looks_is_taken_back_from_the_monotonic_clock() {
        let clock = Clock::system();
        let mut watch = StallWatch::new(clock.clone());
        assert_eq!(watch.look(), None);
        let Some(past) = Instant::now().checked_sub(Duration::from_secs(30)) else { return };
        watch.last = past;
        let Source::System { start, .. } = &clock.source else { unreachable!() };
        // The process "began" 30 s ago and stood still since.
        let clock_then = Clock {
            source: Source::System { start: *start - Duration::from_secs(30), taken_back_ms: Arc::default() },
        };
        watch.clock = clock_then.clone();
        let stall = watch.look().unwrap();
        assert!(stall >= Duration::from_secs(28), "{stall:?}");
        assert!(clock_then.now().mono <= Mono(2_000), "{:?}", clock_then.now());
        assert_eq!(watch.look(), None);
    }

    #[tokio::test]
    async fn a_manual_clock_ends_a_wait_when_it_is_moved() {
        let clock = Clock::manual(Now { mono: Mono(5), wall: Wall(1_000) });
        let waiting = clock.clone();
        let wait = tokio::spawn(async move { waiting.sleep(Span(10)).await });
        tokio::task::yield_now().await;
        clock.advance(Span(9));
        tokio::task::yield_now().await;
        assert!(!wait.is_finished());
        clock.advance(Span(1));
        wait.await.unwrap();
        assert_eq!(clock.now(), Now { mono: Mono(15), wall: Wall(1_010) });
    }
}
