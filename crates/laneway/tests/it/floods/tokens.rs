//! One tenant creates tokens until its share of the table is full.

use serde_json::json;

use super::{Server, count};

/// A tenant that fills its share of the table does not keep other tenants from creating or rotating tokens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_08_tokens_of_one_tenant_leave_capacity_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]).await;
    let (greedy, other) = (server.token("a", "admin").await, server.token("b", "admin").await);
    let make = async |token: &str, lifetime: &str| {
        let call = server.http.post(format!("http://{}/v1/tokens", server.address)).bearer_auth(token);
        let made = call.json(&json!({"role": "viewer", "expires_in": lifetime})).send().await.unwrap();
        made.status().as_u16()
    };
    let mut rejected = 0;
    for _ in 0..count("LANEWAY_FLOOD_TOKENS", 1_100) {
        match make(&greedy, "1h").await {
            201 => {}
            429 => rejected += 1,
            status => panic!("{status}"),
        }
        assert!(rejected < 200, "the share is full");
    }
    println!("{rejected} tokens were rejected");
    assert_eq!(make(&other, "1h").await, 201);
    let id = greedy.split('_').nth(1).unwrap();
    let rotate = server.http.post(format!("http://{}/v1/tokens/{id}/rotate", server.address));
    let rotated = rotate.bearer_auth(&greedy).send().await.unwrap();
    assert!(rotated.status().is_success(), "{}", rotated.status());
}
