//! Ids: they cannot be guessed from one another, no two boots share them, and a seed repeats them.

use std::collections::BTreeSet;

use crate::engine::random::rng::Rng;
use crate::{Seed, Wall};

const AT: Wall = Wall(1_800_000_000_000);

/// What the generator of jitter would give after `number`, had `number` come from it.
fn continued(number: u64) -> u64 {
    let unshift = |z: u64, bits: u32| (0..64 / bits).fold(z, |found, _| z ^ (found >> bits));
    let z = unshift(number, 31).wrapping_mul(0x3196_42B2_D24D_8EC3);
    let z = unshift(z, 27).wrapping_mul(0x96DE_1B17_3F11_9089);
    let state = unshift(z, 30).wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[test]
fn an_id_does_not_reveal_the_next() {
    let mut rng = Rng::new(Seed::from(7));
    let first = rng.jitter();
    assert_eq!(continued(first), rng.jitter(), "jitter is no secret: this is how it would be guessed");
    let id = rng.attempt_id().0;
    assert_ne!(continued((id >> 64) as u64), id as u64);
}

#[test]
fn a_seed_gives_the_same_ids_again_and_another_none_of_them() {
    let draw = |seed: Seed| -> Vec<u128> {
        let mut rng = Rng::new(seed);
        (0..200).flat_map(|_| [rng.job_id(AT).0, rng.attempt_id().0]).collect()
    };
    let seed = Seed::from(7);
    assert_eq!(draw(seed), draw(seed));
    let mut high = [0; 32];
    (high[0], high[31]) = (7, 1);
    let seeds = [seed, Seed::from(8), seed.stream(1), seed.stream(1 << 40), Seed::new(high)];
    let ids: Vec<u128> = seeds.into_iter().flat_map(draw).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
}

#[test]
fn job_ids_grow_also_when_the_clock_is_set_back() {
    let mut rng = Rng::new(Seed::from(7));
    let mut times = [AT, AT, Wall(AT.0 - 60_000), AT].into_iter().chain((0..5_000).map(|_| AT));
    let first = rng.job_id(times.next().unwrap());
    times.fold(first, |before, at| {
        let id = rng.job_id(at);
        assert!(id > before);
        id
    });
}

#[test]
fn a_seed_shows_nothing_of_its_secret() {
    let shown = format!("{:?}", Seed::new([0xAB; 32]).stream(3));
    assert_eq!(shown, "Seed { stream: 3, .. }");
}
