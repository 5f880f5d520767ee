//! Does `paddler check` find every fault, each with its place?

use crate::path;
use crate::support::program::run;

#[tokio::test]
async fn a_sound_file_is_sound() {
    let keys = path("check-keys.txt", "sk-1\n");
    let text = format!(
        "listen: 127.0.0.1:9000\napi_key_file: {keys}\nupstreams:\n  - url: http://a:1\n    api_key_file: {keys}\n"
    );
    for (name, text, says) in [
        ("check-good.yaml", text.as_str(), "sound; 1 upstream\n"),
        ("check-empty.yaml", "", "sound; no upstream"),
        (
            "check-tree.yaml",
            "tree: [require: model, pick: random]\n",
            "require model",
        ),
    ] {
        let file = path(name, text);
        let ended = run(&["check", &file], &[]).await;
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert!(
            ended.out.starts_with(&format!("{file}: sound; ")) && ended.out.contains(says),
            "{ended:?}"
        );
        assert_eq!(ended.log, "");
    }
}

#[tokio::test]
async fn every_fault_is_told_with_its_place() {
    let text = "listen: 80
upstreams:
  - url: ftp://a:1
    engine: foo
  - urll: http://b
queue: {max_wait: 10, max_requests: many}
tree: [require: helthy]
polls: {}
";
    let file = path("check-bad.yaml", text);
    let ended = run(&["check", &file], &[]).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert_eq!(ended.out, "");
    let expected = [
        (1, 9, "listen: 80 is a port"),
        (3, 10, "upstreams[0].url: \"ftp://a:1\""),
        (4, 13, "upstreams[0].engine: \"foo\""),
        (5, 5, "upstreams[1]: `url`"),
        (5, 5, "upstreams[1].urll: unknown key; did you mean \"url\"?"),
        (6, 19, "queue.max_wait: 10 needs a unit"),
        (6, 37, "queue.max_requests: "),
        (7, 17, "tree[0].require: \"helthy\""),
        (8, 1, "polls: unknown key; did you mean \"poll\"?"),
    ];
    let lines: Vec<_> = ended.log.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{}", ended.log);
    for (line, (row, column, begins)) in lines.into_iter().zip(expected) {
        let begins = format!("{file}:{row}:{column}: {begins}");
        assert!(line.starts_with(&begins), "{line}\nshould begin with\n{begins}");
    }
}

#[tokio::test]
async fn what_is_no_yaml_is_told_with_its_place() {
    let file = path("check-broken.yaml", "upstreams: [\n  - }\n");
    let ended = run(&["check", &file], &[]).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.log.starts_with(&format!("{file}:2:")), "{ended:?}");
}

#[tokio::test]
async fn a_file_of_keys_is_checked_as_one() {
    let sound = path("check-keys.yaml", "# ours\nkeys:\n  - {name: a, key: sk-1}\n");
    let ended = run(&["check", &sound], &[]).await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(ended.out, format!("{sound}: sound; a file of clients' keys"));
    for list in [
        "- {name: a, key: sk-1}\n",
        "[{name: a, key: sk-1}]",
        "---\n{keys: [{name: a, key: sk-1}]}",
    ] {
        let file = path("check-list-of-keys.yaml", list);
        let ended = run(&["check", &file], &[]).await;
        assert!(
            ended.out.ends_with("a file of clients' keys"),
            "{list}: {ended:?}"
        );
    }
    let config = path("check-braces.yaml", "{upstreams: [{url: 'http://a:1'}]}");
    let ended = run(&["check", &config], &[]).await;
    assert!(ended.out.contains("sound; 1 upstream"), "{ended:?}");
    let faulty = path(
        "check-bad-keys.yaml",
        "keys:\n  - {name: a, key: sk-1, modles: [x]}\n",
    );
    let ended = run(&["check", &faulty], &[]).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let begins =
        format!("{faulty}:2:26: keys[0]: something stands here that is not known; did you mean \"models\"?");
    assert!(ended.log.starts_with(&begins), "{ended:?}");
}

