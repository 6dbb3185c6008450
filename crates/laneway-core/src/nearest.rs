//! The known name that a mistyped one was probably meant to be.

/// No mistyped name is longer. Beyond this length, a comparison is wasted work.
const LEN_MAX: usize = 64;

/// The one of `known` that is nearest to `text`, if it is near enough to be meant. Of two that are equally near, the first
/// by name.
pub fn nearest<'k>(text: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let len = text.chars().count();
    if len > LEN_MAX {
        return None;
    }
    let allowed = (len / 3).max(1);
    let near = known.into_iter().filter(|known| known.len().abs_diff(text.len()) <= 4 * allowed);
    let best = near.map(|known| (distance(text, known), known)).min()?;
    (best.0 <= allowed).then_some(best.1)
}

/// How many letters must be added, removed, replaced or swapped with their neighbour to get from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if i == 0 || j == 0 {
                table[i][j] = i + j;
                continue;
            }
            let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(table[i - 2][j - 2] + 1);
            }
            table[i][j] = least;
        }
    }
    table[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn distance_counts_edits_and_swaps() {
        for (a, b, expected) in [
            ("", "", 0),
            ("a", "", 1),
            ("", "abc", 3),
            ("lease", "lease", 0),
            ("runing_max", "running_max", 1),
            ("runnign_max", "running_max", 1),
            ("paused", "pause", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} -> {b}");
        }
    }

    #[test]
    fn far_names_get_no_suggestion() {
        assert_eq!(nearest("colour", ["lease", "timeout"]), None);
        assert_eq!(nearest("time_out", ["lease", "timeout"]), Some("timeout"));
        assert_eq!(nearest("ehco", ["sleep", "echo", "fail"]), Some("echo"));
        assert_eq!(nearest(&"x".repeat(65), ["x"]), None);
    }
}
