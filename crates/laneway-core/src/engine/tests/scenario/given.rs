//! `given` lines: set-up whose effects are not shown. It is a list of commands or of the named set-ups below.
//!
//! | example | meaning |
//! |---|---|
//! | `given push workers w1 w2 slots=2` | Workers of the kind `w` over the connections c1, c2. Options of `worker`. |
//! | `given tasks a1 a2 on c1` | Jobs of the kind `w` that run on a worker. Options of `submit`. |
//! | `given leased executor` | An executor `far` for the kind `w` with nine slots. |
//! | `given chain r of m1 m2 around h` | A run with a middleware chain; the outermost middleware runs. Options of `submitrun`. |
//! | `given call r of m1 around h` | The same; the outermost middleware called the next element, as `q1`. |
//! | `given firing s every=10s` | A schedule whose first slot fired. Options of `schedule`. |

use super::Scenario;
use crate::Reply;

/// Plays the commands of a `given` line. Each must be carried out.
pub(super) fn play(scenario: &mut Scenario, line: &str) {
    for set_up in line.trim_start_matches("given ").split('|').map(str::trim) {
        for command in expand(set_up) {
            scenario.play(&command);
            let reply = &scenario.reply;
            let failed = matches!(
                reply,
                Reply::Rejected(_)
                    | Reply::NotFound
                    | Reply::Stale
                    | Reply::Denied(_)
                    | Reply::NextAnswered(_)
            );
            assert!(!failed, "line {}: set-up `{command}` was not carried out: {reply:?}", scenario.line);
        }
    }
}

/// The commands of a named set-up; other text is a command.
pub(super) fn expand(set_up: &str) -> Vec<String> {
    let (options, words): (Vec<&str>, Vec<&str>) = set_up.split(' ').partition(|word| word.contains('='));
    let options: String = options.iter().map(|option| format!(" {option}")).collect();
    match words.as_slice() {
        ["push", "worker" | "workers", workers @ ..] => {
            let kinds = if options.contains(" kinds=") { "" } else { " kinds=w" };
            let worker =
                |(number, worker): (usize, &&str)| format!("worker {worker} c{}{kinds}{options}", number + 1);
            workers.iter().enumerate().map(worker).collect()
        }
        ["tasks", jobs @ .., "on", connection] => {
            let kind = if options.contains(" kind=") { "" } else { " kind=w" };
            let submits = jobs.iter().map(|job| format!("submit {job}{kind}{options}"));
            submits.chain(jobs.iter().map(|job| format!("accept {connection} {job}"))).collect()
        }
        ["leased", "executor"] => vec!["executor far leased kinds=w slots=9".to_owned()],
        ["chain", run, "of", middlewares @ .., "around", host] => {
            vec![chain(run, middlewares, host, &options)]
        }
        ["call", run, "of", middlewares @ .., "around", host] => {
            vec![chain(run, middlewares, host, &options), format!("next {run}/{} q1", name(middlewares[0]))]
        }
        ["firing", schedule @ ..] => {
            let every = options.split(' ').find_map(|option| option.strip_prefix("every="));
            let wait = format!("wait {}", every.unwrap_or_else(|| panic!("`{set_up}` has no interval")));
            vec![format!("schedule {}{options}", schedule.join(" ")), wait]
        }
        _ => vec![set_up.to_owned()],
    }
}

fn chain(run: &str, middlewares: &[&str], host: &str, options: &str) -> String {
    let names: Vec<&str> = middlewares.iter().map(|node| name(node)).collect();
    let (nodes, chain) = (middlewares.join(" "), names.join(","));
    format!("submitrun {run} {host} {nodes} chain={}:{chain}{options}", name(host))
}

/// The name of a node without its kind and its dependencies.
fn name(node: &str) -> &str {
    node.split(['@', '<']).next().unwrap_or(node)
}