#[tokio::test]
async fn files_that_are_missing_are_named_all_at_once_with_their_places() {
    let empty = path("check-no-keys.txt", "# none yet\n");
    let blank = path("check-blank-key.txt", "\n");
    let text = format!(
        "tls: {{certificate: no/such/crt, key: no/such/key}}\napi_key_file: {empty}\nupstreams:\n  - url: http://a:1\n    api_key_file: no/such/a\n  \
         - url: https://b:1\n    tls: {{ca: /no/such/b}}\n  - url: http://c:1\n    api_key_file: {blank}\n"
    );
    let file = path("check-missing.yaml", &text);
    let beside = file.trim_end_matches("check-missing.yaml");
    let ended = run(&["check", &file], &[]).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let gone = |place, setting, shown: &str| {
        format!(
            "{file}:{place}: {setting}: {shown} is not there (a relative path is looked for beside this file)"
        )
    };
    let expected = [
        gone("1:20", "tls.certificate", &format!("{beside}no/such/crt")),
        gone("1:38", "tls.key", &format!("{beside}no/such/key")),
        gone("5:19", "upstreams[0].api_key_file", &format!("{beside}no/such/a")),
        gone("7:15", "upstreams[1].tls.ca", "/no/such/b"),
        format!("{blank} (the key for the upstream c:1) holds no key: one line of visible characters"),
        format!("{empty} (the keys of clients): there is no key"),
    ];
    let lines: Vec<_> = ended.log.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{}", ended.log);
    for (line, expected) in lines.into_iter().zip(expected) {
        assert!(
            line.starts_with(&expected),
            "{line}\nshould begin with\n{expected}"
        );
    }

    let ended = run(&["check", "no/such/file.yaml"], &[]).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(
        ended
            .log
            .starts_with("no/such/file.yaml (the config) cannot be read: "),
        "{ended:?}"
    );
}

