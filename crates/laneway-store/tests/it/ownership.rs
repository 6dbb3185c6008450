//! Who owns a domain: nodes that come, go, stop to renew and come back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_store::postgres::{ClusterNode, NodeSettings, Tenure, View};
use laneway_store::suite::Fixture;
use laneway_store::suite::driver::{Driver, load};
use laneway_store::{PostgresStore, Store, StoreError};

use super::postgres_server::TestDatabase;

const TTL: Duration = Duration::from_millis(1_200);
const PATIENCE: Duration = Duration::from_secs(30);

struct Cluster(TestDatabase);

impl Cluster {
    fn new() -> Option<Cluster> {
        TestDatabase::new().map(Cluster)
    }

    fn join(&self, name: &str) -> ClusterNode {
        let node = self.join_unwilling(name);
        node.set_willing(true);
        node
    }

    fn join_unwilling(&self, name: &str) -> ClusterNode {
        let settings = NodeSettings {
            name: name.to_owned(),
            url: format!("http://{name}:1"),
            address: format!("{name}:2"),
            certificate: None,
            version: "1",
            ttl: TTL,
        };
        ClusterNode::join(&self.0.url(), settings).unwrap()
    }

    fn number(&self, sql: &str) -> u64 {
        self.0.psql(sql).parse().unwrap()
    }
}

/// Waits until a node knows this.
fn wait_for(node: &ClusterNode, what: &str, known: impl FnMut(&View) -> bool) -> View {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut watch = node.watch();
    let waited = runtime.block_on(async { tokio::time::timeout(PATIENCE, watch.wait_for(known)).await });
    match waited {
        Ok(view) => view.unwrap().clone(),
        Err(_) => panic!("{what}: {:?}", *node.watch().borrow()),
    }
}

fn owned(node: &ClusterNode) -> Arc<Tenure> {
    wait_for(node, "it owns the domain", |view| view.tenure.is_some()).tenure.unwrap()
}

/// A fixture of one store that was opened by a node.
struct Opened(std::cell::RefCell<Option<PostgresStore>>);

impl Fixture for Opened {
    fn open(&self) -> Box<dyn Store> {
        Box::new(self.0.borrow_mut().take().expect("it is opened once"))
    }
}

fn driver_of(node: &ClusterNode, tenure: &Arc<Tenure>) -> Driver {
    let store = PostgresStore::of_node(node, tenure).unwrap();
    Driver::new(&Opened(std::cell::RefCell::new(Some(store))))
}

#[test]
fn one_node_owns_the_domain_and_the_others_know_it() {
    let Some(cluster) = Cluster::new() else { return };
    let first = cluster.join("first");
    let tenure = owned(&first);
    let second = cluster.join("second");
    let view = wait_for(&second, "it sees the owner", |view| view.owner.is_some());
    let owner = view.owner.unwrap();
    assert_eq!((owner.id, owner.epoch), (first.id(), tenure.epoch()));
    assert_eq!((owner.url.as_str(), owner.address.as_str()), ("http://first:1", "first:2"));
    assert!(view.tenure.is_none());
    assert_eq!(first.secret(), second.secret(), "the first node made the secret of the cluster");
    let mut driver = driver_of(&first, &tenure);
    driver.submit_plain();
    driver.commit();
    // A whole time to live later, it is still the same owner: it renews.
    cluster.0.psql(&format!("SELECT pg_sleep({})", TTL.as_secs_f64() * 1.2));
    assert_eq!(owned(&first).epoch(), tenure.epoch());
    let nodes = first.nodes().unwrap();
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["first", "second"]);
}

#[test]
fn a_domain_that_was_given_back_is_taken_over_within_a_second() {
    let Some(cluster) = Cluster::new() else { return };
    let first = cluster.join("first");
    let tenure = owned(&first);
    let mut driver = driver_of(&first, &tenure);
    driver.submit_plain();
    driver.commit();
    let second = cluster.join("second");
    wait_for(&second, "it sees the owner", |view| view.owner.is_some());
    first.set_willing(false);
    let begun = Instant::now();
    assert!(driver.store.close().unwrap());
    let next = owned(&second);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(next.epoch() > tenure.epoch());
    assert_eq!(load(&mut PostgresStore::of_node(&second, &next).unwrap()).jobs.len(), 1);
    assert!(tenure.left().is_zero());
}

#[test]
fn the_domain_of_a_node_that_died_is_taken_over_when_it_has_expired_and_not_before() {
    let Some(cluster) = Cluster::new() else { return };
    let first = cluster.join("first");
    let tenure = owned(&first);
    let second = cluster.join("second");
    wait_for(&second, "it sees the owner", |view| view.owner.is_some());
    drop(first);
    let next = owned(&second);
    assert!(tenure.left().is_zero(), "the first one had stopped before: {tenure:?}");
    assert!(next.epoch() > tenure.epoch());
}

