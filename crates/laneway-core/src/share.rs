//! How parties share a pool whose units come back by themselves, such as calls with a time limit.
//!
//! One party alone may borrow the whole pool except for a reserve of an eighth. A party that has nothing finds the reserve
//! and is served at once; within the reserve, a party may have as much as it leaves free, so that one newcomer does not use
//! it up. While a party that has less waits, a party that has more borrows nothing: what comes back goes to the party
//! with the least, until all have equally much.

/// A pool that parties share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The size of the pool.
    pub total: u64,
    /// How much of it is free.
    pub free: u64,
}

/// The reserve is this part of a pool, and at least one. A pool of one has no reserve.
const RESERVE_PART: u64 = 8;

impl Pool {
    /// A pool of `total` of which all parties together have `used`.
    pub fn new(total: impl Into<u64>, used: impl Into<u64>) -> Pool {
        let total = total.into();
        Pool { total, free: total.saturating_sub(used.into()) }
    }

    /// How much more a party that has `used` may take. `contended`: a party that has less waits.
    pub fn left_to(self, used: impl Into<u64>, contended: bool) -> u64 {
        let at_once = self.free.saturating_sub(used.into());
        let borrowed = if contended { 0 } else { self.free.saturating_sub(self.reserve()) };
        at_once.max(borrowed)
    }

    /// The most that one party can have of a pool of `total`.
    pub fn most_of_one(total: impl Into<u64>) -> u64 {
        let pool = Pool::new(total, 0_u64);
        pool.total - pool.reserve()
    }

    /// What no party may borrow.
    fn reserve(self) -> u64 {
        (self.total / RESERVE_PART).max(u64::from(self.total > 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What parties get that take all they can, one party after the other.
    fn greedy(total: u64, parties: usize) -> Vec<u64> {
        let mut used = vec![0; parties];
        for at in 0..parties {
            while Pool::new(total, used.iter().sum::<u64>()).left_to(used[at], false) > 0 {
                used[at] += 1;
            }
        }
        used
    }

    #[test]
    fn defect_11_a_party_alone_borrows_all_but_the_reserve() {
        assert_eq!(greedy(1, 1), [1], "a pool of one can be used");
        assert_eq!(greedy(2, 2), [1, 1]);
        assert_eq!(greedy(32, 5), [28, 2, 1, 1, 0]);
        assert_eq!(greedy(256, 4), [224, 16, 8, 4]);
        for total in 0..100 {
            assert_eq!(greedy(total, 1), [Pool::most_of_one(total)], "of {total}");
        }
    }

    #[test]
    fn defect_11_a_newcomer_finds_the_reserve() {
        for total in 2..100 {
            let used = greedy(total, 1)[0];
            assert_eq!(Pool::new(total, used).left_to(0_u64, true), (total / 8).max(1), "of {total}");
        }
    }

    #[test]
    fn defect_11_nothing_is_borrowed_while_a_party_with_less_waits() {
        // The first party has borrowed; the second one has what it found and waits for more.
        let (mut first, mut second) = (28_u64, 2_u64);
        while first > second {
            first -= 1;
            let pool = Pool::new(32_u64, first + second);
            assert_eq!(pool.left_to(first, true), 0, "{first} and {second}");
            second += pool.left_to(second, false).min(1);
        }
        assert_eq!((first, second), (14, 14), "all but the reserve, in equal parts");
    }
}