#[tokio::test]
async fn keys_of_the_management_api_are_no_list_with_rights() {
    let keys = path(
        "check-management-keys.yaml",
        "keys: [{name: a, key: sk-secret}]\n",
    );
    let file = path("check-management.yaml", &format!("management_key_file: {keys}\n"));
    let ended = run(&["check", &file], &[]).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let says = format!("{keys} (the keys of the management API): these keys have no rights of their own");
    assert!(
        ended.log.starts_with(&says) && !ended.log.contains("secret"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn the_example_is_sound_and_says_the_defaults() {
    use paddler_core::config::{Config, Mode, Registry};

    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/paddler.yaml");
    let ended = run(&["check", file], &[]).await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let text = std::fs::read_to_string(file).unwrap();
    let (head, _) = text.split_once("\n\n").unwrap();
    let (_, waits) = head.split_once("a restart").unwrap();
    let words: Vec<_> = waits.split([' ', ',', ':', '\n']).collect();
    for (setting, _) in Config::default().fixed() {
        assert!(words.contains(&setting), "{setting} waits for a restart");
    }
    let mut config = Config::read(&text, file, Mode::Gateway, &Registry::new()).unwrap();
    assert_eq!(config.upstreams.len(), 2);
    config.upstreams.clear();
    let keys = std::fs::read_to_string(file.replace("paddler.yaml", "keys.yaml")).unwrap();
    let keys = paddler_core::forward::Keys::read(&keys).unwrap();
    assert!(keys.has(b"change-me-and-hide-me"));
    assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()));
}

/// The keys of a file, each with those above it. What stands in a comment counts, if it is a key with something behind it.
fn key_paths(
    value: &paddler_core::config::Value,
    under: &str,
    into: &mut std::collections::BTreeSet<String>,
) {
    use paddler_core::config::Kind;
    match &value.kind {
        // Nodes, names of labels and of models are the user's own.
        _ if ["tree", "upstreams.labels", "upstreams.models", "timeouts.models"].contains(&under) => {}
        Kind::Map(pairs) if under == "models" => {
            pairs
                .iter()
                .for_each(|(_, value)| key_paths(value, "models.NAME", into));
            into.insert(under.to_owned());
        }
        Kind::Map(pairs) => {
            for (key, value) in pairs {
                let dot = if under.is_empty() { "" } else { "." };
                let path = format!("{under}{dot}{}", key.text);
                key_paths(value, &path, into);
                into.insert(path);
            }
        }
        Kind::List(values) => values.iter().for_each(|value| key_paths(value, under, into)),
        _ => {}
    }
}

#[test]
fn the_example_leaves_no_setting_out() {
    use paddler_core::config::Value;

    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let paths = |text: &str| {
        let mut paths = std::collections::BTreeSet::new();
        key_paths(&Value::from_yaml(text, "f").unwrap(), "", &mut paths);
        paths
    };
    let everything = std::fs::read_to_string(format!(
        "{root}/paddler-core/tests/corpus/config/valid/everything.yaml"
    ));
    let example = std::fs::read_to_string(format!("{root}/examples/paddler.yaml")).unwrap();
    // Lines that are commented out count as written, and each one that shows a setting is one or begins one.
    let (_, settings) = example.split_once("\n\n").unwrap();
    let nodes = "# tree:\n";
    let (before, after) = settings.split_once(nodes).unwrap();
    let after = after.split_once("\n\n").unwrap().1;
    let uncommented: String = [before, after]
        .concat()
        .lines()
        .map(|line| {
            format!(
                "{}\n",
                line.replacen("# ", "", usize::from(line.trim_start().starts_with("# ")))
            )
        })
        .collect();
    let shown = paths(&uncommented);
    let missing: Vec<_> = paths(&everything.unwrap())
        .into_iter()
        .filter(|path| !shown.contains(path))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(shown.contains("shutdown.grace") && shown.contains("upstreams.tls.server_name"));
}

#[tokio::test]
async fn a_missing_file_is_told_with_its_place_also_behind_a_faulty_upstream() {
    let key = path("check-alone.key", "no key\n");
    let text = format!(
        "tls: {{key: {key}}}\nupstreams:\n  - url: nowhere\n  - url: http://a:1\n    api_key_file: no/such/a\n"
    );
    let file = path("check-behind.yaml", &text);
    let ended = run(&["check", &file], &[]).await;
    let lines: Vec<_> = ended.log.lines().collect();
    let begins = [
        "1:6: tls: `certificate` is missing",
        "3:10: upstreams[0].url: ",
        "5:19: upstreams[1].api_key_file: ",
    ];
    assert_eq!(lines.len(), begins.len(), "{}", ended.log);
    for (line, begins) in lines.into_iter().zip(begins) {
        assert!(line.starts_with(&format!("{file}:{begins}")), "{line}\n{begins}");
    }
}

#[tokio::test]
async fn files_are_checked_beside_other_faults_in_the_order_of_the_text() {
    let empty = path("check-beside-keys.txt", "# none yet\n");
    let text = format!(
        "listen: 80\nmanagement_key_file: no/such/keys\napi_key_file: {empty}\nqueue: {{max_wait: 10}}\ntls: {{key: no/such/key}}\n"
    );
    let file = path("check-beside.yaml", &text);
    let ended = run(&["check", &file], &[]).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let begins = [
        format!("{file}:1:9: listen: 80 is a port"),
        format!("{file}:2:22: management_key_file: "),
        format!("{file}:4:19: queue.max_wait: "),
        format!("{file}:5:6: tls: `certificate` is missing"),
        format!("{file}:5:12: tls.key: "),
        format!("{empty} (the keys of clients): there is no key"),
    ];
    let lines: Vec<_> = ended.log.lines().collect();
    assert_eq!(lines.len(), begins.len(), "{}", ended.log);
    for (line, begins) in lines.into_iter().zip(begins) {
        assert!(line.starts_with(&begins), "{line}\nshould begin with\n{begins}");
    }
}

#[tokio::test]
async fn a_file_is_read_however_an_editor_saves_it() {
    let keys = path("check-mark-keys.txt", "\u{feff}sk-1\r\n");
    let text = format!(
        "\u{feff}listen: 127.0.0.1:9000\r\nupstreams:\r\n  - url: http://a:1\r\n    api_key_file: {keys}\r\n"
    );
    for (name, text, says) in [
        ("check-mark.yaml", text.as_str(), "sound; 1 upstream"),
        (
            "check-mark-list.yaml",
            "\u{feff}keys:\r\n  - {name: a, key: sk-1}\r\n",
            "sound; a file of clients' keys",
        ),
        ("check-only-mark.yaml", "\u{feff}", "sound; no upstream"),
    ] {
        let ended = run(&["check", &path(name, text)], &[]).await;
        assert!(ended.out.contains(says), "{name}: {ended:?}");
    }
    let wide = path("check-wide.yaml", "");
    std::fs::write(&wide, b"\xff\xfel\0i\0s\0").unwrap();
    let ended = run(&["check", &wide], &[]).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.log.contains("save it as UTF-8"), "{ended:?}");
}

