//! Growing waits with jitter, for frames without an acknowledgement and for failed connections.

use std::time::Duration;

/// A wait that doubles from `base` to `max`, with jitter, so that many workers do not wake up together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub base: Duration,
    /// The longest wait.
    pub max: Duration,
    /// The random part of a wait in percent: 25 means from three quarters of it to all of it.
    pub jitter_pct: u32,
}

/// How often a frame is sent again before the connection counts as broken.
pub const RESENDS_MAX: u32 = 6;

impl Backoff {
    /// For frames that need an acknowledgement: 200 ms, 400 ms, …, 5 s.
    pub const FRAMES: Backoff =
        Backoff { base: Duration::from_millis(200), max: Duration::from_secs(5), jitter_pct: 25 };

    /// For connections. Half of each wait is random: a thousand workers that lost the same server come back
    /// spread out.
    pub const CONNECTIONS: Backoff =
        Backoff { base: Duration::from_millis(500), max: Duration::from_secs(30), jitter_pct: 50 };

    /// The wait after `failures` failures in a row (from 0). `random` is between 0 and 1.
    pub fn wait(&self, failures: u32, random: f64) -> Duration {
        let factor = 2u32.saturating_pow(failures.min(30));
        let full = self.base.saturating_mul(factor).min(self.max);
        let drawn = f64::from(self.jitter_pct) / 100.0 * random.clamp(0.0, 1.0);
        full.mul_f64(1.0 - drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d7_frames_wait_200_ms_to_5_s_with_jitter() {
        let waits: Vec<u128> = (0..RESENDS_MAX).map(|n| Backoff::FRAMES.wait(n, 0.0).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1_600, 3_200, 5_000]);
        let shortest: Vec<u128> =
            (0..RESENDS_MAX).map(|n| Backoff::FRAMES.wait(n, 1.0).as_millis()).collect();
        assert_eq!(shortest, [150, 300, 600, 1_200, 2_400, 3_750]);
    }

    #[test]
    fn waits_never_grow_beyond_their_limit() {
        for failures in [0, 7, 31, 1_000, u32::MAX] {
            for random in [-1.0, 0.0, 0.5, 1.0, 7.0] {
                let wait = Backoff::CONNECTIONS.wait(failures, random);
                assert!(wait >= Duration::from_millis(250) && wait <= Duration::from_secs(30), "{wait:?}");
            }
        }
    }
}
