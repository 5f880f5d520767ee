//! Are requests classed by what an engine would make of them?

use paddler_core::Moment;
use paddler_core::request::path::normalise;
use paddler_core::request::{
    BodyKind, Dialect, FactsError, RequestClass, RequestFacts, Route, ScanLimits, Scanned, Scanner, Task,
};
use proptest::prelude::*;

fn route(method: &str, path: &str) -> Route {
    Route::of(method, path).unwrap()
}

fn scan(body: &str) -> Scanned {
    Scanner::scan(body.as_bytes(), ScanLimits::default()).unwrap()
}

fn facts(path: &str, body: &str) -> RequestFacts {
    RequestFacts::from_scan(&route("POST", path), &scan(body), Moment::from_millis(5), 7).unwrap()
}

#[test]
fn paths_of_each_dialect() {
    use Dialect::{Anthropic, Llamacpp, Ollama, Openai, Triton};
    use RequestClass::{Admin, Control, Generate, Local};
    for (request, class, dialect) in [
        ("POST /v1/chat/completions", Generate(Task::Chat), Openai),
        ("POST /chat/completions", Generate(Task::Chat), Llamacpp),
        ("POST /v1/completions", Generate(Task::Completion), Openai),
        ("POST /completion", Generate(Task::Completion), Llamacpp),
        ("POST /completions", Generate(Task::Completion), Llamacpp),
        ("POST /infill", Generate(Task::Infill), Llamacpp),
        ("POST /v1/embeddings", Generate(Task::Embedding), Openai),
        ("POST /embedding", Generate(Task::Embedding), Llamacpp),
        ("POST /v1/rerank", Generate(Task::Rerank), Llamacpp),
        ("POST /score", Generate(Task::Rerank), Openai),
        ("POST /classify", Generate(Task::Pooling), Openai),
        ("POST /v1/responses", Generate(Task::Responses), Openai),
        ("GET /v1/responses/resp_1", Control, Openai),
        ("POST /v1/responses/resp_1/cancel", Control, Openai),
        ("POST /v1/messages", Generate(Task::Messages), Anthropic),
        ("POST /v1/messages/count_tokens", Control, Anthropic),
        ("POST /v1/audio/transcriptions", Generate(Task::Audio), Openai),
        ("POST /v1/images/generations", Generate(Task::Image), Openai),
        ("POST /tokenize", Control, Llamacpp),
        ("POST /apply-template", Control, Llamacpp),
        ("POST /api/chat", Generate(Task::Chat), Ollama),
        ("DELETE /api/delete", Admin, Ollama),
        ("POST /v2/models/m/generate", Generate(Task::Completion), Triton),
        (
            "POST /v2/models/m/versions/2/generate_stream",
            Generate(Task::Completion),
            Triton,
        ),
        ("POST /v2/models/m/infer", Generate(Task::Other), Triton),
        (
            "POST /v2/models/m/versions/2/infer",
            Generate(Task::Other),
            Triton,
        ),
        ("POST /v2/models/m/n/infer", Generate(Task::Other), Triton),
        ("GET /v2/models/m/generate", Control, Triton),
        ("GET /v2/models/m/config", Control, Triton),
        ("GET /v2/models/m/stats", Admin, Triton),
        ("GET /v2/models/stats", Admin, Triton),
        ("POST /v2/models/m/versions/1/trace/setting", Admin, Triton),
        ("POST /v2/repository/index", Admin, Triton),
        ("POST /v2/repository/models/m/load", Admin, Triton),
        ("GET /v2/cudasharedmemory/status", Admin, Triton),
        ("GET /v2/health/ready", Control, Openai),
        ("POST /v2/rerank", Generate(Task::Rerank), Openai),
        ("GET /v1/models", Local, Openai),
        ("HEAD /v1/models", Local, Openai),
        ("GET /models", Local, Llamacpp),
        ("GET /health", Local, Openai),
        ("GET /v1/models/llama", Control, Openai),
        ("DELETE /v1/models/llama", Admin, Openai),
        ("POST /models", Admin, Llamacpp),
        ("POST /models/load", Admin, Llamacpp),
        ("GET /slots", Admin, Llamacpp),
        ("POST /slots/0", Admin, Llamacpp),
        ("GET /props", Admin, Llamacpp),
        ("POST /props", Admin, Llamacpp),
        ("GET /metrics", Admin, Llamacpp),
        ("POST /lora-adapters", Admin, Llamacpp),
        ("POST /v1/load_lora_adapter", Admin, Openai),
        ("POST /sleep", Admin, Openai),
        ("POST /collective_rpc", Admin, Openai),
        ("GET /load", Admin, Openai),
        ("OPTIONS /slots", Control, Openai),
        ("OPTIONS /v1/chat/completions", Control, Openai),
        ("GET /v1/chat/completions", Control, Openai),
        ("GET /", Control, Openai),
        ("GET /slotsx", Control, Openai),
        ("GET /version", Control, Openai),
        ("POST /v1/something/new", Generate(Task::Other), Openai),
        ("post /v1/chat/completions", Control, Openai),
    ] {
        let (method, path) = request.split_once(' ').unwrap();
        let found = route(method, path);
        assert_eq!((found.class, found.dialect), (class, dialect), "{request}");
    }
}

