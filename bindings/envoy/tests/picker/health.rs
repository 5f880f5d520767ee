//! What probes are told.

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::envoy::HANG;
use super::world::{Setup, World, one};

const NAMES: [&str; 4] = [
    "",
    "readiness",
    "liveness",
    "envoy.service.ext_proc.v3.ExternalProcessor",
];

async fn check(world: &World) -> Vec<i32> {
    let mut client = HealthClient::new(world.channel.clone());
    let mut all = Vec::new();
    for service in NAMES.map(str::to_owned) {
        let answer = client.check(HealthCheckRequest { service }).await.unwrap();
        all.push(answer.into_inner().status);
    }
    let service = "other".to_owned();
    let unknown = client.check(HealthCheckRequest { service }).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    all
}

#[tokio::test]
async fn it_is_ready_while_somebody_can_serve_and_alive_in_any_case() {
    let (serving, not) = (1, 2);
    let nobody = Setup::new().start([]).await;
    assert_eq!(check(&nobody).await, [not, not, serving, not]);
    let world = Setup::new().start(one()).await;
    assert_eq!(check(&world).await, [serving; 4]);
    let mut client = HealthClient::new(world.channel.clone());
    let service = "readiness".to_owned();
    let mut watch = client
        .watch(HealthCheckRequest { service })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, serving);
    world.picker.router().stop();
    let news = tokio::time::timeout(HANG, watch.message())
        .await
        .expect("no news");
    assert_eq!(news.unwrap().unwrap().status, not);
    assert_eq!(check(&world).await, [not, not, serving, not]);
}

#[tokio::test]
async fn who_watches_does_not_hold_up_the_end() {
    let world = Setup::new().start(one()).await;
    let mut client = HealthClient::new(world.channel.clone());
    let service = "readiness".to_owned();
    let watch = client.watch(HealthCheckRequest { service }).await.unwrap();
    let mut watch = watch.into_inner();
    watch.message().await.unwrap();
    world.stop();
    let told = tokio::spawn(async move {
        let mut last = None;
        while let Ok(Some(answer)) = watch.message().await {
            last = Some(answer.status);
        }
        last
    });
    // The grace time is as long as a test may hang.
    let ended = tokio::time::timeout(HANG / 2, told).await.expect("it goes on");
    assert_eq!(ended.unwrap(), Some(2), "that it serves no more");
    assert_eq!(world.served().await, paddler_core::forward::Served::Whole);
}
