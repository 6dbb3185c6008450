//! A histogram of times with buckets on a logarithmic scale, for percentiles.
//!
//! Times below 8 ms have a bucket each. Above that, every power of two has eight buckets, so that a percentile is off by at
//! most 1/16. Only buckets that are used take memory.

use super::codec::{read_number, write_number};

/// Each power of two has this many buckets: 2 to the power of 3.
const PARTS_LOG2: u32 = 3;
/// The largest time that has its own bucket, in milliseconds: 49 days. Longer times count there.
const TIME_MAX_MS: u64 = u32::MAX as u64;

/// How many times were seen, by bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Bucket and count, by bucket; no count is 0.
    buckets: Vec<(u8, u32)>,
}

impl Histogram {
    /// Counts one time.
    pub fn record(&mut self, time_ms: u64) {
        self.add_to(bucket_of(time_ms), 1);
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &Histogram) {
        other.buckets.iter().for_each(|(bucket, count)| self.add_to(*bucket, *count));
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// The time that this part of all times does not exceed, in milliseconds; `None` without any time.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let count = self.count();
        // The smallest number of times that is at least this part of them.
        let rank = ((part * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        self.buckets.iter().find_map(|(bucket, count)| {
            below += u64::from(*count);
            (below >= rank).then(|| middle_of(*bucket))
        })
    }

    fn add_to(&mut self, bucket: u8, count: u32) {
        match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
            Err(at) => self.buckets.insert(at, (bucket, count)),
        }
    }

    /// Appends the stored form.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_number(out, self.buckets.len() as u64);
        for (bucket, count) in &self.buckets {
            out.push(*bucket);
            write_number(out, u64::from(*count));
        }
    }

    /// Reads the stored form; `None` where it is none.
    pub(super) fn read(input: &mut &[u8]) -> Option<Histogram> {
        let mut read = Histogram::default();
        for _ in 0..read_number(input)?.min(256) {
            let (bucket, rest) = input.split_first()?;
            *input = rest;
            read.add_to(*bucket, u32::try_from(read_number(input)?).ok()?);
        }
        Some(read)
    }
}

fn bucket_of(time_ms: u64) -> u8 {
    let time = time_ms.min(TIME_MAX_MS);
    if time < 1 << PARTS_LOG2 {
        return time as u8;
    }
    let power = time.ilog2();
    let part = (time >> (power - PARTS_LOG2)) & ((1 << PARTS_LOG2) - 1);
    (u64::from((power - PARTS_LOG2 + 1) << PARTS_LOG2) + part) as u8
}

/// The time in the middle of a bucket, in milliseconds.
fn middle_of(bucket: u8) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < 1 << PARTS_LOG2 {
        return bucket;
    }
    // The largest bucket in use is 239; a stored one beyond it stays within 64 bits as well.
    let shift = (bucket >> PARTS_LOG2) - 1;
    let lowest = ((1 << PARTS_LOG2) + (bucket & ((1 << PARTS_LOG2) - 1))) << shift;
    lowest + ((1_u64 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_off_by_a_sixteenth_at_most() {
        for time in [0, 1, 7, 8, 9, 63, 64, 100, 999, 1_000, 60_000, 3_600_000, 86_400_000, TIME_MAX_MS] {
            let mut histogram = Histogram::default();
            histogram.record(time);
            let shown = histogram.quantile(0.5).unwrap();
            assert!(shown.abs_diff(time) * 16 <= time, "{time} is shown as {shown}");
        }
    }

    #[test]
    fn percentiles_of_many_times() {
        let mut histogram = Histogram::default();
        (1..=1_000).for_each(|time| histogram.record(time));
        let near = |part: f64, time: u64| {
            let shown = histogram.quantile(part).unwrap();
            assert!(shown.abs_diff(time) * 16 <= time, "{part}: {shown} instead of {time}");
        };
        near(0.5, 500);
        near(0.95, 950);
        near(0.99, 990);
        assert_eq!(histogram.count(), 1_000);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn the_stored_form_is_read_back_and_garbage_is_not() {
        let mut histogram = Histogram::default();
        [3, 3, 80, 5_000, u64::MAX].into_iter().for_each(|time| histogram.record(time));
        let mut bytes = Vec::new();
        histogram.write(&mut bytes);
        assert_eq!(Histogram::read(&mut bytes.as_slice()), Some(histogram));
        assert_eq!(Histogram::read(&mut &bytes[..bytes.len() - 1]), None);
        assert!((0..=u8::MAX).all(|bucket| middle_of(bucket) > 0 || bucket == 0));
    }
}