#[test]
fn admin_paths_cannot_be_disguised() {
    for path in [
        "/slots",
        "//slots",
        "/%73lots",
        "/slots/",
        "/v1/../slots",
        "/./slots",
        "/%2E/slots//",
        "/a/%2e%2e/slots/.",
    ] {
        assert_eq!(route("GET", path).class, RequestClass::Admin, "{path}");
    }
    for path in [
        "/slots%2f",
        "/slots%00",
        "/\\slots",
        "/..%2fslots",
        "/%2573lots",
        "/slots?x",
    ] {
        assert!(Route::of("GET", path).is_err(), "{path}");
    }
}

#[test]
fn bodies_and_replays() {
    let chat = route("POST", "/v1/chat/completions");
    assert_eq!((chat.body, chat.replayable), (BodyKind::Json, true));
    let audio = route("POST", "/v1/audio/transcriptions");
    assert_eq!((audio.body, audio.replayable), (BodyKind::Form, false));
    let infer = route("POST", "/v2/models/m/infer");
    assert_eq!((infer.body, infer.replayable), (BodyKind::Unknown, false));
    assert!(route("POST", "/v2/models/m/versions/1/generate").replayable);
    let new = route("POST", "/v1/something/new");
    assert_eq!((new.body, new.replayable), (BodyKind::Unknown, false));
    assert!(route("GET", "/anything").replayable);
    assert!(!route("PUT", "/anything").replayable);
    assert!(!route("POST", "/v1/responses/resp_1/cancel").replayable);
    assert!(route("GET", "/slots").replayable);
    assert!(!route("POST", "/slots/1").replayable);
}

