use paddler_core::source::{Answer, Endpoint, Plan, ProbeAnswers, identify};
use paddler_core::upstream::Engine;

use crate::sample::Recorded;

const NOTHING: ProbeAnswers<'_> = ProbeAnswers {
    health: None,
    props: None,
    metrics: None,
    version: None,
    models: None,
    metadata: None,
    tags: None,
};

fn unnamed(recorded: &Recorded) -> Option<Answer<'_>> {
    Some(Answer::new(recorded.status, &recorded.body))
}

#[test]
fn llamacpp_is_known_by_any_one_sign() {
    let [health, props, models, loading] = ["health_ok", "props", "models", "metrics_loading"]
        .map(|name| Recorded::read(&format!("llamacpp/{name}")));
    for answers in [
        ProbeAnswers {
            health: Some(health.answer()),
            ..NOTHING
        },
        ProbeAnswers {
            props: unnamed(&props),
            ..NOTHING
        },
        ProbeAnswers {
            models: unnamed(&models),
            ..NOTHING
        },
        ProbeAnswers {
            metrics: unnamed(&loading),
            ..NOTHING
        },
        ProbeAnswers {
            health: Some(Answer::new(404, b"").server("llama.cpp/b11434")),
            ..NOTHING
        },
    ] {
        assert_eq!(identify(&answers), Some(Engine::Llamacpp), "{answers:?}");
    }
    assert_eq!(
        identify(&ProbeAnswers {
            health: unnamed(&health),
            ..NOTHING
        }),
        None
    );
}

#[test]
fn vllm_is_known_by_its_models_or_its_metrics_with_a_version() {
    let [health, metrics, version, models, unauthorised] =
        ["health", "metrics_idle", "version", "v1_models", "err_401_models"]
            .map(|name| Recorded::read(&format!("vllm/{name}")));
    let with_key = ProbeAnswers {
        health: Some(health.answer()),
        metrics: Some(metrics.answer()),
        version: Some(version.answer()),
        models: Some(unauthorised.answer()),
        ..NOTHING
    };
    assert_eq!(identify(&with_key), Some(Engine::Vllm));
    assert_eq!(
        identify(&ProbeAnswers {
            models: Some(models.answer()),
            ..NOTHING
        }),
        Some(Engine::Vllm)
    );
    for half in [
        ProbeAnswers {
            metrics: None,
            ..with_key
        },
        ProbeAnswers {
            version: None,
            ..with_key
        },
        ProbeAnswers {
            metrics: Some(Answer::new(200, b"go_info 1\n")),
            ..with_key
        },
    ] {
        assert_eq!(identify(&half), None, "{half:?}");
    }
}

