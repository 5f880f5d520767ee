//! What a client may say of its times, and only a trusted peer of its rank.

use proptest::prelude::*;

use super::*;

fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_static(value));
    }
    headers
}

fn wait(value: &'static str) -> Option<Duration> {
    Times::read(&map(&[("x-paddler-max-wait", value)]))
        .unwrap()
        .max_wait
}

#[test]
fn a_time_is_seconds_or_has_a_unit() {
    let millis = |millis| Some(Duration::from_millis(millis));
    assert_eq!(wait("30"), millis(30_000));
    assert_eq!(wait("0.5"), millis(500));
    assert_eq!(wait(" 250ms "), millis(250));
    assert_eq!(wait("2m"), millis(120_000));
    assert_eq!(wait("0"), millis(0), "not to wait is a wish, too");
    assert_eq!(Times::read(&HeaderMap::new()).unwrap(), Times::default());
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    for (name, value) in [
        ("x-paddler-max-wait", "soon"),
        ("x-paddler-max-wait", "-1"),
        ("x-paddler-max-wait", ""),
        ("x-paddler-max-wait", "."),
        ("x-paddler-max-wait", "1e3"),
        ("x-paddler-timeout-first-byte", "0"),
        ("x-paddler-timeout-idle", "0ms"),
        ("x-paddler-timeout-whole", "99999999999999999999999h"),
    ] {
        let refusal = Times::read(&map(&[(name, value)])).unwrap_err();
        assert_eq!((refusal.status.as_u16(), &*refusal.reason), (400, "bad_header"));
        assert!(refusal.message.starts_with(name), "{}", refusal.message);
    }
    let twice = map(&[("x-paddler-max-wait", "1"), ("x-paddler-max-wait", "1")]);
    assert!(Times::read(&twice).is_err());
}

#[test]
fn only_a_trusted_peer_says_who_matters_and_who_pays() {
    let said = [
        ("x-paddler-priority", "sheddable"),
        ("x-paddler-tenant", "a team"),
    ];
    let mut headers = map(&said);
    assert_eq!(
        Standing::take(&mut headers, false, false).unwrap(),
        Standing::default()
    );
    assert!(headers.is_empty(), "nobody behind us believes it");
    let mut headers = map(&said);
    let standing = Standing::take(&mut headers, true, false).unwrap();
    assert_eq!(
        (standing.priority, standing.tenant.as_deref()),
        (Some(-1), Some("a team"))
    );
    assert_eq!(
        headers.len(),
        2,
        "a router behind us that trusts us reads it, too"
    );
    for (value, number) in [
        ("high", 1),
        ("critical", 1),
        ("standard", 0),
        ("-7", -7),
        ("2147483647", i32::MAX),
    ] {
        let mut headers = map(&[("x-paddler-priority", value)]);
        assert_eq!(
            Standing::take(&mut headers, true, false).unwrap().priority,
            Some(number)
        );
    }
    for value in ["urgent", "2147483648", "1.5", ""] {
        let mut headers = map(&[("x-paddler-priority", value)]);
        assert!(Standing::take(&mut headers, true, false).is_err(), "{value}");
        assert_eq!(
            Standing::take(&mut headers, false, false).unwrap(),
            Standing::default()
        );
    }
    let mut headers = HeaderMap::new();
    headers.insert(TENANT, HeaderValue::from_str(&"t".repeat(257)).unwrap());
    assert!(
        Standing::take(&mut headers, true, false).is_err(),
        "it would be kept in tables"
    );
}

proptest! {
    #[test]
    fn any_value_is_read_or_refused(value in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            let mut headers = HeaderMap::new();
            for name in [MAX_WAIT, FIRST_BYTE, IDLE, WHOLE, PRIORITY, TENANT] {
                headers.insert(name, value.clone());
            }
            let read = Times::read(&headers);
            prop_assert!(read.is_err() || read.is_ok_and(|times| times.whole > Some(Duration::ZERO)));
            if let Ok(said) = Standing::take(&mut headers, true, false) {
                prop_assert!(said.tenant.is_some_and(|name| (1..=LONGEST_TENANT).contains(&name.len())));
            }
        }
    }
}
