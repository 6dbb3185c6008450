//! What a scenario knows of runs: their names, and what a store would keep of them.

use crate::command::WorkflowCommand;
use std::collections::BTreeMap;

use super::story::{Story, text};
use crate::effect::Offer;
use crate::job::IdempotencyKey;
use crate::{
    Bytes, CallRow, Chain, Change, Command, EndedMember, FailurePolicy, JobEnd, JobId, Member, Name, Origin,
    PriorRun, Recovery, RunId, RunRow, RunSpec, RunSubmission,
};

/// Runs by the names that the scenario gave them, and their rows.
#[derive(Default)]
pub(super) struct Members {
    names: BTreeMap<RunId, String>,
    rows: BTreeMap<u64, RunRow>,
    ended: BTreeMap<u64, EndedMember>,
    keys: BTreeMap<Name, PriorRun>,
    /// The latest call of each node.
    pub(super) calls: BTreeMap<u64, CallRow>,
    /// The numbers of the attempts that were offered, by run, in order.
    numbers: BTreeMap<String, Vec<u64>>,
    /// What ended jobs gave back.
    results: BTreeMap<u64, Option<Bytes>>,
    /// The name of the run that is being submitted.
    pub(super) naming: String,
}

impl Members {
    pub(super) fn named(&mut self, name: &str, run: RunId) {
        self.names.insert(run, name.to_owned());
    }

    pub(super) fn name_of(&self, run: RunId) -> String {
        self.names.get(&run).cloned().unwrap_or_else(|| self.naming.clone())
    }

    pub(super) fn offered(&mut self, job: &str, offer: &Offer) {
        match job.split_once('/') {
            Some((run, _)) if self.names.values().any(|name| name == run) => {
                let numbers = self.numbers.entry(run.to_owned()).or_default();
                if offer.to.as_ref().is_some_and(|to| to.again) {
                    return assert!(numbers.contains(&offer.dispatch_seq), "it was offered before");
                }
                assert_eq!(
                    offer.dispatch_seq,
                    numbers.len() as u64 + 1,
                    "attempts of a run are numbered 1, 2, 3, …"
                );
                numbers.push(offer.dispatch_seq);
            }
            _ => assert_eq!(offer.dispatch_seq, u64::from(offer.fence.attempt)),
        }
    }

    pub(super) fn ended(&mut self, job: JobId, end: &JobEnd) {
        self.results.insert(end.seq.0, end.result.clone());
        self.ended.insert(end.seq.0, EndedMember::of(job, end));
    }

    pub(super) fn keep(&mut self, change: &Change) {
        match change {
            Change::RunCreated(row) => {
                if let Some(key) = &row.spec.idempotency {
                    self.keys.insert(key.key.clone(), PriorRun { run: row.id, digest: key.digest });
                }
                self.rows.insert(row.first.0, (**row).clone());
            }
            Change::RunMoved { first, state, finished_at } => {
                let row = self.rows.get_mut(&first.0).expect("a stored run moved");
                assert!(!row.state.is_terminal() && row.state != *state, "a run's state changed");
                (row.state, row.finished_at) = (*state, *finished_at);
            }
            Change::CallPut(row) => drop(self.calls.insert(row.target.0, (**row).clone())),
            _ => {}
        }
    }

    pub(super) fn restart(&self, recovery: &mut Recovery) {
        for row in self.rows.values().filter(|row| !row.state.is_terminal()) {
            let ended: Vec<EndedMember> = self.ended.range(row.seqs()).map(|(_, member)| *member).collect();
            recovery.run(row.clone(), &ended);
        }
    }

    /// True once every run has ended.
    pub(super) fn all_ended(&self) -> bool {
        self.rows.values().all(|row| row.state.is_terminal())
    }

    pub(super) fn show(&self, name: &str) -> String {
        let row = self.rows.values().find(|row| self.name_of(row.id) == name).expect("a run of that name");
        let attempts = self.numbers.get(name).map_or(0, Vec::len);
        let results = row.seqs().zip(&row.nodes).filter_map(|(seq, node)| {
            let result = self.results.get(&seq)?.as_ref()?;
            Some(format!(", {node}={}", String::from_utf8_lossy(result)))
        });
        let results: String = results.collect();
        format!("{name} is {}, {attempts} attempts{results}", row.state)
    }
}

