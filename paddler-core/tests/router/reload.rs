//! Can a router change what it does, with no request failing?

use paddler_core::config::AdminPaths;

use super::client::{CHAT, Client, chat, eventually, get, post};
use super::world::{Setup, engine, of, quick};

#[tokio::test]
async fn a_request_goes_on_with_the_options_it_came_under() {
    let engine = engine(quick()).await;
    let world = Setup::new()
        .with(|setup| setup.options.admin = AdminPaths::Open)
        .start([of("a", &engine)])
        .await;
    let mut client = Client::connect(world.addr).await;
    client
        .write("POST /slots/0?action=erase HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{")
        .await;
    eventually("it is being read", || {
        world.metric("paddler_in_flight_requests") == 1.0
    })
    .await;
    let mut options = world.router.options();
    options.admin = AdminPaths::Closed;
    world.router.reconfigure(options);
    assert_eq!(get(world.addr, "/slots").await.status, 403, "it is closed by now");
    client.write("}").await;
    let answer = client.answer().await;
    assert_ne!(
        answer.status,
        403,
        "it was open when this one came: {}",
        answer.text()
    );
    assert_eq!(engine.stats().requests, 1);
    world.quiet().await;
}

#[tokio::test]
async fn options_change_for_connections_that_are_open() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &chat(100)).await;
    assert_eq!(client.answer().await.status, 200);
    let mut options = world.router.options();
    options.max_body = 10;
    world.router.reconfigure(options);
    client.post(CHAT, &chat(100)).await;
    assert_eq!(client.answer().await.status, 413);
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 413);
    world.quiet().await;
}
