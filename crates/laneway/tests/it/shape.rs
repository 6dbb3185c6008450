//! Compares the output on a page with the output of a program: equal except for ids, times, durations, ports and spaces.

use std::path::Path;

/// Texts that differ between the page and this machine.
pub struct Names {
    folder: String,
    host: String,
    /// The ids on the page, with their counterparts here.
    ids: Vec<(String, String)>,
}

impl Names {
    /// Names of this machine.
    pub fn new(folder: &Path) -> Names {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Names { folder: folder.display().to_string(), host: host.trim().to_owned(), ids: Vec::new() }
    }

    /// The ids of two lines that are the same but for their ids.
    pub fn learn(&mut self, shown: &str, printed: &str) {
        for (shown, here) in uuids(shown).into_iter().zip(uuids(printed)) {
            self.ids.push((shown[28..].to_owned(), here[28..].to_owned()));
            self.ids.push((shown, here));
        }
        self.ids.extend(short_ids(shown).into_iter().zip(short_ids(printed)));
    }

    /// A text of the page with the ids of this machine, in full or by their last eight digits.
    pub fn fill_in(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // The latest first: a page may show an id again.
        for (shown, here) in self.ids.iter().rev() {
            text = text.replace(shown, here);
        }
        text
    }
}

/// Pairs each shown line with its printed line. `None` when they differ in shape.
pub fn pairs(shown: &[String], printed: &[String], names: &Names) -> Option<Vec<(usize, usize)>> {
    let shown: Vec<String> = shown.iter().map(|line| masked(line, names)).collect();
    let printed: Vec<String> = printed.iter().map(|line| masked(line, names)).collect();
    let mut found = Vec::new();
    match_lines(&shown, &printed, (0, 0), &mut found).then_some(found)
}

fn match_lines(
    shown: &[String],
    printed: &[String],
    at: (usize, usize),
    found: &mut Vec<(usize, usize)>,
) -> bool {
    let (i, j) = at;
    let Some(line) = shown.get(i) else { return j == printed.len() };
    if line == "…" {
        return (j..=printed.len()).any(|rest| {
            let len = found.len();
            let fits = match_lines(shown, printed, (i + 1, rest), found);
            if !fits {
                found.truncate(len);
            }
            fits
        });
    }
    if !printed.get(j).is_some_and(|other| match_text(line, other)) {
        return false;
    }
    found.push((i, j));
    match_lines(shown, printed, (i + 1, j + 1), found)
}

/// True when `printed` is `shown` with any texts for its ellipses.
fn match_text(shown: &str, printed: &str) -> bool {
    let Some((first, rest)) = shown.split_once('…') else { return shown == printed };
    let Some(left) = printed.strip_prefix(first) else { return false };
    let starts = (0..=left.len()).filter(|at| left.is_char_boundary(*at));
    starts.into_iter().any(|at| match_text(rest, &left[at..]))
}

/// A line with placeholders for everything that differs between executions, and single spaces.
fn masked(line: &str, names: &Names) -> String {
    let mut line = line.replace(&names.folder, "~/laneway");
    for uuid in uuids(&line) {
        line = line.replace(&uuid, "ID");
    }
    let tokens: Vec<String> =
        split_tokens(&line).into_iter().map(|token| masked_token(token, names)).collect();
    // A server at another address than the default names it in the commands that it shows.
    let text = tokens.concat().replace("--url http://ADDRESS ", "");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.replace("DURATION ago", "DISTANCE").replace("in DURATION", "DISTANCE");
    // Spaces around an ellipsis are layout.
    text.replace(" …", "…").replace("… ", "…")
}

/// The tokens of a line and the separators between them, in order.
fn split_tokens(line: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, ':' | '.' | '-' | '+' | '_');
    let mut tokens = Vec::new();
    let mut start = 0;
    let mut was_part = None;
    for (at, c) in line.char_indices() {
        if was_part.is_some_and(|was| was != is_part(c)) {
            tokens.push(&line[start..at]);
            start = at;
        }
        was_part = Some(is_part(c));
    }
    tokens.push(&line[start..]);
    tokens
}