#[tokio::test]
async fn what_is_no_file_of_settings_is_said_and_takes_no_memory() {
    for (file, says) in [
        ("/", "/ (the config) cannot be read: Is a directory"),
        (
            "/dev/zero",
            "/dev/zero (the config) cannot be read: it is larger than 16 MiB",
        ),
    ] {
        let ended = run(&["check", file], &[]).await;
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.log.starts_with(says), "{ended:?}");
    }
}

/// What a shell makes of a line in which the program is `$P`: its exit status and what it wrote.
fn shell(line: &str) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_paddler");
    let run = std::process::Command::new("sh")
        .args(["-c", line])
        .env("P", program)
        .output();
    let run = run.unwrap();
    let text = [run.stdout, run.stderr].concat();
    (run.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn a_pipe_is_read_once() {
    let (status, text) = shell("echo 'listen: 80' | \"$P\" check /dev/stdin");
    assert_eq!(status, Some(1), "{text}");
    assert!(text.starts_with("/dev/stdin:1:9: listen: 80 is a port"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn that_nobody_can_read_what_is_wrong_is_no_crash() {
    assert_eq!(shell("\"$P\" check /no/such/file 2>/dev/full").0, Some(1));
}

#[tokio::test]
async fn a_list_of_upstreams_is_checked_with_the_config_that_names_it() {
    let config = path(
        "check-with-list.yaml",
        "upstreams_file: check-list.yaml\nlisten: 127.0.0.1:9\n",
    );
    for (list, code, says) in [
        (
            "upstreams: [{url: 'http://a'}, {url: 'http://b'}]\n",
            0,
            "2 upstreams",
        ),
        ("upstreams: []\n", 0, "no upstream in its list yet"),
        (
            "upstreams: [{url: a}]\n",
            1,
            "check-list.yaml:1:19: upstreams[0].url",
        ),
        (
            "upstreams: [{url: 'http://127.0.0.1:9'}]\n",
            1,
            "is this router itself",
        ),
        (
            "upstreams: [{url: 'http://a', api_key_file: nowhere}]\n",
            1,
            "nowhere",
        ),
    ] {
        path("check-list.yaml", list);
        let ended = run(&["check", &config], &[]).await;
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        assert!(
            (ended.out.clone() + &ended.log).contains(says),
            "{says}: {ended:?}"
        );
    }
    let gone = path("check-without-list.yaml", "upstreams_file: no-such-list.yaml\n");
    let ended = run(&["check", &gone], &[]).await;
    let says = "check-without-list.yaml:1:17: upstreams_file: ";
    assert!(
        ended.log.contains(says) && ended.log.contains("is not there"),
        "{ended:?}"
    );
    assert_eq!(ended.log.lines().count(), 1, "{ended:?}");
}

#[tokio::test]
async fn keys_that_stand_one_a_line_are_told_as_such_and_never_repeated() {
    let secret = "sk-secret-of-team-a-1234567890";
    let keys = path(
        "plain-keys.txt",
        &format!("# of two teams\n{secret}\n\nsk-other-1234567890\n"),
    );
    let ended = run(&["check", &keys], &[]).await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(ended.out.contains("keys, one a line; it has 2"), "{ended:?}");
    // What is no config and no file of keys is not repeated either.
    let text = path("text.yaml", &format!("{secret} and more\n"));
    let ended = run(&["check", &text], &[]).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(
        ended.log.contains("a map should stand here, not plain text"),
        "{ended:?}"
    );
    assert!(!ended.log.contains(secret), "{ended:?}");
}
