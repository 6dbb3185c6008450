//! Every button of the dashboard, clicked in real Chromium. The API shows whether it did what it says.

use serde_json::{Value, json};

use super::World;
use super::chromium::Browser;
use super::content::{FLAGS, fill, work};

/// A server with one of everything, and a browser.
struct Desk {
    world: World,
    browser: Browser,
}

impl Desk {
    async fn new() -> Desk {
        Desk { world: World::new(&FLAGS), browser: Browser::start().await }
    }

    async fn open(&mut self, page: &str) {
        self.browser.open(&self.world.at(page), "light", 1280).await;
    }

    async fn api(&self, path: &str) -> Value {
        self.world.call("GET", path, "", Value::Null).await
    }
}

#[tokio::test]
async fn jobs_runs_and_sessions() {
    let mut desk = Desk::new().await;
    let ids = fill(&desk.world).await;
    desk.open(&format!("jobs/{}", ids.failed)).await;
    desk.browser.press("Retry as a new job", "This is the new job").await;
    let new = desk.browser.eval("location.pathname.split('/').pop()").await;
    assert_eq!(desk.api(&format!("/v1/jobs/{}", new.as_str().unwrap())).await["retry_of"], json!(ids.failed));

    desk.open(&format!("jobs/{}", ids.waiting)).await;
    desk.browser.press("Cancel job", "The job is canceled").await;
    assert_eq!(desk.api(&format!("/v1/jobs/{}", ids.waiting)).await["state"], "canceled");
    assert_eq!(desk.browser.questions(), ["Cancel this job? A running attempt must stop."]);

    desk.open(&format!("runs/{}", ids.run)).await;
    desk.browser.press("Cancel run", "The run is canceled").await;
    desk.world.until_at(&format!("/v1/runs/{}", ids.run), |run| run["state"] == "canceled").await;

    desk.open("sessions/chat:1").await;
    desk.browser.press("Stop", "1 running and 0 waiting jobs were stopped").await;
    desk.world.until(&ids.running, "", "canceled").await;
    desk.browser.press("Reset", "running and ").await;
    assert_eq!(desk.api("/v1/sessions/chat:1").await["generation"], 1);
    desk.browser.press("Stop all", "waiting jobs were stopped").await;
    desk.world
        .until_at("/v1/jobs?session=chat:1&state=queued,assigned,running", |list| list["jobs"] == json!([]))
        .await;

    desk.world.call("POST", "/v1/jobs", "", json!({"kind": "echo", "session": "chat:2"})).await;
    desk.open("sessions").await;
    desk.browser.press("Reset all sessions", "sessions were reset").await;
    let questions = desk.browser.questions();
    assert!(questions.last().unwrap().starts_with("Reset every session?"), "{questions:?}");
}

#[tokio::test]
async fn selected_jobs_and_all_that_match() {
    let mut desk = Desk::new().await;
    let ids = fill(&desk.world).await;
    let failed = async |desk: &Desk| desk.api("/v1/jobs/counts?kind=fail").await["total"].clone();
    // The page that the operation of `fill` changed is read once it has ended.
    desk.world.until_at(&format!("/v1/operations/{}", ids.operation), |found| found["state"] == "done").await;
    assert_eq!(failed(&desk).await, 2);
    desk.open("jobs?kind=fail").await;
    desk.browser.click("document.querySelector('[data-all]')", "all rows").await;
    desk.browser.until("document.querySelectorAll('input[name=id]:checked').length === 2", "both rows").await;
    desk.browser.press("Retry", "Retried 2 of 2 jobs").await;
    assert_eq!(failed(&desk).await, 4);

    desk.open("jobs?lane=bulk&state=queued").await;
    desk.browser.click("document.querySelector('input[name=id]')", "the first row").await;
    desk.browser.press("Cancel", "Canceled 1 of 1 jobs").await;
    assert_eq!(desk.api("/v1/jobs/counts?lane=bulk&state=canceled").await["total"], 1);

    // All that match: counted first, then done in the background.
    desk.open("jobs?lane=bulk&state=queued").await;
    desk.browser.press_in("document", "Cancel all matching…").await;
    desk.browser
        .until("document.querySelector('.preview')?.textContent.includes('Nothing has changed')", "the count")
        .await;
    assert_eq!(desk.api("/v1/jobs/counts?lane=bulk&state=queued").await["total"], 2);
    desk.browser.press("Cancel them", "started").await;
    desk.browser
        .until("document.querySelector('main .state.s-done') !== null", "the end of the operation")
        .await;
    assert_eq!(desk.api("/v1/jobs/counts?lane=bulk&state=queued").await["total"], 0);
}