impl Story {
    /// `submitrun r a b@kind+5s c<a,b failure=continue key=x digest=1 chain=host:m1,m2 …`; other options hold for every
    /// node.
    /// `cancelrun r`.
    pub(super) fn run_command(
        &mut self,
        verb: &str,
        rest: &[&str],
        options: &BTreeMap<&str, &str>,
    ) -> Command {
        let name = rest[0];
        let tenant = text(options.get("tenant").copied().unwrap_or("default"));
        if verb == "cancelrun" {
            let run = self.members.names.iter().find(|(_, known)| *known == name).expect("a known run");
            let tenant = options.get("tenant").map(|tenant| text(tenant));
            return Command::Workflow(WorkflowCommand::Cancel {
                tenant,
                run: *run.0,
                origin: Origin::server("test"),
            });
        }
        self.members.naming = name.to_owned();
        let nodes = rest[1..].iter().filter(|word| !word.contains('='));
        let members = nodes.map(|word| {
            let (node, above) = word.split_once('<').unwrap_or((word, ""));
            let (node, after) = node.split_once('+').unwrap_or((node, ""));
            let (node, kind) = node.split_once('@').unwrap_or((node, ""));
            let mut options = options.clone();
            if !after.is_empty() {
                options.insert("after", after);
            }
            options.remove("key");
            if !kind.is_empty() {
                options.insert("kind", kind);
            }
            let submission = self.one(node, &options);
            Member {
                node: text(node),
                spec: submission.spec,
                payload: submission.payload,
                depends_on: above.split(',').filter(|name| !name.is_empty()).map(text).collect(),
                bindings: Vec::new(),
                chain: chain_of(node, options.get("chain").copied(), options.get("odd").copied()),
                group: groups(&options).any(|(group, _)| group == node),
                within: groups(&options)
                    .find(|(_, nodes)| nodes.split(',').any(|other| other == node))
                    .map(|(group, _)| text(group)),
            }
        });
        let members = members.collect();
        let idempotency = options.get("key").map(|key| {
            let digest = options.get("digest").map_or(1, |digest| digest.parse().expect("a number"));
            IdempotencyKey { key: text(key), digest: [digest; 32] }
        });
        let prior = idempotency.as_ref().and_then(|key| self.members.keys.get(&key.key).copied());
        let failure = options.get("failure").copied().unwrap_or("stop");
        let spec = RunSpec {
            tenant,
            name: None,
            lane: text("main"),
            failure: FailurePolicy::parse(failure).expect("a policy"),
            client: None,
            idempotency,
            tags: Vec::new(),
        };
        Command::Workflow(WorkflowCommand::Submit(Box::new(RunSubmission {
            spec,
            members,
            definition: None,
            origin: Origin::server("test"),
            prior,
            strict_lanes: false,
        })))
    }
}

/// The place of a node in `host:m1,m2;…`. `odd` is `node:index`, `node:-` (no index) or `node:none` (no chain), to be wrong.
fn chain_of(node: &str, chain: Option<&str>, odd: Option<&str>) -> Option<Chain> {
    chain?.split(';').find_map(|chain| place_in(chain, node, odd))
}

fn place_in(chain: &str, node: &str, odd: Option<&str>) -> Option<Chain> {
    let (host, middlewares) = chain.split_once(':').expect("host:middlewares");
    let middlewares: Vec<Name> = middlewares.split(',').map(text).collect();
    let index = (0u32..).zip(&middlewares).find(|(_, name)| name.as_str() == node).map(|(index, _)| index);
    if node != host && index.is_none() {
        return None;
    }
    let odd = odd.and_then(|odd| odd.split_once(':')).filter(|(name, _)| *name == node);
    let index = match odd {
        Some((_, "none")) => return None,
        Some((_, "-")) => None,
        Some((_, index)) => Some(super::story::number(index)),
        None => index,
    };
    Some(Chain { host: text(host), middlewares, index })
}

/// Groups and the nodes in them: `group=g:a,b;h:g,c`.
fn groups<'a>(options: &BTreeMap<&str, &'a str>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let groups = options.get("group").copied().unwrap_or_default();
    groups.split(';').filter_map(|group| group.split_once(':'))
}
