use std::collections::VecDeque;

use async_trait::async_trait;
use http::Response;

use super::*;

/// Answers with one thing after the other, and keeps what it was sent.
#[derive(Debug, Default)]
struct Collector {
    answers: Mutex<VecDeque<Result<(u16, &'static str), &'static str>>>,
    seen: Mutex<Vec<Value>>,
}

#[async_trait]
impl Upstream for Collector {
    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        assert_eq!(request.uri().path(), "/v1/traces");
        assert_eq!(request.headers()[CONTENT_TYPE], "application/json");
        let body = request.into_body().collect().await?.to_bytes();
        self.seen.lock().unwrap().push(serde_json::from_slice(&body)?);
        let (status, text) = self
            .answers
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or(Ok((200, "{}")))?;
        let mut response = Response::new(Body::full(text));
        *response.status_mut() = http::StatusCode::from_u16(status)?;
        Ok(response)
    }
}

/// One that sends there, and what it has.
fn otlp(answers: &[Result<(u16, &'static str), &'static str>]) -> (Otlp, Arc<Collector>) {
    let otlp = Otlp::open(&config::Otlp::new("http://127.0.0.1:9")).unwrap();
    let collector = Arc::new(Collector::default());
    collector.answers.lock().unwrap().extend(answers);
    otlp.exporter.lock().unwrap().as_mut().unwrap().upstream = collector.clone();
    (otlp, collector)
}

fn put(otlp: &Otlp, many: usize) {
    for number in 0..many {
        let mut trail = Trail::begun("id", "POST", "/", crate::Moment::from_millis(1));
        trail.ended = Some(crate::Moment::from_millis(2));
        trail.span = Some(crate::observe::TraceSpan {
            trace_id: 1,
            span_id: number as u64 + 1,
            parent_id: None,
            state: None,
        });
        otlp.ended(&trail);
    }
}

/// How many spans each request to the collector had.
fn batches(collector: &Collector) -> Vec<usize> {
    let spans = |seen: &Value| {
        seen["resourceSpans"][0]["scopeSpans"][0]["spans"]
            .as_array()
            .unwrap()
            .len()
    };
    collector.seen.lock().unwrap().iter().map(spans).collect()
}

#[tokio::test(start_paused = true)]
async fn what_comes_close_together_is_sent_together() {
    let (otlp, collector) = otlp(&[]);
    tokio::spawn(otlp.run().unwrap());
    assert!(otlp.run().is_none(), "once");
    put(&otlp, BATCH + 3);
    sleep(GATHER * 3).await;
    assert_eq!(batches(&collector), [BATCH, 3]);
    put(&otlp, 2);
    otlp.flush().await;
    assert_eq!(batches(&collector), [BATCH, 3, 2]);
    assert_eq!(otlp.lost(), [("otlp", 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_cannot_now_is_asked_again_and_one_that_will_not_is_not() {
    let busy = [
        Ok((503, "")),
        Err("no connection"),
        Ok((429, "")),
        Ok((200, "{}")),
    ];
    let (tried, collector) = otlp(&busy);
    tokio::spawn(tried.run().unwrap());
    put(&tried, 2);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        (batches(&collector), tried.lost()),
        (vec![2; 4], vec![("otlp", 0)])
    );

    let never = [
        Ok((400, "no")),
        Ok((200, r#"{"partialSuccess": {"rejectedSpans": "2"}}"#)),
    ];
    let (refused, collector) = otlp(&never);
    tokio::spawn(refused.run().unwrap());
    put(&refused, 5);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        (batches(&collector), refused.lost()),
        (vec![5], vec![("otlp", 5)])
    );
    put(&refused, 3);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(refused.lost(), [("otlp", 7)], "two of these were not wanted");
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_gone_costs_spans_and_no_memory() {
    let (otlp, collector) = otlp(&[Err("gone"); 100]);
    put(&otlp, WAITING + 10);
    assert_eq!(otlp.lost(), [("otlp", 10)]);
    tokio::spawn(otlp.run().unwrap());
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(otlp.lost(), [("otlp", (WAITING + 10) as u64)]);
    assert_eq!(batches(&collector).len(), WAITING / BATCH * ATTEMPTS as usize);
}

#[test]
fn a_caller_decides_and_chance_where_there_is_none() {
    let at = |sample| {
        let mut config = config::Otlp::new("http://127.0.0.1:9");
        config.sample = sample;
        Otlp::open(&config).unwrap()
    };
    let (none, tenth, all) = (at(0.0), at(0.1), at(1.0));
    let mut chance = 0;
    for number in 1..10_000_u128 {
        let id = number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        for otlp in [&none, &tenth, &all] {
            assert!(otlp.traces(Some(true), id) && !otlp.traces(Some(false), id));
        }
        assert!(all.traces(None, id) && !none.traces(None, id));
        chance += u32::from(tenth.traces(None, id));
    }
    assert!((800..1_200).contains(&chance), "{chance}");
}

#[test]
fn headers_are_read_from_a_file_and_faults_do_not_tell_them() {
    let file = std::env::temp_dir().join(format!("paddler-otlp-{}", std::process::id()));
    std::fs::write(&file, "# for us\n\nAuthorization: Bearer secret\nx-scope:a\n").unwrap();
    let headers = Otlp::read_headers(&file).unwrap();
    assert_eq!(
        (headers.len(), &headers["x-scope"]),
        (2, &HeaderValue::from_static("a"))
    );
    assert!(headers["authorization"].is_sensitive());
    std::fs::write(&file, "x: y\nsecret\n").unwrap();
    let fault = Otlp::read_headers(&file).unwrap_err().to_string();
    assert!(
        fault.contains(":2 (otlp.headers_file)") && !fault.contains("secret"),
        "{fault}"
    );
    std::fs::remove_file(&file).unwrap();
    assert!(Otlp::read_headers(&file).is_err());
}
