//! Envoy, as far as the picker sees it.

use std::collections::HashMap;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue, Metadata};
use envoy_types::pb::envoy::service::ext_proc::v3::body_mutation::Mutation;
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_client::ExternalProcessorClient;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request as Said;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response as Heard;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    CommonResponse, HeaderMutation, HttpBody, HttpHeaders, HttpTrailers, ImmediateResponse,
    ProcessingRequest, ProcessingResponse, ProtocolConfiguration,
};
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value, value::Kind};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// No wait in these tests is meant to take this long.
pub(crate) const HANG: Duration = Duration::from_secs(20);

pub(crate) const NONE: i32 = 0;
pub(crate) const STREAMED: i32 = 1;
pub(crate) const BUFFERED: i32 = 2;
pub(crate) const DUPLEX: i32 = 4;

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const BODY: &str = r#"{"model":"tiny","messages":[{"role":"user","content":"hi"}]}"#;

/// One stream, seen from Envoy.
pub(crate) struct Stream {
    say: Option<mpsc::Sender<ProcessingRequest>>,
    hear: Streaming<ProcessingResponse>,
}

/// What the picker has Envoy do with a request.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    pub(crate) endpoints: Vec<String>,
    pub(crate) metadata: String,
    pub(crate) set: HashMap<String, String>,
    pub(crate) removed: Vec<String>,
    pub(crate) clears_route_cache: bool,
    pub(crate) body: Option<Vec<u8>>,
}

pub(crate) fn header(key: &str, value: &str) -> HeaderValue {
    HeaderValue {
        key: key.to_owned(),
        raw_value: value.as_bytes().to_vec(),
        ..HeaderValue::default()
    }
}

pub(crate) fn message(said: Said) -> ProcessingRequest {
    ProcessingRequest {
        request: Some(said),
        ..ProcessingRequest::default()
    }
}

fn headers(headers: &[(&str, &str)], ends: bool) -> HttpHeaders {
    HttpHeaders {
        headers: Some(HeaderMap {
            headers: headers.iter().map(|(key, value)| header(key, value)).collect(),
        }),
        end_of_stream: ends,
        ..HttpHeaders::default()
    }
}

pub(crate) fn request_headers(
    method: &str,
    path: &str,
    more: &[(&str, &str)],
    ends: bool,
) -> ProcessingRequest {
    let mut all = vec![
        (":method", method),
        (":path", path),
        (":authority", "llm.example"),
    ];
    all.extend(more);
    message(Said::RequestHeaders(headers(&all, ends)))
}

pub(crate) fn response_headers(status: &str, more: &[(&str, &str)], ends: bool) -> ProcessingRequest {
    let mut all = vec![(":status", status)];
    all.extend(more);
    message(Said::ResponseHeaders(headers(&all, ends)))
}

fn piece(bytes: impl Into<Vec<u8>>, ends: bool) -> HttpBody {
    HttpBody {
        body: bytes.into(),
        end_of_stream: ends,
        ..HttpBody::default()
    }
}

pub(crate) fn request_body(bytes: impl Into<Vec<u8>>, ends: bool) -> ProcessingRequest {
    message(Said::RequestBody(piece(bytes, ends)))
}

pub(crate) fn response_body(bytes: impl Into<Vec<u8>>, ends: bool) -> ProcessingRequest {
    message(Said::ResponseBody(piece(bytes, ends)))
}

pub(crate) fn request_trailers() -> ProcessingRequest {
    message(Said::RequestTrailers(HttpTrailers::default()))
}

pub(crate) fn response_trailers() -> ProcessingRequest {
    message(Said::ResponseTrailers(HttpTrailers::default()))
}

/// With the body modes that only a first message tells.
pub(crate) fn with_modes(mut message: ProcessingRequest, request: i32, response: i32) -> ProcessingRequest {
    message.protocol_config = Some(ProtocolConfiguration {
        request_body_mode: request,
        response_body_mode: response,
        ..ProtocolConfiguration::default()
    });
    message
}

pub(crate) fn text(text: &str) -> Value {
    Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    }
}

pub(crate) fn list(texts: &[&str]) -> Value {
    Value {
        kind: Some(Kind::ListValue(ListValue {
            values: texts.iter().map(|each| text(each)).collect(),
        })),
    }
}

pub(crate) fn with_metadata(
    mut message: ProcessingRequest,
    space: &str,
    key: &str,
    value: Value,
) -> ProcessingRequest {
    let fields = Struct {
        fields: [(key.to_owned(), value)].into(),
    };
    message.metadata_context = Some(Metadata {
        filter_metadata: [(space.to_owned(), fields)].into(),
        ..Metadata::default()
    });
    message
}

impl Stream {
    pub(crate) async fn open(channel: Channel) -> Self {
        Self::try_open(channel).await.unwrap()
    }

    pub(crate) async fn try_open(channel: Channel) -> Result<Self, Status> {
        let (say, said) = mpsc::channel(8);
        let mut client = ExternalProcessorClient::new(channel).max_encoding_message_size(usize::MAX);
        let hear = timeout(HANG, client.process(ReceiverStream::new(said)));
        Ok(Self {
            say: Some(say),
            hear: hear.await.expect("no answer")?.into_inner(),
        })
    }

    pub(crate) async fn say(&self, message: ProcessingRequest) {
        let sent = timeout(HANG, self.say.as_ref().unwrap().send(message)).await;
        sent.expect("nothing is taken").unwrap();
    }

