//! Workflow runs: nodes, dependencies, chains and groups.

use super::args::{Args, Parsed, name, number, span};
use super::{Job, Step, job};
use crate::job::IdempotencyKey;
use crate::{Chain, FailurePolicy, Member, Name, RunSpec};

/// `a`, `a@kind`, `a+5s` (not before), `a<b,c` (after these nodes). Other options hold for every node.
pub(super) fn submit(args: &mut Args<'_>) -> Parsed<Step> {
    let (run, nodes) = (args.text("run")?, args.rest());
    let shape = Shape {
        chains: args.option("chain").unwrap_or_default(),
        odd: args.option("odd").and_then(|odd| odd.split_once(':')),
        groups: args.option("group").unwrap_or_default(),
    };
    let digest = args.number("digest")?.unwrap_or(1) as u8;
    let failure = |word: &str| FailurePolicy::parse(word).ok_or_else(|| format!("{word:?} is not a policy"));
    let (key, failure) = (args.name("key")?, args.read("failure", failure)?);
    let job = job::read(args)?;
    let spec = RunSpec {
        tenant: job.spec.tenant.clone(),
        name: None,
        lane: name("main")?,
        failure: failure.unwrap_or(FailurePolicy::Stop),
        client: None,
        idempotency: key.map(|key| IdempotencyKey { key, digest: [digest; 32] }),
        tags: Vec::new(),
    };
    let members = nodes.iter().map(|word| member(word, &job, &shape, args));
    let members = members.collect::<Parsed<_>>()?;
    Ok(Step::SubmitRun { name: run, spec: Box::new(spec), members })
}

/// How nodes belong together: `chain=host:m1,m2;…`, `group=g:a,b;h:g,c`.
struct Shape<'a> {
    chains: &'a str,
    /// One node with a wrong chain: `node:index`, `node:-` (no index) or `node:none` (no chain).
    odd: Option<(&'a str, &'a str)>,
    groups: &'a str,
}

fn member(word: &str, job: &Job, shape: &Shape<'_>, args: &Args<'_>) -> Parsed<Member> {
    let (node, above) = word.split_once('<').unwrap_or((word, ""));
    let (node, after) = node.split_once('+').map_or((node, None), |(node, after)| (node, Some(after)));
    let (node, kind) = node.split_once('@').map_or((node, None), |(node, kind)| (node, Some(kind)));
    let mut spec = job.spec.clone();
    if let Some(after) = after {
        spec.not_before = Some(args.context.now.wall + span(after)?);
    }
    if let Some(kind) = kind {
        spec.kind = name(kind)?;
    }
    Ok(Member {
        node: name(node)?,
        spec,
        payload: Vec::new().into(),
        depends_on: above.split(',').filter(|node| !node.is_empty()).map(name).collect::<Parsed<_>>()?,
        bindings: Vec::new(),
        chain: shape.chain_of(node)?,
        group: shape.groups().any(|(group, _)| group == node),
        within: shape.group_of(node)?,
    })
}

impl<'a> Shape<'a> {
    fn groups(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.groups.split(';').filter_map(|group| group.split_once(':'))
    }

    fn group_of(&self, node: &str) -> Parsed<Option<Name>> {
        let group = self.groups().find(|(_, nodes)| nodes.split(',').any(|other| other == node));
        group.map(|(group, _)| name(group)).transpose()
    }

    fn chain_of(&self, node: &str) -> Parsed<Option<Chain>> {
        let mut chains = self.chains.split(';').filter_map(|chain| chain.split_once(':'));
        let of_node = |(host, middlewares): &(&str, &str)| {
            *host == node || middlewares.split(',').any(|middleware| middleware == node)
        };
        let Some((host, middlewares)) = chains.find(of_node) else { return Ok(None) };
        let right = (0u32..).zip(middlewares.split(',')).find(|(_, middleware)| *middleware == node);
        let index = match self.odd.filter(|(odd, _)| *odd == node) {
            Some((_, "none")) => return Ok(None),
            Some((_, "-")) => None,
            Some((_, index)) => Some(number(index)?),
            None => right.map(|(index, _)| index),
        };
        let middlewares = middlewares.split(',').map(name).collect::<Parsed<_>>()?;
        Ok(Some(Chain { host: name(host)?, middlewares, index }))
    }
}