#[tokio::test]
async fn waiting_jobs_get_another_time_and_priority_and_ended_ones_go() {
    let mut desk = Desk::new().await;
    let ids = fill(&desk.world).await;
    let fill_in = |name: &str, text: &str| {
        format!("document.querySelectorAll('input[name={name}]').forEach((input) => input.value = {text:?})")
    };
    // The operation of `fill` retries failed jobs.
    desk.world.until_at(&format!("/v1/operations/{}", ids.operation), |found| found["state"] == "done").await;
    let waiting = format!("/v1/jobs/{}", ids.waiting);
    desk.open(&format!("jobs/{}", ids.waiting)).await;
    desk.browser.eval(&fill_in("priority", "7")).await;
    desk.browser.press("Change priority", "The job is changed").await;
    assert_eq!(desk.api(&waiting).await["priority"], 7);
    desk.browser.eval(&fill_in("start", "2h")).await;
    desk.browser.press("Reschedule", "The job is changed").await;
    desk.world.until_at(&waiting, |job| job["state"] == "scheduled").await;

    desk.open(&format!("jobs/{}", ids.failed)).await;
    desk.browser.press("Delete job", "The job is deleted").await;
    assert!(desk.browser.questions().last().unwrap().starts_with("Delete this job"));
    let left = desk.api("/v1/jobs?kind=fail").await;
    assert!(left["jobs"].as_array().unwrap().iter().all(|job| job["id"] != ids.failed.as_str()), "{left}");

    // Selected jobs, and all that match.
    desk.open("jobs?lane=bulk&state=queued").await;
    desk.browser.click("document.querySelector('input[name=id]')", "the first row").await;
    desk.browser.eval(&fill_in("start", "3h")).await;
    desk.browser.press("Reschedule", "Rescheduled 1 of 1 jobs").await;
    assert_eq!(desk.api("/v1/jobs/counts?lane=bulk&state=scheduled").await["total"], 1);
    desk.open("jobs?lane=bulk&state=queued").await;
    desk.browser.eval(&fill_in("priority", "4")).await;
    desk.browser.press_in("document", "Change priority of all matching…").await;
    desk.browser
        .until("document.querySelector('.preview')?.textContent.includes('Nothing has changed')", "the count")
        .await;
    desk.browser.press("Change their priority", "started").await;
    desk.browser
        .until("document.querySelector('main .state.s-done') !== null", "the end of the operation")
        .await;
    let queued = desk.api("/v1/jobs?lane=bulk&state=queued").await;
    assert!(queued["jobs"].as_array().unwrap().iter().all(|job| job["priority"] == 4), "{queued}");

    desk.open("jobs?kind=fail&state=failed").await;
    desk.browser.press_in("document", "Delete all matching…").await;
    desk.browser
        .until("document.querySelector('.preview')?.textContent.includes('Nothing has changed')", "the count")
        .await;
    desk.browser.press("Delete them for good", "started").await;
    desk.browser
        .until("document.querySelector('main .state.s-done') !== null", "the end of the operation")
        .await;
    assert_eq!(desk.api("/v1/jobs/counts?kind=fail").await["total"], 0);
}

#[tokio::test]
async fn an_operation_is_canceled_while_it_runs() {
    const JOBS: u64 = 20_000;
    let mut desk = Desk::new().await;
    desk.world.call("POST", "/v1/lanes/bulk/pause", "", Value::Null).await;
    let jobs = vec![json!({"kind": "echo", "lane": "bulk"}); 1_000];
    for _ in 0..JOBS / 1_000 {
        desk.world.call("POST", "/v1/jobs/batch", "", json!({"jobs": jobs})).await;
    }
    desk.open("jobs?lane=bulk").await;
    desk.browser.press_in("document", "Cancel all matching…").await;
    desk.browser.press("Cancel them", "started").await;
    desk.browser.press("Cancel operation", "The operation is canceled").await;
    let question = "Cancel this operation? Jobs that it has changed stay changed.";
    assert_eq!(desk.browser.questions().last().unwrap(), question);
    let id = desk.browser.eval("location.pathname.split('/').pop()").await;
    let path = format!("/v1/operations/{}", id.as_str().unwrap());
    desk.world.until_at(&path, |found| found["state"] != "running").await;
    let operation = desk.api(&path).await;
    let done = operation["done"].as_u64().unwrap();
    assert!(operation["state"] == "canceled" && done < JOBS, "{operation}");
    let left = desk.api("/v1/jobs/counts?lane=bulk").await["states"].clone();
    assert_eq!((&left["canceled"], &left["queued"]), (&json!(done), &json!(JOBS - done)), "{operation}");
    // The page shows the end without being asked, and has nothing left to cancel.
    desk.browser.until("document.querySelector('main .state.s-canceled') !== null", "the end").await;
    let text = desk.browser.eval("document.querySelector('main').textContent").await;
    assert!(!text.as_str().unwrap().contains("Cancel operation"), "{text}");
    desk.browser.screenshot("operation-canceled-light-1280").await;
}