    /// Says it to one who may have left.
    pub(crate) async fn try_say(&self, message: ProcessingRequest) {
        if let Some(say) = &self.say {
            timeout(HANG, say.send(message))
                .await
                .expect("nothing is taken")
                .ok();
        }
    }

    /// Where another task says something.
    pub(crate) fn sender(&self) -> mpsc::Sender<ProcessingRequest> {
        self.say.clone().unwrap()
    }

    /// Nothing more will be said.
    pub(crate) fn close(&mut self) {
        self.say = None;
    }

    pub(crate) async fn hear(&mut self) -> Result<Option<Heard>, Status> {
        let heard = timeout(HANG, self.hear.message()).await.expect("nothing is said");
        Ok(heard?.map(|heard| heard.response.unwrap()))
    }

    /// Whether nothing is said though there is time to.
    pub(crate) async fn is_silent(&mut self) -> bool {
        timeout(Duration::from_millis(60), self.hear.message())
            .await
            .is_err()
    }

    /// A chat, all of it.
    pub(crate) async fn ask(&self, modes: (i32, i32), more: &[(&str, &str)]) {
        self.say(with_modes(
            request_headers("POST", CHAT, more, false),
            modes.0,
            modes.1,
        ))
        .await;
        self.say(request_body(BODY, true)).await;
    }

    /// Where to go, as the answer to headers or to a body, and what else is said of the request's headers.
    pub(crate) async fn placed(&mut self) -> Placed {
        let placed = self.placed_or_refused().await;
        placed.unwrap_or_else(|refused| panic!("no destination: {refused:?}"))
    }

    /// Where to go, or the status and the reason of a refusal.
    pub(crate) async fn placed_or_refused(&mut self) -> Result<Placed, (u16, String)> {
        let heard = timeout(HANG, self.hear.message()).await.expect("nothing is said");
        let answer = heard.unwrap().unwrap();
        match answer.response.unwrap() {
            Heard::RequestHeaders(headers) => Ok(placed(headers.response.unwrap(), answer.dynamic_metadata)),
            Heard::RequestBody(body) => Ok(placed(body.response.unwrap(), answer.dynamic_metadata)),
            Heard::ImmediateResponse(refusal) => {
                let (status, headers, _) = read_immediate(refusal);
                Err((status, headers["x-paddler-reason"].clone()))
            }
            other => panic!("no destination: {other:?}"),
        }
    }

    /// The body that comes back, to its end.
    pub(crate) async fn body(&mut self) -> Vec<u8> {
        self.body_in_pieces().await.0
    }

    /// The body that comes back, and in how many pieces.
    pub(crate) async fn body_in_pieces(&mut self) -> (Vec<u8>, usize) {
        let (mut body, mut pieces) = (Vec::new(), 0);
        loop {
            pieces += 1;
            let common = match self.hear().await.unwrap().expect("the body does not end") {
                Heard::RequestBody(answer) | Heard::ResponseBody(answer) => answer.response.unwrap(),
                other => panic!("no piece of a body: {other:?}"),
            };
            let Some(Mutation::StreamedResponse(piece)) = common.body_mutation.unwrap().mutation else {
                panic!("not streamed");
            };
            assert!(piece.body.len() <= 62_000);
            body.extend(piece.body);
            if piece.end_of_stream {
                return (body, pieces);
            }
        }
    }

    pub(crate) async fn immediate(&mut self) -> (u16, HashMap<String, String>, String) {
        match self.hear().await.unwrap() {
            Some(Heard::ImmediateResponse(answer)) => read_immediate(answer),
            other => panic!("no answer to the client: {other:?}"),
        }
    }

    /// The headers of the response go back.
    pub(crate) async fn response_head(&mut self) -> HashMap<String, String> {
        match self.hear().await.unwrap() {
            Some(Heard::ResponseHeaders(answer)) => {
                set(&answer.response.unwrap().header_mutation.unwrap_or_default())
            }
            other => panic!("no headers of a response: {other:?}"),
        }
    }
}

pub(crate) fn read_immediate(answer: ImmediateResponse) -> (u16, HashMap<String, String>, String) {
    let status = u16::try_from(answer.status.unwrap().code).unwrap();
    let body = String::from_utf8(answer.body).unwrap();
    (status, set(&answer.headers.unwrap_or_default()), body)
}

fn set(mutation: &HeaderMutation) -> HashMap<String, String> {
    let headers = mutation.set_headers.iter().map(|set| {
        let header = set.header.clone().unwrap();
        (header.key, String::from_utf8(header.raw_value).unwrap())
    });
    headers.collect()
}

fn placed(common: CommonResponse, metadata: Option<Struct>) -> Placed {
    let mutation = common.header_mutation.unwrap();
    let set = set(&mutation);
    let endpoints = set["x-gateway-destination-endpoint"]
        .split(',')
        .map(str::to_owned);
    let kind = |fields: &Struct, key: &str| fields.fields[key].kind.clone().unwrap();
    let Kind::StructValue(lb) = kind(&metadata.unwrap(), "envoy.lb") else {
        panic!("no metadata")
    };
    let Kind::StringValue(metadata) = kind(&lb, "x-gateway-destination-endpoint") else {
        panic!("no text")
    };
    let body = match common.body_mutation.and_then(|body| body.mutation) {
        Some(Mutation::Body(body)) => Some(body),
        _ => None,
    };
    Placed {
        endpoints: endpoints.collect(),
        metadata,
        set,
        removed: mutation.remove_headers,
        clears_route_cache: common.clear_route_cache,
        body,
    }
}
