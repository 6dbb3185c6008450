//! The fleet of the demo: a few browser profiles that are started and closed, and scripts that visit a shop with them.

use std::collections::BTreeSet;
use std::time::Duration;

use laneway_browser::kinds::{BROWSER_START, BROWSER_STOP, SCRIPT_RUN};
use laneway_wire::{BrowserList, Job, JobList, Profile, ProfileRequest, ProfileWindow};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::shop::{GOODS_COUNT, Shop};
use crate::client::Client;

/// How often a script is submitted.
const BEAT: Duration = Duration::from_millis(600);
/// One browser is closed once in this many beats, and started again.
const CLOSE_EVERY: u64 = 14;
/// Once in this many beats a script looks for something that is not there.
const MISTAKE_EVERY: u64 = 9;
/// A browser that is not open after so many beats is started again.
const PATIENCE: u32 = 60;

/// The profiles: their id, agent, language and time zone.
const PROFILES: [(&str, &str, &str, &str); 4] = [
    ("shop-berlin", "scout", "de-DE", "Europe/Berlin"),
    ("shop-hanoi", "scout", "vi-VN", "Asia/Ho_Chi_Minh"),
    ("shop-boston", "buyer", "en-US", "America/New_York"),
    ("shop-paris", "tester", "fr-FR", "Europe/Paris"),
];

/// Starts browsers and gives them work.
pub struct Fleet {
    client: Client,
    shop: Shop,
    browsers: Vec<Browser>,
    random: u64,
    beat: u64,
}

/// A profile and the state of its browser, as far as the demo knows.
struct Browser {
    profile: &'static str,
    agent: &'static str,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    /// For so many beats.
    Starting(u32),
    Open,
    Closing,
}

impl Fleet {
    /// Opens the shop and creates the profiles. The same `seed` gives the same visits.
    pub async fn new(client: Client, seed: u64) -> anyhow::Result<Fleet> {
        let shop = Shop::open().await?;
        let mut browsers = Vec::new();
        for (profile, agent, locale, time_zone) in PROFILES {
            let request = ProfileRequest {
                id: Some(profile.to_owned()),
                window: Some(ProfileWindow { width: 1_280, height: 800 }),
                locale: Some(locale.to_owned()),
                time_zone: Some(time_zone.to_owned()),
                ..ProfileRequest::default()
            };
            let _: Profile = client.send(Method::POST, &["v1", "profiles"], &request).await?;
            browsers.push(Browser { profile, agent, state: State::Closed });
        }
        Ok(Fleet { client, shop, browsers, random: seed | 1, beat: 0 })
    }

    /// Submits jobs, beat after beat, until `end` or forever.
    pub async fn run(&mut self, end: Option<Instant>) -> anyhow::Result<()> {
        let mut beats = tokio::time::interval(BEAT);
        while end.is_none_or(|end| Instant::now() < end) {
            beats.tick().await;
            self.observe().await?;
            self.start_closed().await?;
            self.visit().await?;
            if self.beat % CLOSE_EVERY == CLOSE_EVERY - 1 {
                self.close_one().await?;
            }
            self.beat += 1;
        }
        Ok(())
    }

    /// What the scripts have done, in one line. The server closes the browsers when it stops.
    pub async fn finish(&self) -> anyhow::Result<String> {
        let query =
            [("kind", SCRIPT_RUN.to_owned()), ("state", "succeeded".to_owned()), ("limit", "500".to_owned())];
        let list: JobList<'static> = self.client.get(&["v1", "jobs"], &query).await?;
        let mut screenshots = 0;
        for job in &list.jobs {
            let job: Value = self.client.get(&["v1", "jobs", &job.id], &[]).await?;
            screenshots += job["result"]["artifacts"].as_array().map_or(0, Vec::len);
        }
        Ok(format!("{} visits to the shop, {screenshots} screenshots", list.jobs.len()))
    }

