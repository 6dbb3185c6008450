//! CORS headers for allowed origins, and none for others.

use reqwest::Response;

use crate::world::World;

const CONFIG: &str = "[server]\nallowed_origins = [\"https://page.example\"]";

async fn send(world: &World, method: &str, path: &str, origin: &str) -> Response {
    let request = world.request(method, path).header("origin", origin);
    let request = match method {
        "OPTIONS" => request
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,content-type"),
        _ => request,
    };
    request.send().await.unwrap()
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn answers_preflights_of_allowed_origins() {
    let world = World::with_config(CONFIG).await;
    for path in ["/v1/jobs", "/v1/jobs/x/cancel", "/v1/config", "/v1/events", "/health"] {
        let response = send(&world, "OPTIONS", path, "https://page.example").await;
        assert_eq!(response.status(), 204, "{path}");
        assert_eq!(header(&response, "access-control-allow-origin"), "https://page.example");
        assert_eq!(header(&response, "access-control-allow-methods"), "GET, POST, PUT, PATCH, DELETE");
        assert_eq!(
            header(&response, "access-control-allow-headers"),
            "authorization, content-type, idempotency-key, laneway-tenant, last-event-id, mcp-method, mcp-name, \
             mcp-protocol-version, mcp-session-id, traceparent, tracestate"
        );
        assert_eq!(header(&response, "access-control-max-age"), "600");
        assert_eq!(header(&response, "vary"), "origin");
        assert!(response.headers().contains_key("request-id"));
        assert_eq!(response.text().await.unwrap(), "");
    }
    assert_eq!(send(&world, "OPTIONS", "/v1/nowhere", "https://page.example").await.status(), 404);
    let bare = world.request("OPTIONS", "/v1/jobs").header("origin", "https://page.example");
    assert_eq!(bare.send().await.unwrap().status(), 405, "not a preflight");
}

#[tokio::test]
async fn lets_allowed_origins_read_every_answer() {
    let world = World::with_config(CONFIG).await;
    for (method, path, status) in [
        ("GET", "/v1/jobs", 200),
        ("GET", "/health", 200),
        ("GET", "/v1/jobs/7", 400),
        ("GET", "/v1/nowhere", 404),
        ("DELETE", "/v1/jobs", 405),
        ("POST", "/v1/jobs", 400),
        ("GET", "/v1/events", 200),
    ] {
        let response = send(&world, method, path, "https://page.example").await;
        assert_eq!(response.status(), status, "{method} {path}");
        assert_eq!(header(&response, "access-control-allow-origin"), "https://page.example", "{path}");
        let exposed = "request-id, retry-after, location, mcp-protocol-version, mcp-session-id";
        assert_eq!(header(&response, "access-control-expose-headers"), exposed);
        assert_eq!(header(&response, "vary"), "origin");
    }
    world.token(None, laneway_core::Role::Admin).await;
    let response = send(&world, "GET", "/v1/jobs", "https://page.example").await;
    assert_eq!(response.status(), 401);
    assert_eq!(header(&response, "access-control-allow-origin"), "https://page.example");
}

#[tokio::test]
async fn other_origins_get_no_headers() {
    let world = World::with_config(CONFIG).await;
    for origin in ["https://evil.example", "https://page.example.evil", "http://page.example", "null"] {
        for (method, status) in [("OPTIONS", 405), ("GET", 403)] {
            let response = send(&world, method, "/v1/jobs", origin).await;
            assert_eq!(response.status(), status, "{method} {origin}");
            let allowed = response.headers().keys().any(|name| name.as_str().starts_with("access-control-"));
            assert!(!allowed, "{method} {origin}: {:?}", response.headers());
        }
    }
    let response = world.request("GET", "/v1/jobs").send().await.unwrap();
    assert!(!response.headers().contains_key("access-control-allow-origin"), "no page sent the request");
}
