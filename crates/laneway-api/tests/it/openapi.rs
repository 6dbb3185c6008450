//! The OpenAPI document as clients see it.

use expect_test::expect_file;

use crate::world::World;

#[tokio::test]
async fn describes_the_api() {
    let world = World::new().await;
    let served = world.ask("GET", "/openapi.json", "").await;
    expect_file!["openapi.json"].assert_eq(&format!("{served:#}\n"));
}