#[tokio::test]
async fn schedules_lanes_and_settings() {
    let mut desk = Desk::new().await;
    let ids = fill(&desk.world).await;
    let schedule = format!("/v1/schedules/{}", ids.schedule);
    for page in ["schedules".to_owned(), format!("schedules/{}", ids.schedule)] {
        desk.open(&page).await;
        let before = desk.api(&schedule).await["firings"].as_u64().unwrap();
        desk.browser.press("Run now", "job").await;
        assert_eq!(desk.api(&schedule).await["firings"], before + 1, "{page}");
        desk.browser.press("Pause", "paused").await;
        assert_eq!(desk.api(&schedule).await["enabled"], false, "{page}");
        desk.browser.press("Resume", "fires again").await;
        assert_eq!(desk.api(&schedule).await["enabled"], true, "{page}");
    }

    for page in ["lanes", "lanes/bulk"] {
        desk.open(page).await;
        desk.browser.press("Pause", "is paused").await;
        let lanes = desk.api("/v1/lanes").await;
        let one = lanes["lanes"].as_array().unwrap().iter().filter(|lane| lane["paused"] == true).count();
        assert_eq!(one, 1, "{page} pauses one lane");
        desk.browser.press("Resume", "is resumed").await;
        let lanes = desk.api("/v1/lanes").await;
        assert!(lanes["lanes"].as_array().unwrap().iter().all(|lane| lane["paused"] == false), "{page}");
    }
    // Limits: what would change comes first.
    desk.open("lanes/bulk").await;
    desk.browser.write("[name=running_max]", "4").await;
    desk.browser.press_in("document", "Show what would change").await;
    let preview = "document.querySelector('.preview')?.textContent";
    desk.browser
        .until(&format!("Boolean({preview}?.includes('Up to 2 waiting jobs may start now'))"), "the preview")
        .await;
    assert_eq!(desk.api("/v1/lanes/bulk").await["running_max"], 2);
    desk.browser.press("Apply", "The new limits are in effect").await;
    assert_eq!(desk.api("/v1/lanes/bulk").await["running_max"], 4);

    // A change of the settings takes effect at once, and an empty value takes it back.
    desk.open("settings").await;
    desk.browser.write("[name=key]", "lanes.bulk.queued_max").await;
    desk.browser.write("[name=value]", "7").await;
    desk.browser.press("Apply", "has its new value").await;
    assert_eq!(desk.api("/v1/lanes/bulk").await["queued_max"], 7);
    desk.browser.write("[name=key]", "lanes.bulk.queued_max").await;
    desk.browser.write("[name=value]", "").await;
    desk.browser.press("Apply", "has its new value").await;
    assert_ne!(desk.api("/v1/lanes/bulk").await["queued_max"], 7);
    desk.browser.press("Read the file again", "The file has no changes").await;
    // A wrong value changes nothing, and the page names the field.
    desk.open("settings").await;
    desk.browser.write("[name=key]", "lanes.bulk.queued_max").await;
    desk.browser.write("[name=value]", "many").await;
    desk.browser.press_in("document", "Apply").await;
    desk.browser
        .until("document.querySelector('main').textContent.includes('queued_max')", "the field")
        .await;
    desk.browser.until("document.title.startsWith('This request cannot be used')", "the reason").await;
}

