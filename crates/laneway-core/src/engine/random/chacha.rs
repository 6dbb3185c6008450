//! The block function of ChaCha: without the key, its output cannot be distinguished from chance, nor continued.
//!
//! Sixteen blocks at a time, side by side, in loops that the compiler turns into vector instructions: that makes an id cost
//! a third. This is not a cipher for data: nothing here is encrypted.

/// Blocks that are made at a time. With fewer the loops are unrolled into single words.
pub(in crate::engine) const LANES: usize = 16;
/// Words of one block.
pub(in crate::engine) const NAMES: usize = 16;
/// Words of all blocks that are made at a time.
pub(in crate::engine) const ALL_WORDS: usize = NAMES * LANES;

/// "expand 32-byte k", the constant of keys of 256 bits.
const CONSTANT: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The same word of every block.
pub(in crate::engine) type Row = [u32; LANES];

/// Makes the blocks from `counter` on: the first word of each, then the second of each, …. `rounds` is even: 8, 12 or 20.
pub(in crate::engine) fn make_blocks(
    rounds: usize,
    key: &[u32; 8],
    stream: u64,
    counter: u64,
    state: &mut [Row; NAMES],
) {
    let input = input(key, stream, counter);
    *state = input;
    for _ in 0..rounds / 2 {
        for column in 0..4 {
            quarter(state, [column, column + 4, column + 8, column + 12]);
        }
        for diagonal in 0..4 {
            let next = |step: usize| (diagonal + step) % 4;
            quarter(state, [diagonal, 4 + next(1), 8 + next(2), 12 + next(3)]);
        }
    }
    for (word, input) in state.as_flattened_mut().iter_mut().zip(input.as_flattened()) {
        *word = word.wrapping_add(*input);
    }
}

/// What the blocks start from: constant, key, number of the block, stream.
fn input(key: &[u32; 8], stream: u64, counter: u64) -> [Row; NAMES] {
    let mut input = [[0; LANES]; NAMES];
    for (row, word) in input.iter_mut().zip(CONSTANT.iter().chain(key)) {
        *row = [*word; LANES];
    }
    let number = |lane: usize| counter.wrapping_add(lane as u64);
    input[12] = std::array::from_fn(|lane| number(lane) as u32);
    input[13] = std::array::from_fn(|lane| (number(lane) >> 32) as u32);
    input[14] = [stream as u32; LANES];
    input[15] = [(stream >> 32) as u32; LANES];
    input
}

fn quarter(state: &mut [Row; NAMES], rows: [usize; 4]) {
    let [a, b, c, d] = state.get_disjoint_mut(rows).expect("a quarter has four different rows");
    for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
        *a = a.wrapping_add(*b);
        *d = (*d ^ *a).rotate_left(16);
        *c = c.wrapping_add(*d);
        *b = (*b ^ *c).rotate_left(12);
        *a = a.wrapping_add(*b);
        *d = (*d ^ *a).rotate_left(8);
        *c = c.wrapping_add(*d);
        *b = (*b ^ *c).rotate_left(7);
    }
}

#[cfg(test)]
mod tests {
    use super::{LANES, NAMES, Row, make_blocks};

    fn blocks(rounds: usize, key: &[u32; 8], stream: u64, counter: u64) -> [Row; NAMES] {
        let mut state = [[0; LANES]; NAMES];
        make_blocks(rounds, key, stream, counter, &mut state);
        state
    }

    /// The bytes of the block `counter`, as they are published.
    fn block(rounds: usize, key: [u32; 8], stream: u64, counter: u64) -> String {
        let rows = blocks(rounds, &key, stream, counter);
        rows.iter().flat_map(|row| row[0].to_le_bytes()).map(|byte| format!("{byte:02x}")).collect()
    }

    /// A key of the bytes 0, 1, 2, ….
    fn counted_key() -> [u32; 8] {
        std::array::from_fn(|word| u32::from_le_bytes(std::array::from_fn(|byte| (word * 4 + byte) as u8)))
    }

    #[test]
    fn blocks_of_the_key_of_zeros_are_the_published_ones() {
        let published = [
            (
                8,
                "3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e984ce172b9216f419f445367456d5619314a42a3da86b001387bfdb80e0cfe42",
            ),
            (
                12,
                "9bf49a6a0755f953811fce125f2683d50429c3bb49e074147e0089a52eae155f0564f879d27ae3c02ce82834acfa8c793a629f2ca0de6919610be82f411326be",
            ),
            (
                20,
                "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
            ),
        ];
        for (rounds, bytes) in published {
            assert_eq!(block(rounds, [0; 8], 0, 0), bytes, "{rounds} rounds");
        }
    }

    #[test]
    fn a_block_with_key_counter_and_stream_is_the_published_one() {
        // RFC 8439, 2.3.2: counter 1 in 32 bits, then the nonce 00000009 0000004a 00000000.
        let (counter, stream) = (0x0900_0000_0000_0001, 0x0000_0000_4a00_0000);
        assert_eq!(
            block(20, counted_key(), stream, counter),
            "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4ed2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
        );
    }

    #[test]
    fn blocks_side_by_side_are_blocks_one_after_another() {
        let key = counted_key();
        // The count of blocks passes from its low word into its high one on the way.
        for counter in [0, 5, u64::from(u32::MAX) - 1] {
            let together = blocks(12, &key, 3, counter);
            for lane in 0..LANES {
                let alone = blocks(12, &key, 3, counter + lane as u64);
                let same = together.iter().zip(&alone).all(|(row, alone)| row[lane] == alone[0]);
                assert!(same, "block {counter} + {lane}");
            }
        }
    }
}