fn masked_token(token: &str, names: &Names) -> String {
    // The id of an artifact: that of its job, and a number.
    if let Some((job, number)) = token.split_once('.').filter(|(job, _)| is_short_id(job)) {
        let mask = if number.bytes().all(|b| b.is_ascii_digit()) { "SHORT." } else { job };
        return format!("{mask}{number}");
    }
    // A period at the end of a sentence, a colon at the end of a heading.
    let bare = token.trim_end_matches(['.', ':']);
    let rest = &token[bare.len()..];
    let mask = match bare {
        _ if !names.host.is_empty() && bare == names.host => "vm",
        _ if is_time(bare) => "TIME",
        _ if is_clock(bare) => "CLOCK",
        _ if is_address(bare) => "ADDRESS",
        _ if is_duration(bare) => "DURATION",
        _ if is_short_id(bare) => "SHORT",
        _ => bare,
    };
    format!("{mask}{rest}")
}

/// `2027-03-28T01:00:00.000Z`
fn is_time(token: &str) -> bool {
    token.len() >= 20 && token.as_bytes()[10] == b'T' && token[..4].bytes().all(|b| b.is_ascii_digit())
}

/// `21:04:56.665`
fn is_clock(token: &str) -> bool {
    let parts: Vec<&str> = token.split(':').collect();
    parts.len() == 3
        && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

/// `127.0.0.1:7717`
fn is_address(token: &str) -> bool {
    token.strip_prefix("127.0.0.1:").is_some_and(|port| port.parse::<u16>().is_ok())
}

/// `2ms`, `3.5s`, `1m05s`, `132d01h`
fn is_duration(token: &str) -> bool {
    let number = token.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &token[number.len()..];
    let digits = number.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'm' | 'h' | 'd'));
    number.starts_with(|c: char| c.is_ascii_digit()) && digits && matches!(unit, "ms" | "s" | "m" | "h")
}

/// `a68ca0cb`
fn is_short_id(token: &str) -> bool {
    token.len() == 8 && token.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The short ids of a text, in order.
fn short_ids(text: &str) -> Vec<String> {
    split_tokens(text).into_iter().filter(|token| is_short_id(token)).map(str::to_owned).collect()
}

/// The hyphenated UUIDs of a text, in order.
fn uuids(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(part) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let uuid = part.get(..36).filter(|part| {
            part.bytes().enumerate().all(|(index, byte)| match index {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
        });
        match uuid {
            Some(uuid) => {
                found.push(uuid.to_owned());
                at += 36;
            }
            None => at += part.chars().next().map_or(1, char::len_utf8),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "01a1e107-0745-7000-8d3c-4aea73d31572";
    const HERE: &str = "01b00000-0745-7000-8d3c-4aea00000001";

    fn fits(shown: &str, printed: &str) -> bool {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let names = Names { folder: "/tmp/x".to_owned(), host: "here".to_owned(), ids: Vec::new() };
        pairs(&lines(shown), &lines(printed), &names).is_some()
    }

    #[test]
    fn what_differs_from_run_to_run_is_the_same_shape() {
        assert!(fits(
            &format!("{SHOWN}  succeeded  echo  after 2ms"),
            &format!("{HERE} succeeded  echo  after 1m05s")
        ));
        assert!(fits(
            "a68ca0cb  21:04:56.665  2.4s ago  in 3m",
            "00000001  01:04:56.001  12s ago  in 132d01h"
        ));
        assert!(fits(
            "api http://127.0.0.1:7717/v1 ~/laneway/d vm",
            "api  http://127.0.0.1:4/v1  /tmp/x/d  here"
        ));
        assert!(!fits("succeeded", "failed"));
        assert!(!fits("attempts 3", "attempts 2"));
        assert!(!fits("a\nb", "a"));
    }

    #[test]
    fn ellipses_stand_for_anything() {
        assert!(fits("…\nlast", "first\nsecond\nlast"));
        assert!(fits("{\"id\":\"a\", … \"z\":1}", "{\"id\":\"a\", \"b\":2, \"z\":1}"));
        assert!(fits("{\"id\":\"a\", … \"z\":1}", "{\"id\":\"a\",\"b\":2,\"z\":1}"));
        assert!(!fits("…\nlast", "first\nsecond"));
    }

    #[test]
    fn ids_of_the_page_become_ids_of_the_run() {
        let mut names = Names { folder: "/tmp/x".to_owned(), host: String::new(), ids: Vec::new() };
        names.learn(&format!("submitted {SHOWN}"), &format!("submitted {HERE}"));
        assert_eq!(names.fill_in("jobs show 73d31572"), "jobs show 00000001");
        assert_eq!(names.fill_in(&format!("get {SHOWN}.2")), format!("get {HERE}.2"));
    }
}