#[test]
fn the_least_that_a_prompt_can_come_to() {
    let text = "x".repeat(1_600);
    for (path, body, least) in [
        (
            "/v1/chat/completions",
            format!(r#"{{"messages":[{{"content":"{text}"}},{{"content":"{text}"}}]}}"#),
            200,
        ),
        (
            "/v1/responses",
            format!(r#"{{"input":[{{"content":"{text}"}},{{"content":"{text}"}}]}}"#),
            200,
        ),
        (
            "/v1/completions",
            format!(r#"{{"prompt":["{text}","{text}","{text}","{text}"]}}"#),
            100,
        ),
        ("/v1/completions", r#"{"prompt":[1,2,3]}"#.to_owned(), 3),
        (
            "/v1/completions",
            r#"{"prompt":[[1,2,3],[1,2,3,4,5]]}"#.to_owned(),
            4,
        ),
        ("/v1/embeddings", format!(r#"{{"input":["{text}","a"]}}"#), 50),
        (
            "/rerank",
            format!(r#"{{"query":"{text}","texts":["{text}","{text}"]}}"#),
            150,
        ),
        (
            "/v1/completions",
            format!(r#"{{"prompt":"{text}","truncate_prompt_tokens":9}}"#),
            0,
        ),
        (
            "/v1/responses",
            format!(r#"{{"input":"{text}","truncation":"auto"}}"#),
            0,
        ),
        (
            "/v1/embeddings",
            format!(r#"{{"input":"{text}","truncate":false}}"#),
            100,
        ),
        ("/tokenize", format!(r#"{{"content":"{text}"}}"#), 0),
    ] {
        let facts = facts(path, &body);
        assert_eq!(
            facts.least_tokens,
            least,
            "{path} {}",
            &body[..40.min(body.len())]
        );
        assert!(facts.least_tokens <= facts.tokens);
    }
    let images = |body: &str| facts("/v1/chat/completions", body).images;
    assert!(images(
        r#"{"messages":[{"content":[{"image_url":{"url":"a"}}]}]}"#
    ));
    assert!(images(r#"{"messages":[{"content":[{"image_url":"a"}]}]}"#));
    for none in [
        r#"{"messages":[{"content":[{"image_url":null,"url":"a"}]}]}"#,
        r#"{"messages":[{"content":"image_url"}]}"#,
        r#"{"tools":[{"image_url":{"url":"a"}}],"image_url":"a"}"#,
    ] {
        assert!(!images(none), "{none}");
    }
}

#[test]
fn weights() {
    for (path, body, weight) in [
        ("/v1/chat/completions", r#"{"messages":[],"n":3}"#, 3),
        ("/v1/chat/completions", r#"{"messages":[],"n":0}"#, 1),
        ("/v1/chat/completions", r#"{"prompt":["a","b"]}"#, 1),
        ("/v1/completions", r#"{"prompt":["a","b"],"n":3}"#, 6),
        ("/v1/completions", r#"{"prompt":[]}"#, 1),
        ("/completion", r#"{"prompt":"a","n_cmpl":4,"n":2}"#, 4),
        ("/completion", r#"{"prompt":[1,2,3]}"#, 1),
        (
            "/v1/completions",
            r#"{"prompt":["a","b"],"n":4294967295}"#,
            u32::MAX,
        ),
        ("/v1/embeddings", r#"{"input":["a","b","c"],"n":9}"#, 3),
        ("/embedding", r#"{"content":["a","b"]}"#, 2),
        ("/v1/rerank", r#"{"query":"q","documents":["a","b"]}"#, 2),
        ("/rerank", r#"{"query":"q","texts":["a","b","c"]}"#, 3),
        ("/score", r#"{"text_1":"q","text_2":["a","b"]}"#, 2),
        ("/v1/responses", r#"{"input":[{},{},{}]}"#, 1),
        ("/v1/messages", r#"{"messages":[{},{}]}"#, 1),
        ("/tokenize", r#"{"content":"a"}"#, 0),
        ("/new", r#"{"model":"m","prompt":["a","b"],"n":2}"#, 4),
        ("/new", r#"{"prompt":["a","b"],"n":2}"#, 0),
    ] {
        assert_eq!(facts(path, body).weight, weight, "{path} {body}");
    }
    assert_eq!(
        facts("/new", r#"{"model":"m"}"#).class,
        RequestClass::Generate(Task::Other)
    );
    assert_eq!(facts("/new", "{}").class, RequestClass::Control);
    let unread = RequestFacts::from_route(&route("POST", "/v1/audio/transcriptions"), 9, Moment::ZERO, 0);
    assert_eq!((unread.weight, unread.body_bytes), (1, 9));
    assert_eq!(
        RequestFacts::from_route(&route("POST", "/new"), 0, Moment::ZERO, 0).weight,
        0
    );
}

#[test]
fn tokens_are_estimated() {
    for (body, tokens) in [
        (r#"{"prompt":""}"#, 0),
        (r#"{"prompt":"12345"}"#, 2),
        (r#"{"prompt":[1,2,3]}"#, 3),
        (r#"{"prompt":["1234",[1,2]],"system":"1234"}"#, 4),
        (
            r#"{"prompt":{"prompt_string":"1234","multimodal_data":["AAAAAAAAAAAA"]}}"#,
            513,
        ),
    ] {
        assert_eq!(facts("/v1/completions", body).tokens, tokens, "{body}");
    }
}

#[test]
fn replays_leave_nothing_twice() {
    for (path, body, replayable) in [
        ("/v1/chat/completions", "{}", true),
        ("/v1/chat/completions", r#"{"store":false}"#, true),
        ("/v1/chat/completions", r#"{"store":true}"#, false),
        ("/v1/chat/completions", r#"{"store":1}"#, false),
        ("/v1/responses", "{}", false),
        ("/v1/responses", r#"{"store":null}"#, false),
        ("/v1/responses", r#"{"store":false}"#, true),
        ("/v1/responses", r#"{"store":false,"background":true}"#, false),
        (
            "/v1/responses",
            r#"{"store":false,"previous_response_id":"r"}"#,
            false,
        ),
        (
            "/v1/responses",
            r#"{"store":false,"previous_response_id":null}"#,
            true,
        ),
        ("/new", r#"{"model":"m"}"#, false),
        ("/tokenize", "{}", true),
    ] {
        assert_eq!(facts(path, body).replayable, replayable, "{path} {body}");
    }
}

#[test]
fn facts_travel_as_json_and_are_borrowed_whole() {
    let scanned = facts(
        "/v1/chat/completions",
        r#"{"model":"m","user":"u","stream":true}"#,
    );
    let complete = scanned
        .as_facts()
        .tenant("t")
        .deadline(Moment::from_millis(9))
        .priority(-2);
    let owned = RequestFacts::from(complete);
    let read: RequestFacts = serde_json::from_str(&serde_json::to_string(&owned).unwrap()).unwrap();
    assert_eq!(read, owned);
    let borrowed = owned.as_facts();
    assert_eq!(
        (borrowed.model, borrowed.session, borrowed.tenant),
        (Some("m"), Some("u"), Some("t"))
    );
    assert_eq!(
        (borrowed.seed, borrowed.arrived, borrowed.stream),
        (7, Moment::from_millis(5), true)
    );
    assert!(!borrowed.critical() && borrowed.priority(0).critical());
    assert_eq!(borrowed.class(RequestClass::Control).weight, 0);
    assert_eq!(
        RequestFacts::new().as_facts(),
        paddler_core::request::Facts::new()
    );
}

#[test]
fn a_model_too_long_has_no_facts() {
    let scanned = scan(&format!("{{\"model\":\"{}\"}}", "m".repeat(2000)));
    let refused = RequestFacts::from_scan(&route("POST", "/v1/completions"), &scanned, Moment::ZERO, 0);
    assert_eq!(refused, Err(FactsError::ModelTooLong { bytes: 2000 }));
}

/// What the most eager engine makes of a path: it decodes everything, splits at both slashes, and resolves dots.
fn eager(path: &str) -> Vec<String> {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = |at: usize| char::from(*after.get(at)?).to_digit(16);
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    let text = String::from_utf8_lossy(&bytes).replace('\\', "/");
    let mut segments = Vec::new();
    for segment in text.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment.to_owned()),
        }
    }
    segments
}

fn path() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "/", "/", "//", ".", "..", "/../", "slots", "%73lots", "v1", "models", "%2e", "%2E", "%2f", "%5c",
        "\\", "%25", "%", "%00", "é", "%C3%a9", "%20", "2f", "73", "A", "~", "?", "%7e", ";x",
    ]);
    let built = prop::collection::vec(piece, 0..8).prop_map(|pieces| format!("/{}", pieces.concat()));
    prop_oneof![4 => built, 1 => "/[ -~]{0,12}", 1 => any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    #[test]
    fn a_normal_path_is_what_every_engine_sees(path in path()) {
        if let Ok(normal) = normalise(&path) {
            prop_assert_eq!(normalise(&normal), Ok(normal.clone()), "twice is once");
            prop_assert_eq!(eager(&path), eager(&normal), "the same after all decoding");
            // An engine that decodes nothing sees the same segments, but for what stays encoded.
            let plain: Vec<_> = normal.split('/').skip(1).filter(|segment| !segment.is_empty()).collect();
            prop_assert_eq!(plain.len(), eager(&normal).len());
            if !normal.contains('%') {
                prop_assert_eq!(plain, eager(&path));
            }
        }
    }
}

#[test]
fn a_path_that_names_the_model_counts_and_not_its_body() {
    let read =
        |path: &str, body: &str| RequestFacts::read("POST", path, body.as_bytes(), Moment::ZERO, 7).unwrap();
    let body = r#"{"text_input": ["12345678", "1234"], "model": "other", "parameters": {"stream": true}}"#;
    for (path, stream) in [
        ("/v2/models/m/generate", false),
        ("//v2/models/%6D/versions/1/generate_stream", true),
    ] {
        let facts = read(path, body);
        assert_eq!(facts.model.as_deref(), Some("m"), "{path}");
        assert_eq!(
            (facts.stream, facts.weight, facts.tokens),
            (stream, 2, 3),
            "{path}"
        );
    }
    let tensors = [
        r#"{"inputs": [{"name": "IDS", "shape": [1, 2], "datatype": "INT32", "data": [7, 8]}]}"#,
        "",
        "\0",
    ];
    for body in tensors {
        let facts = read("/v2/models/m/infer", body);
        assert_eq!((facts.model.as_deref(), facts.weight), (Some("m"), 1), "{body}");
        assert_eq!(facts.class, RequestClass::Generate(Task::Other));
    }
    let get = RequestFacts::read("GET", "/v2/models/m/config", b"", Moment::ZERO, 7).unwrap();
    assert_eq!((get.class, get.weight), (RequestClass::Control, 0));
    assert_eq!(get.model.as_deref(), Some("m"));
}
