//! How a pool that several parties use is shared: a party may take one more while it has fewer than are still free.
//!
//! One party alone gets half of the pool, two greedy ones a third each, and so on. The next party always finds as much
//! free as the greediest has. Nothing is reserved for parties that are not there, and nothing has to be taken back. (In
//! switches this is known as a dynamic threshold.)

/// May a party that has `used` take one more of a pool in which `free` are free?
pub fn may_take(used: u32, free: u32) -> bool {
    used < free
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What parties get that take all they can, one party after the other.
    fn greedy(total: u32, parties: usize) -> Vec<u32> {
        let mut used = vec![0; parties];
        for at in 0..parties {
            while may_take(used[at], total - used.iter().sum::<u32>()) {
                used[at] += 1;
            }
        }
        used
    }

    #[test]
    fn greedy_parties_leave_something_for_the_next() {
        assert_eq!(greedy(1, 1), [1], "a pool of one can be used");
        assert_eq!(greedy(16, 4), [8, 4, 2, 1]);
        assert_eq!(greedy(256, 3), [128, 64, 32]);
    }
}
