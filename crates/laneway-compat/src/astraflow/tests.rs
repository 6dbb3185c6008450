//! Streams without sockets: ids that are read back, silence, and what a stream skips.

use super::stream::Seen;

#[test]
fn ids_say_where_to_go_on() {
    let seen = |text: &str| Seen::parse(text).map(|seen| format!("{seen:?}"));
    let at = |after: u64, frames: usize| Some(format!("Seen {{ after: {after}, frames: {frames} }}"));
    assert_eq!(seen("41"), at(41, 0));
    assert_eq!(seen("41.2"), at(40, 2), "two frames of event 41");
    assert_eq!(seen("41~7"), at(41, 0), "what passes is not told again");
    for odd in ["", "x", "-1", "0.1", "4.x", "~"] {
        assert_eq!(seen(odd), None, "{odd:?}");
    }
}
