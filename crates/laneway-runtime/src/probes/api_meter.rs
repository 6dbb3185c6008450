//! How the API fares: how long answers take, how many fail by the server's fault, how many are under way.
//!
//! Only failures of the server count as errors (5xx). A client that asks for what is not there must not make the machine
//! look busy.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use laneway_core::Mono;

use crate::clock::Clock;

/// How far back the load looks: so many slots of so many milliseconds.
const SLOTS: usize = 12;
const SLOT_MS: u64 = 5_000;
/// Buckets of times: four for each doubling, up to 134 seconds.
const BUCKETS: usize = 108;

/// Counts calls. Clones count together.
#[derive(Clone)]
pub struct ApiMeter {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Clock,
    in_flight: AtomicU32,
    slots: Mutex<[Slot; SLOTS]>,
}

/// The calls of one slot of time.
#[derive(Clone, Copy)]
struct Slot {
    /// Which one, counted from the start of the clock.
    number: u64,
    errors: u32,
    times: [u32; BUCKETS],
}

impl Slot {
    const EMPTY: Slot = Slot { number: 0, errors: 0, times: [0; BUCKETS] };
}

/// How the API fared in the last minute.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct ApiLoad {
    /// Of a hundred answers, the slowest five took at least this long.
    pub p95_ms: f64,
    /// Share of answers that were the server's failures.
    pub error_rate: f64,
    /// Calls under way.
    pub in_flight: u32,
    /// Answers each second.
    pub per_second: f64,
}

/// A call under way; counted until it is dropped.
pub struct InFlight {
    meter: ApiMeter,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.meter.inner.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ApiMeter {
    /// Counts by this clock.
    pub fn new(clock: Clock) -> ApiMeter {
        let slots = Mutex::new([Slot::EMPTY; SLOTS]);
        ApiMeter { inner: Arc::new(Inner { clock, in_flight: AtomicU32::new(0), slots }) }
    }

    /// A call begins.
    pub fn begin(&self) -> InFlight {
        self.inner.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight { meter: self.clone() }
    }

    /// A call was answered with this status after so many microseconds.
    pub fn record(&self, status: u16, micros: u64) {
        let number = slot_of(self.inner.clock.now().mono);
        let mut slots = self.inner.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut slots[number as usize % SLOTS];
        if slot.number != number {
            *slot = Slot { number, ..Slot::EMPTY };
        }
        slot.times[bucket_of(micros)] += 1;
        slot.errors += u32::from(status >= 500);
    }

    /// How the API fared in the last minute.
    pub fn load(&self) -> ApiLoad {
        let now = slot_of(self.inner.clock.now().mono);
        let slots = *self.inner.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |slot: &&Slot| slot.number <= now && now - slot.number < SLOTS as u64;
        let (mut times, mut errors) = ([0_u64; BUCKETS], 0_u64);
        for slot in slots.iter().filter(fresh) {
            errors += u64::from(slot.errors);
            times.iter_mut().zip(slot.times).for_each(|(sum, count)| *sum += u64::from(count));
        }
        let count: u64 = times.iter().sum();
        let in_flight = self.inner.in_flight.load(Ordering::Relaxed);
        if count == 0 {
            return ApiLoad { in_flight, ..ApiLoad::default() };
        }
        ApiLoad {
            p95_ms: percentile(&times, count.saturating_mul(95).div_ceil(100)),
            error_rate: errors as f64 / count as f64,
            in_flight,
            per_second: count as f64 * 1_000.0 / (SLOTS as u64 * SLOT_MS) as f64,
        }
    }
}

fn slot_of(at: Mono) -> u64 {
    at.0 / SLOT_MS
}

fn bucket_of(micros: u64) -> usize {
    let micros = micros.max(1);
    let octave = micros.ilog2() as usize;
    let quarter = (((micros << 2) >> octave) & 3) as usize;
    (octave * 4 + quarter).min(BUCKETS - 1)
}

/// The least time of the bucket that holds the answer of this rank, in milliseconds.
fn percentile(times: &[u64; BUCKETS], rank: u64) -> f64 {
    let mut seen = 0;
    for (bucket, count) in times.iter().enumerate() {
        seen += count;
        if seen >= rank {
            let least = (4 + bucket as u64 % 4) << (bucket / 4);
            return least as f64 / 4.0 / 1_000.0;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use laneway_core::{Mono, Now, Span, Wall};

    use super::*;

    fn meter() -> (ApiMeter, Clock) {
        let clock = Clock::manual(Now { mono: Mono(1_000_000), wall: Wall(0) });
        (ApiMeter::new(clock.clone()), clock)
    }

    #[test]
    fn times_fall_into_buckets_of_a_fifth() {
        for micros in [0, 1, 2, 3, 7, 100, 999, 400_000, 1_500_000, 130_000_000] {
            let mut times = [0; BUCKETS];
            times[bucket_of(micros)] = 1;
            let least = percentile(&times, 1) * 1_000.0;
            let micros = micros.max(1) as f64;
            assert!(least <= micros && micros < least * 1.26, "{micros} is counted as {least}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn w9_only_the_servers_failures_are_errors() {
        let (meter, _) = meter();
        for status in [200, 404, 409, 422, 429, 500, 503, 204, 200, 200] {
            meter.record(status, 1_000);
        }
        assert_eq!(meter.load().error_rate, 0.2);
    }

    #[test]
    fn the_slowest_five_of_a_hundred_tell_and_old_answers_are_forgotten() {
        let (meter, clock) = meter();
        (0..94).for_each(|_| meter.record(200, 1_000));
        (0..6).for_each(|_| meter.record(200, 1_048_576));
        let load = meter.load();
        assert!((load.p95_ms - 1_048.576).abs() < 0.001, "{load:?}");
        assert!((load.per_second - 100.0 / 60.0).abs() < 0.001);
        clock.advance(Span::secs(55));
        assert!(meter.load().p95_ms > 1_000.0);
        clock.advance(Span::secs(5));
        assert_eq!(meter.load(), ApiLoad::default());
    }

    #[test]
    fn a_call_is_under_way_until_it_is_dropped() {
        let (meter, _) = meter();
        let (one, two) = (meter.begin(), meter.begin());
        assert_eq!(meter.load().in_flight, 2);
        drop(one);
        assert_eq!(meter.load().in_flight, 1);
        drop(two);
        assert_eq!(meter.load().in_flight, 0);
    }
}