#[tokio::test]
async fn workers_leases_and_webhooks() {
    let mut desk = Desk::new().await;
    let ids = fill(&desk.world).await;
    let _helper = work(&desk.world, "press-1", "label:zone=eu").await;
    desk.open("workers").await;
    desk.browser.press("Drain", "gets no new tasks").await;
    assert_eq!(desk.api("/v1/workers/press-1").await["drained"], true);
    desk.browser.press("Resume", "gets tasks again").await;
    assert_eq!(desk.api("/v1/workers/press-1").await["drained"], false);

    desk.open("capacity").await;
    desk.browser.press("Revoke", "The lease is revoked").await;
    let job = desk.api(&format!("/v1/jobs/{}", ids.leased)).await;
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("failed"), &json!("revoked")), "{job}");
    let again = desk.browser.eval("document.querySelector('main').textContent.includes('Revoke')").await;
    assert_eq!(again, json!(false), "a lease is revoked once");

    let delivery = format!("/v1/deliveries/{}", ids.hooked);
    desk.world.until_at(&delivery, |found| found["state"] == "delivered").await;
    for (page, tries) in [("webhooks".to_owned(), 2), (format!("webhooks/{}", ids.hooked), 3)] {
        desk.open(&page).await;
        desk.browser.press("Send again", "sent again").await;
        let sent = |found: &Value| {
            found["state"] == "delivered" && found["history"].as_array().is_some_and(|all| all.len() >= tries)
        };
        desk.world.until_at(&delivery, sent).await;
    }
}

#[tokio::test]
async fn browsers_start_and_stop() {
    let mut desk = Desk::new().await;
    desk.world.call("POST", "/v1/profiles", "", json!({"id": "shop", "name": "The shop"})).await;
    desk.open("browsers").await;
    desk.browser.press("Start", "starts").await;
    desk.world.until_at("/v1/browsers", |list| list["browsers"].as_array().unwrap().len() == 1).await;
    // The page notices that the browser is open, and offers to stop it.
    desk.browser.press("Stop", "stops").await;
    desk.world.until_at("/v1/browsers", |list| list["browsers"].as_array().unwrap().is_empty()).await;
    desk.browser
        .until("document.querySelector('main').textContent.includes('closed')", "the closed browser")
        .await;
}

#[tokio::test]
async fn login_and_logout() {
    let world = World::new(&[]);
    let admin = world.token("", "admin", "*").await;
    let mut browser = Browser::start().await;
    browser.open(&world.at("jobs?state=failed"), "light", 1280).await;
    browser.until("document.querySelector('[name=token]') !== null", "the question for a token").await;
    browser.screenshot("login-light-1280").await;
    browser.write("[name=token]", "lw_0000_1111").await;
    browser.press_in("document", "Log in").await;
    browser.until("document.querySelector('[role=alert]') !== null", "the wrong token").await;
    browser.write("[name=token]", &admin).await;
    browser.press_in("document", "Log in").await;
    browser
        .until(
            "location.search === '?state=failed' && document.querySelector('h1').textContent === 'Jobs'",
            "the page that was asked for",
        )
        .await;
    browser.press_in("document", "Log out").await;
    browser.until("document.querySelector('[name=token]') !== null", "the end of the session").await;
    browser.open(&world.at("jobs"), "dark", 390).await;
    browser.until("document.querySelector('[name=token]') !== null", "no session").await;
    browser.screenshot("login-dark-390").await;
}

#[tokio::test]
async fn keys_and_the_theme_switch() {
    let mut desk = Desk::new().await;
    fill(&desk.world).await;
    desk.open("jobs").await;
    let browser = &mut desk.browser;
    let key = |key: &str| {
        format!("document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: {key:?}, bubbles: true}}))")
    };
    browser.eval(&key("/")).await;
    browser.until("document.activeElement.name === 'search'", "the filter").await;
    browser.eval("document.activeElement.blur()").await;
    browser.eval(&key("j")).await;
    browser.eval(&key("j")).await;
    browser.until("document.querySelectorAll('tr.at').length === 1", "the second row").await;
    browser.eval(&key("k")).await;
    browser.eval(&key("x")).await;
    browser.until("document.querySelector('tbody tr.at input').checked", "the selected row").await;
    browser.eval(&key("?")).await;
    browser.until("document.getElementById('keys').open", "the list of keys").await;
    browser.press_in("document.getElementById('keys')", "Close").await;
    browser.until("!document.getElementById('keys').open", "the list is closed").await;
    browser.eval(&key("Enter")).await;
    browser.until("/^.jobs.[0-9a-f-]{36}$/.test(location.pathname.slice(3))", "the job of the row").await;
    browser.eval(&key("g")).await;
    browser.eval(&key("l")).await;
    browser.until("document.querySelector('h1')?.textContent === 'Lanes'", "the lanes").await;
    for theme in ["light", "dark"] {
        browser.click("document.querySelector('[data-theme-switch]')", "the switch").await;
        browser.until(&format!("document.documentElement.dataset.theme === {theme:?}"), theme).await;
    }
}
