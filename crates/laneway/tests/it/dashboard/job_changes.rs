//! Forms that change and delete jobs: one job, selected jobs, and all jobs of a filter.

use serde_json::{Value, json};

use super::World;

async fn job(world: &World, admin: &str, id: &str) -> Value {
    world.call("GET", &format!("/v1/jobs/{id}"), admin, Value::Null).await
}

async fn submit(world: &World, admin: &str) -> String {
    let job = world.call("POST", "/v1/jobs", admin, json!({"kind": "unserved"})).await;
    job["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn one_job_and_selected_jobs_are_changed_and_deleted() {
    let world = World::new(&[]);
    let admin = world.token("", "admin", "*").await;
    let cookie = world.log_in(&admin).await;
    let csrf = world.csrf(&cookie).await;
    let (one, two) = (submit(&world, &admin).await, submit(&world, &admin).await);
    let page = world.get(&format!("jobs/{one}"), &cookie).await.text().await.unwrap();
    for part in ["/reschedule\"", "name=\"start\"", "/priority\"", "name=\"priority\""] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("/delete\""), "a job that waits cannot be deleted");
    let send = async |path: &str, fields: &[(&str, &str)]| {
        let mut all = vec![("csrf", csrf.as_str())];
        all.extend(fields);
        world.post(path, &cookie, &all).await.status().as_u16()
    };
    assert_eq!(send(&format!("jobs/{one}/reschedule"), &[("start", "1h")]).await, 303);
    assert_eq!(send(&format!("jobs/{one}/priority"), &[("priority", "-5")]).await, 303);
    let changed = job(&world, &admin, &one).await;
    assert_eq!((&changed["state"], &changed["priority"]), (&json!("scheduled"), &json!(-5)), "{changed}");
    assert_eq!(send(&format!("jobs/{one}/reschedule"), &[("start", "2030-01-01T08:00:00Z")]).await, 303);
    assert_eq!(job(&world, &admin, &one).await["not_before"], "2030-01-01T08:00:00.000Z");
    assert_eq!(send(&format!("jobs/{one}/reschedule"), &[("start", "tomorrow")]).await, 400);
    assert_eq!(send(&format!("jobs/{one}/priority"), &[("priority", "<b>high</b>")]).await, 400);
    assert_eq!(send(&format!("jobs/{one}/delete"), &[]).await, 409, "it has not ended");
    // The same for selected jobs.
    let both = [("id", one.as_str()), ("id", two.as_str())];
    let with = |action, rest: &[(&'static str, &'static str)]| {
        let mut fields = vec![("action", action)];
        fields.extend(both);
        fields.extend(rest);
        fields
    };
    assert_eq!(send("jobs/selected", &with("reschedule", &[("start", "0s"), ("priority", "")])).await, 303);
    assert_eq!(send("jobs/selected", &with("priority", &[("start", ""), ("priority", "7")])).await, 303);
    for id in [&one, &two] {
        let changed = job(&world, &admin, id).await;
        assert_eq!((&changed["state"], &changed["priority"]), (&json!("queued"), &json!(7)), "{changed}");
    }
    assert_eq!(send("jobs/selected", &with("cancel", &[])).await, 303);
    let page = world.get(&format!("jobs/{one}"), &cookie).await.text().await.unwrap();
    assert!(page.contains("/delete\"") && page.contains("This cannot be undone."), "{page}");
    assert_eq!(send(&format!("jobs/{one}/delete"), &[]).await, 303);
    assert_eq!(send("jobs/selected", &with("delete", &[])).await, 303, "the one that is left");
    let list = world.call("GET", "/v1/jobs", &admin, Value::Null).await;
    assert_eq!(list["jobs"], json!([]));
}

#[tokio::test]
async fn all_matching_jobs_are_counted_first_and_roles_decide() {
    let world = World::new(&[]);
    let admin = world.token("", "admin", "*").await;
    let (operator, submitter) =
        (world.token(&admin, "operator", "*").await, world.token(&admin, "submitter", "*").await);
    for _ in 0..3 {
        submit(&world, &admin).await;
    }
    let (operator, submitter) = (world.log_in(&operator).await, world.log_in(&submitter).await);
    let page = world.get("jobs?kind=unserved", &submitter).await.text().await.unwrap();
    assert!(page.contains("Reschedule all matching…") && page.contains("Change priority of all matching…"));
    assert!(!page.contains("Delete"), "a submitter deletes nothing");
    assert!(
        world
            .get("jobs?kind=unserved", &operator)
            .await
            .text()
            .await
            .unwrap()
            .contains("Delete all matching…")
    );
    let csrf = world.csrf(&submitter).await;
    let delete = [("csrf", csrf.as_str()), ("action", "delete"), ("kind", "unserved"), ("agreed", "yes")];
    assert_eq!(world.post("operations", &submitter, &delete).await.status(), 403);
    let csrf = world.csrf(&operator).await;
    let mut fields = vec![
        ("csrf", csrf.as_str()),
        ("action", "change_priority"),
        ("kind", "unserved"),
        ("priority", "-3"),
    ];
    let question = world.post("operations", &operator, &fields).await;
    assert_eq!(question.status(), 200);
    let question = question.text().await.unwrap();
    assert!(question.contains("3 jobs match") && question.contains("Change their priority"), "{question}");
    fields.push(("agreed", "yes"));
    let started = world.post("operations", &operator, &fields).await;
    let path = started.headers()["location"].to_str().unwrap().to_owned();
    let id = path.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
    while world.call("GET", &format!("/v1/operations/{id}"), &admin, Value::Null).await["state"] == "running"
    {
    }
    let list = world.call("GET", "/v1/jobs", &admin, Value::Null).await;
    assert!(list["jobs"].as_array().unwrap().iter().all(|job| job["priority"] == -3), "{list}");
}
