//! What a file of keys may hold, and what is told of one that is wrong: never a key.

use super::*;

fn name(keys: &Keys, key: &str) -> Option<String> {
    keys.client(key.as_bytes()).map(|client| client.name.to_string())
}

#[test]
fn a_mark_before_the_first_line_is_no_part_of_a_key() {
    assert!(Keys::read("\u{feff}sk-1\r\nsk-2").unwrap().has(b"sk-1"));
    assert_eq!(Keys::read("\u{feff}# team a\n").unwrap_err(), InvalidKeys::None);
    assert_eq!(
        Keys::read("sk-1\nsk 2\n").unwrap_err(),
        InvalidKeys::Spaces { line: 2 }
    );
    assert_eq!(
        Keys::read("ключ").unwrap_err(),
        InvalidKeys::NotVisible { line: 1 }
    );
}

#[test]
fn a_key_may_stand_there_as_its_hash() {
    // sha256sum of "abc", from FIPS 180-2.
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    for text in [
        format!("sha256:{hash}\n"),
        format!("keys: [{{name: key-1, sha256: {hash}}}]"),
        format!("- {{name: key-1, sha256: \"{}\"}}", hash.to_uppercase()),
    ] {
        let keys = Keys::read(&text).unwrap();
        assert_eq!(name(&keys, "abc").as_deref(), Some("key-1"), "{text}");
        assert_eq!(name(&keys, hash), None);
    }
    assert_eq!(
        Keys::read("a\nsha256:ab\n").unwrap_err(),
        InvalidKeys::NotHash { line: 2 }
    );
}

#[test]
fn each_key_is_its_owners() {
    let text: String = (1..=300).map(|n| format!("sk-{n}\n")).collect();
    let keys = Keys::read(&text).unwrap();
    for n in [1, 2, 150, 256, 257, 300] {
        assert_eq!(name(&keys, &format!("sk-{n}")), Some(format!("key-{n}")));
    }
    assert_eq!(name(&keys, "sk-301"), None);
    assert_eq!(format!("{keys:?}"), "Keys(300)");
}

#[test]
fn a_list_says_what_each_may_do() {
    let text = "keys:\n  - name: a\n    key: sk-a\n    models: [m, n]\n    requests_per_minute: 60\n    tokens_per_minute: \
                1000\n    max_in_flight: 2\n    priority: -1\n    tenant: t\n    weight: 3\n  - {name: b, key: sk-b}\n";
    let keys = Keys::read(text).unwrap();
    let a = keys.client(b"sk-a").unwrap();
    assert_eq!(a.models.as_ref().map(|models| models.len()), Some(2));
    assert_eq!(
        (a.requests_per_minute, a.tokens_per_minute, a.max_in_flight),
        (Some(60), Some(1000), Some(2))
    );
    assert_eq!((a.priority, &*a.tenant, a.weight), (-1, "t", 3));
    let b = keys.client(b"sk-b").unwrap();
    assert!(b.models.is_none() && b.requests_per_minute.is_none() && &*b.tenant == "b");
}

#[test]
fn faults_are_told_with_their_place_and_never_show_a_key() {
    for (text, says) in [
        ("keys:\n  - sk-secret\n", "f:2:5: keys[0]: a key with its name"),
        (
            "keys:\n  - {name: a, kye: sk-secret}\n",
            "f:2:15: keys[0]: something stands here that is not known",
        ),
        (
            "keys:\n  - {name: a, sk-secret: }\n",
            "f:2:15: keys[0]: something",
        ),
        (
            "keys:\n  - {name: a, key: 5342345}\n",
            "f:2:20: keys[0].key: text should stand here; put it in quotes",
        ),
        (
            "keys:\n  - {name: a, key: [sk-secret]}\n",
            "keys[0].key: text should",
        ),
        (
            "keys:\n  - {name: a, key: sk secret}\n",
            "keys[0].key: this cannot be sent",
        ),
        (
            "keys:\n  - {name: a, sha256: sk-secret}\n",
            "keys[0].sha256: this is not a SHA-256",
        ),
        (
            "keys:\n  - {name: a, key: sk-secret, sha256: sk-secret}\n",
            "both; keep one",
        ),
        ("keys: sk-secret\n", "f:1:7: keys: a list should stand here"),
        ("keys: []\n", "keys: the list is empty"),
        ("keys:\n  - {key: sk-secret}\n", "`name` is missing"),
        ("keys:\n  - {name: a}\n", "`key` or `sha256` is missing"),
        (
            "keys:\n  - {name: a, key: sk-1}\n  - {name: a, key: sk-2}\n",
            "keys[0] has the name \"a\" already",
        ),
        (
            "keys:\n  - {name: a, key: sk-secret}\n  - {name: b, key: sk-secret}\n",
            "keys[1]: keys[0] has the same key",
        ),
        (
            "keys:\n  - {name: a, key: sk-1, weight: 0}\n",
            "keys[0].weight: 0 is out of range",
        ),
        (
            "keys:\n  - {name: a, key: k, weight: sk-secret}\n",
            "keys[0].weight: a whole number should stand here",
        ),
        (
            "keys:\n  - {name: a, key: k, priority: sk-secret}\n",
            "keys[0].priority: this is not a priority; write high, standard, sheddable or a whole number",
        ),
        (
            "keys:\n  - {name: a, key: k, models: sk-secret}\n",
            "keys[0].models: a list should stand here",
        ),
        (
            "keys:\n  - {name: a, sk-secret: 1, sk-secret: 2}\n",
            "f:2:29: the key is here twice",
        ),
        (
            "keys:\n  - {name: a, key: sk-1, models: []}\n",
            "keys[0].models: the list is empty",
        ),
        ("{\"sk-secret\": 1}", "`keys` is missing"),
    ] {
        let fault = Keys::read_named(text, "f").unwrap_err().to_string();
        assert!(fault.contains(says), "{text}: {fault}");
        assert!(!fault.contains("secret") && !fault.contains("5342345"), "{fault}");
    }
}

#[test]
fn a_list_can_be_read_from_json_and_its_faults_show_no_key() {
    let read = |json| Keys::from_value(&Value::from_json(&json).unwrap(), "f");
    let sound = serde_json::json!({"keys": [{"name": "a", "key": "sk-a", "max_in_flight": 2}, {"name": "b", "key": "sk-b"}]});
    let keys = read(sound).unwrap();
    assert_eq!(keys.client(b"sk-a").unwrap().max_in_flight, Some(2));
    assert_eq!(name(&keys, "sk-b").as_deref(), Some("b"));
    assert_eq!(name(&keys, "sk-c"), None);

    let faulty = serde_json::json!({"keys": [{"name": "a", "key": "sk secret"}, {"name": "b", "key": "sk-b", "weight": 0}]});
    let InvalidKeys::Faults(faults) = read(faulty).unwrap_err() else {
        panic!("it is a list");
    };
    let paths: Vec<_> = faults.faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["keys[0].key", "keys[1].weight"], "all at once");
    assert!(!faults.to_string().contains("secret"), "{faults}");
    assert!(read(serde_json::json!(["sk-secret"])).is_err() && read(serde_json::json!({})).is_err());
}