#[test]
fn whoever_else_lists_models_is_openai() {
    let listed = Answer::new(200, br#"{"object":"list","data":[{"id":"m","owned_by":"me"}]}"#);
    let not_found = Some(Answer::new(404, br#"{"detail":"Not Found"}"#));
    let answers = ProbeAnswers {
        health: not_found,
        props: not_found,
        models: Some(listed),
        ..NOTHING
    };
    assert_eq!(identify(&answers), Some(Engine::Openai));
    for body in [
        "",
        "<html>",
        "[]",
        "{}",
        r#"{"data":[]}"#,
        r#"{"data":[{"owned_by":"x"}]}"#,
        "null",
    ] {
        let answers = ProbeAnswers {
            models: Some(Answer::new(200, body.as_bytes())),
            ..NOTHING
        };
        assert_eq!(identify(&answers), None, "{body}");
    }
    assert_eq!(
        identify(&ProbeAnswers {
            models: Some(Answer {
                status: 500,
                ..listed
            }),
            ..NOTHING
        }),
        None
    );
}

#[test]
fn slow_paths_are_asked_on_every_tenth_poll() {
    let plan = Plan::of(Engine::Llamacpp);
    let asked: Vec<Vec<Endpoint>> = (0..21).map(|poll| plan.asks(poll).collect()).collect();
    for (poll, asked) in asked.iter().enumerate() {
        assert_eq!(asked.contains(&Endpoint::Models), poll % 10 == 0, "{poll}");
        assert!(asked.contains(&Endpoint::Slots) && asked.contains(&Endpoint::Metrics));
    }
    let paths: Vec<_> = Plan::of(Engine::Auto).asks(3).map(Endpoint::path).collect();
    assert_eq!(
        paths,
        [
            "/health",
            "/props",
            "/metrics",
            "/version",
            "/v1/models",
            "/v2",
            "/api/tags"
        ]
    );
}

#[test]
fn a_router_is_known_by_itself_whatever_is_behind_it() {
    let engines = Answer::new(200, b"{}").server("llama.cpp");
    let listed = Answer::new(
        200,
        br#"{"object":"list","data":[{"id":"m","owned_by":"paddler"}]}"#,
    );
    let none = Answer::new(200, br#"{"object":"list","data":[]}"#).server("paddler");
    for models in [listed, none] {
        let answers = ProbeAnswers {
            health: Some(engines),
            version: Some(engines),
            models: Some(models),
            ..ProbeAnswers::default()
        };
        assert_eq!(identify(&answers), Some(Engine::Paddler));
    }
}

#[test]
fn others_are_known_by_the_owner_of_their_models_or_by_a_list_of_their_own() {
    let owned = |owner: &str| format!(r#"{{"object":"list","data":[{{"id":"m","owned_by":"{owner}"}}]}}"#);
    for (owner, engine) in [
        ("sglang", Engine::Sglang),
        ("tensorrt_llm", Engine::Trtllm),
        ("Triton Inference Server", Engine::Triton),
        ("library", Engine::Ollama),
    ] {
        let models = owned(owner);
        let answers = ProbeAnswers {
            models: Some(Answer::new(200, models.as_bytes())),
            ..NOTHING
        };
        assert_eq!(identify(&answers), Some(engine));
    }
    let (mine, nobodys) = (owned("me"), r#"{"object":"list","data":[]}"#.to_owned());
    for (models, tags, engine) in [
        (
            &nobodys,
            r#"{"models":[{"name":"m:latest"}]}"#,
            Some(Engine::Ollama),
        ),
        (&mine, r#"{"models":[{"name":"m:latest"}]}"#, Some(Engine::Openai)),
        (&nobodys, r#"{"models":[]}"#, None),
        (&nobodys, r#"{"models":[{"id":1}]}"#, None),
        (&nobodys, "[]", None),
    ] {
        let answers = ProbeAnswers {
            models: Some(Answer::new(200, models.as_bytes())),
            tags: Some(Answer::new(200, tags.as_bytes())),
            ..NOTHING
        };
        assert_eq!(identify(&answers), engine, "{tags}");
    }
}

#[test]
fn triton_is_known_by_its_metadata_and_no_other_server_that_has_such() {
    let refused = Answer::new(400, b"");
    let named = |name: &str| {
        format!(r#"{{"name":"{name}","version":"2.42.0","extensions":["classification","sequence"]}}"#)
    };
    for (name, engine) in [("triton", Some(Engine::Triton)), ("mlserver", None), ("", None)] {
        let metadata = named(name);
        let answers = ProbeAnswers {
            health: Some(refused),
            models: Some(refused),
            metadata: Some(Answer::new(200, metadata.as_bytes())),
            ..NOTHING
        };
        assert_eq!(identify(&answers), engine, "{name}");
    }
    let vllm = br#"{"object":"list","data":[{"id":"m","owned_by":"vllm"}]}"#;
    let answers = ProbeAnswers {
        models: Some(Answer::new(200, vllm)),
        metadata: Some(Answer::new(200, named("triton").leak().as_bytes())),
        ..NOTHING
    };
    assert_eq!(identify(&answers), Some(Engine::Vllm), "a proxy may lead to both");
}