/// The node is cut off in a way that it cannot notice: its renewals are not answered.
#[test]
fn an_owner_whose_renewals_are_not_answered_stops_by_its_own_clock() {
    let Some(cluster) = Cluster::new() else { return };
    let first = cluster.join("first");
    let tenure = owned(&first);
    let mut driver = driver_of(&first, &tenure);
    driver.submit_plain();
    driver.commit();
    let epoch = "SELECT epoch FROM laneway.domain";
    let before = cluster.number(epoch);
    // Renewals wait for this lock; commits do not.
    let held = format!(
        "BEGIN; LOCK TABLE laneway.tenure IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({}); COMMIT",
        TTL.as_secs_f64() * 1.5
    );
    cluster.0.psql(&held);
    driver.submit_plain();
    let error = driver.try_commit().unwrap_err();
    assert!(matches!(error, StoreError::Lapsed(_)), "{error:?}");
    // No other node had taken it over: only its clock stopped it.
    assert!(cluster.number(epoch) <= before + 1, "the same node may have come back");
}

/// What the old owner writes while another one takes over is either seen by the new one, or not written.
#[test]
fn a_take_over_waits_for_a_transaction_of_the_owner_before() {
    let Some(cluster) = Cluster::new() else { return };
    let first = cluster.join("first");
    let tenure = owned(&first);
    let mut driver = driver_of(&first, &tenure);
    driver.submit_plain();
    driver.commit();
    cluster.0.psql(
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.7); RETURN NULL; END'; \
         CREATE TRIGGER slowly AFTER INSERT ON laneway.job FOR EACH STATEMENT EXECUTE FUNCTION slowly()",
    );
    driver.submit_plain();
    let (committed, seen) = std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            // In the middle of the transaction.
            let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
            while cluster.number(busy) == 0 {}
            load(&mut PostgresStore::open(&cluster.0.url()).unwrap()).jobs.len()
        });
        let committed = driver.try_commit();
        (committed, taking.join().unwrap())
    });
    let stored = cluster.number("SELECT count(*) FROM laneway.job") as usize;
    assert_eq!(seen, stored, "the new owner sees all that was written: {committed:?}");
    driver.submit_plain();
    let error = driver.try_commit().unwrap_err();
    assert!(matches!(error, StoreError::Fenced { .. } | StoreError::Lapsed(_)), "{error:?}");
}

/// A renewal is for one take-over: an owner that was replaced does not make the tenure of its successor longer.
#[test]
fn a_node_that_was_replaced_renews_nothing_and_steps_down() {
    let Some(cluster) = Cluster::new() else { return };
    let first = cluster.join("first");
    let tenure = owned(&first);
    let mut driver = driver_of(&first, &tenure);
    // Another server takes the domain over, and ends without a word.
    cluster.0.psql(
        "UPDATE laneway.tenure SET epoch = epoch + 1, nonce = 'other', node = NULL, expires_at = now() + interval '1 minute'; \
         UPDATE laneway.domain SET epoch = epoch + 1, nonce = 'other'",
    );
    first.hurry();
    wait_for(&first, "it steps down", |view| view.tenure.is_none());
    assert!(tenure.left().is_zero());
    driver.submit_plain();
    assert!(matches!(driver.try_commit(), Err(StoreError::Lapsed(_))));
    let left = "SELECT extract(epoch FROM expires_at - now())::int FROM laneway.tenure";
    assert!(cluster.number(left) > 30, "the tenure of the other one is as it was");
}

#[test]
fn an_unwilling_node_takes_nothing_over_until_it_is_willing() {
    let Some(cluster) = Cluster::new() else { return };
    let node = cluster.join_unwilling("first");
    wait_for(&node, "it is connected", |view| view.connected);
    assert!(node.watch().borrow().tenure.is_none());
    assert!(!node.has_tokens().unwrap());
    node.set_willing(true);
    let tenure = owned(&node);
    node.set_willing(false);
    node.give_up(&tenure).unwrap();
    wait_for(&node, "it is no owner", |view| view.tenure.is_none() && view.owner.is_none());
}

/// Idle nodes make few statements.
#[test]
fn nodes_without_work_make_few_statements() {
    let Some(cluster) = Cluster::new() else { return };
    let settings = |ttl: u64| NodeSettings {
        name: "n".into(),
        url: String::new(),
        address: String::new(),
        certificate: None,
        version: "1",
        ttl: Duration::from_secs(ttl),
    };
    let first = ClusterNode::join(&cluster.0.url(), settings(6)).unwrap();
    first.set_willing(true);
    let _tenure = owned(&first);
    let second = ClusterNode::join(&cluster.0.url(), settings(6)).unwrap();
    second.set_willing(true);
    wait_for(&second, "it sees the owner", |view| view.owner.is_some());
    let count = "SELECT pg_stat_clear_snapshot(); SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let transactions = || cluster.0.psql(count).lines().last().unwrap().parse::<i64>().unwrap();
    // The counters of PostgreSQL are late by up to a second.
    cluster.0.psql("SELECT pg_sleep(2)");
    let before = transactions();
    cluster.0.psql("SELECT pg_sleep(5)");
    let made = transactions() - before;
    // Two nodes, five seconds, and what this test itself asked for.
    assert!(made <= 2 * 2 * 5, "{made} transactions in 5 s");
}
