//! Names that stand for other names open nothing, and each limit has its reason.

use super::*;
use crate::schedule::trees;
use crate::status::{StatusBoard, StatusEvent};
use crate::upstream::{ModelEntry, Models, UpstreamSpec};

const fn at(seconds: u64) -> Moment {
    Moment::from_millis(seconds * 1000)
}

fn snapshot(upstreams: &[&[ModelEntry]]) -> Arc<Snapshot> {
    let mut board = StatusBoard::new(trees::gateway());
    for (number, models) in upstreams.iter().enumerate() {
        let spec = UpstreamSpec::new(format!("u{number}"), format!("http://u{number}")).unwrap();
        board.apply(
            StatusEvent::Upsert(spec.models(Models::Listed(models.to_vec()))),
            at(0),
        );
    }
    board.publish(at(0))
}

fn alias(name: &str, of: &str) -> ModelEntry {
    let mut entry = ModelEntry::new(of);
    entry.aliases.push(name.into());
    entry
}

fn with(models: &[&str]) -> Client {
    let mut client = Client::new("a");
    client.models = Some(models.iter().map(|name| Arc::from(*name)).collect());
    client
}

#[test]
fn aliases_and_adapters_are_what_they_stand_for() {
    let mut sql = alias("text2sql", "sql");
    sql.parent = Some("llama".into());
    let twice = ModelEntry::adapter("sql-fr", "sql");
    let state = snapshot(&[
        &[alias("llama", "llama-3"), sql, twice],
        &[ModelEntry::new("qwen")],
    ]);
    let may = |models: &[&str], name| with(models).may_use(Some(name), &state);
    for name in ["llama-3", "llama", "sql", "text2sql", "sql-fr"] {
        assert!(may(&["llama-3"], name), "{name}");
    }
    for name in ["qwen", "nobody", "", "LLAMA-3"] {
        assert!(!may(&["llama-3"], name), "{name}");
    }
    // An adapter that is listed by its own name brings no base with it.
    assert!(may(&["sql"], "text2sql") && may(&["sql"], "sql-fr"));
    assert!(!may(&["sql"], "llama") && !may(&["sql"], "llama-3") && !may(&["text2sql"], "sql"));
    assert!(!may(&[], "llama-3"));
}

#[test]
fn a_name_that_is_something_else_elsewhere_is_no_way_round_the_list() {
    let state = snapshot(&[&[alias("fast", "llama")], &[alias("fast", "secret")]]);
    assert!(!with(&["llama"]).may_use(Some("fast"), &state));
    assert!(with(&["llama", "secret"]).may_use(Some("fast"), &state));
    assert!(
        with(&["fast"]).may_use(Some("fast"), &state),
        "it was listed as it is"
    );
    assert!(!with(&["llama"]).may_use(None, &state) && Client::new("b").may_use(None, &state));
}

#[test]
fn bases_that_go_round_in_a_circle_end() {
    let state = snapshot(&[&[ModelEntry::adapter("a", "b"), ModelEntry::adapter("b", "a")]]);
    assert!(!with(&["c"]).may_use(Some("a"), &state));
}

#[test]
fn each_limit_has_its_reason() {
    let mut client = Client::new("a");
    client.max_in_flight = Some(2);
    client.requests_per_minute = Some(3);
    client.tokens_per_minute = Some(100);
    let mut one = client.begin(at(0)).unwrap();
    let two = client.begin(at(0)).unwrap();
    assert_eq!(client.begin(at(0)).unwrap_err().limit, Limit::Concurrency);
    drop(two);
    let _three = client.begin(at(0)).unwrap();
    assert_eq!(client.begin(at(0)).unwrap_err().limit, Limit::Concurrency);
    client.charge(&mut one, 90, at(0)).unwrap();
    let exceeded = client.charge(&mut one, 11, at(0)).unwrap_err();
    assert_eq!(
        (exceeded.limit, exceeded.wait),
        (Limit::Tokens, Some(Duration::from_millis(600)))
    );
    one.used(Some(20), 30, at(0));
    one.used(None, 1_000, at(0));
    client.charge(&mut one, 50, at(0)).unwrap();
    drop(one);
    let exceeded = client.begin(at(0)).unwrap_err();
    assert_eq!(
        (exceeded.limit, exceeded.wait),
        (Limit::Requests, Some(Duration::from_secs(20)))
    );
    // Under other limits what is used stays used.
    let mut wider = Client::new("a").continuing(&client);
    wider.requests_per_minute = Some(3);
    assert!(wider.begin(at(0)).is_err() && wider.begin(at(20)).is_ok());
    wider.requests_per_minute = Some(600);
    assert!(
        wider.begin(at(20)).is_ok(),
        "three of six hundred are no reason to refuse"
    );
    assert_eq!(
        client.used.in_flight.load(Relaxed),
        1,
        "who is refused holds nothing"
    );
}

#[test]
fn tokens_of_what_nobody_worked_on_are_given_back() {
    let mut client = Client::new("a");
    client.tokens_per_minute = Some(60);
    let asks = |worked_on: &[bool]| {
        let mut request = client.begin(at(0)).unwrap();
        let charged = client.charge(&mut request, 60, at(0));
        worked_on
            .iter()
            .for_each(|worked_on| request.worked_on(*worked_on));
        charged.is_ok()
    };
    // It never got so far; it was sent and refused.
    assert!(asks(&[]) && asks(&[true, false]));
    assert!(asks(&[true]), "all is there again");
    assert!(!asks(&[]), "but this one was sent");
}

#[test]
fn a_limit_of_none_lets_nothing_pass() {
    let limits: [fn(&mut Client); 2] = [
        |client| client.max_in_flight = Some(0),
        |client| client.requests_per_minute = Some(0),
    ];
    for limit in limits {
        let mut client = Client::new("a");
        limit(&mut client);
        assert!(client.begin(at(100)).is_err());
    }
    let mut client = Client::new("a");
    client.tokens_per_minute = Some(0);
    let mut request = client.begin(at(100)).unwrap();
    assert_eq!(
        client.charge(&mut request, 1, at(100)).unwrap_err().limit,
        Limit::Tokens
    );
}