    /// Learns which browsers are open.
    async fn observe(&mut self) -> anyhow::Result<()> {
        let list: BrowserList = self.client.get(&["v1", "browsers"], &[]).await?;
        let open: BTreeSet<&str> = list.browsers.iter().map(|browser| browser.profile.as_str()).collect();
        for browser in &mut self.browsers {
            browser.state = match (open.contains(browser.profile), browser.state) {
                (true, State::Starting(_) | State::Closed) => State::Open,
                (false, State::Open | State::Closing) => State::Closed,
                (false, State::Starting(PATIENCE)) => State::Closed,
                (false, State::Starting(beats)) => State::Starting(beats + 1),
                (_, same) => same,
            };
        }
        Ok(())
    }

    async fn start_closed(&mut self) -> anyhow::Result<()> {
        let client = self.client.clone();
        for browser in self.browsers.iter_mut().filter(|browser| browser.state == State::Closed) {
            submit(&client, BROWSER_START, browser.agent, json!({"profileId": browser.profile})).await?;
            browser.state = State::Starting(0);
        }
        Ok(())
    }

    /// Submits a script for one of the open browsers.
    async fn visit(&mut self) -> anyhow::Result<()> {
        let open: Vec<usize> =
            (0..self.browsers.len()).filter(|at| self.browsers[*at].state == State::Open).collect();
        if open.is_empty() {
            return Ok(());
        }
        let chosen = open[self.below(open.len())];
        let script = self.script();
        let Browser { profile, agent, .. } = self.browsers[chosen];
        submit(&self.client, SCRIPT_RUN, agent, json!({"profileId": profile, "script": script})).await
    }

    /// Closes an open browser. Its scripts that still wait fail.
    async fn close_one(&mut self) -> anyhow::Result<()> {
        let chosen = self.below(self.browsers.len());
        let browser = &mut self.browsers[chosen];
        if browser.state != State::Open {
            return Ok(());
        }
        browser.state = State::Closing;
        let Browser { profile, agent, .. } = *browser;
        submit(&self.client, BROWSER_STOP, agent, json!({"profileId": profile})).await
    }

    fn script(&mut self) -> Value {
        let (number, count) = (self.below(GOODS_COUNT), 1 + self.below(9));
        match self.beat % MISTAKE_EVERY == MISTAKE_EVERY - 1 {
            true => mistake(self.shop.url()),
            false => purchase(self.shop.url(), number, count),
        }
    }

    /// A random number below `limit` (xorshift is good enough here).
    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % limit as u64).unwrap_or(0)
    }
}

/// A visit to the shop: choose something, put it into the cart, and take a picture.
fn purchase(shop: &str, number: usize, count: usize) -> Value {
    json!({"steps": [
        {"kind": "navigate", "url": shop},
        {"kind": "click", "selector": format!("a[href='/goods/{number}']"), "waitNav": true},
        {"kind": "extract", "selector": "#price", "name": "price"},
        {"kind": "fill", "selector": "#count", "value": count.to_string()},
        {"kind": "click", "selector": "#add"},
        {"kind": "wait", "selector": "#cart"},
        {"kind": "extract", "selector": "#cart", "name": "cart"},
        {"kind": "screenshot", "name": "picture"},
    ]})
}

/// A visit that looks for something that is not there: it fails, and is retried once.
fn mistake(shop: &str) -> Value {
    json!({"steps": [
        {"kind": "navigate", "url": shop},
        {"kind": "click", "selector": "#sold-out", "timeoutMs": 1_500},
    ]})
}

async fn submit(client: &Client, kind: &str, agent: &str, payload: Value) -> anyhow::Result<()> {
    let request = json!({"kind": kind, "agent": agent, "payload": payload, "tags": ["demo"]});
    let _: Job<'static> = client.send(Method::POST, &["v1", "jobs"], &request).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use laneway_browser::Script;

    use super::*;

    #[test]
    fn the_scripts_of_the_demo_are_valid() {
        for script in [purchase("http://127.0.0.1:1", 5, 9), mistake("http://127.0.0.1:1")] {
            Script::parse(&script).unwrap_or_else(|bad| panic!("{bad}"));
        }
    }
}
