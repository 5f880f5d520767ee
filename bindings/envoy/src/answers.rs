//! What can Envoy be told?

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::config::core::v3::{HeaderValue as SentHeader, HeaderValueOption};
use envoy_types::pb::envoy::service::ext_proc::v3::body_mutation::Mutation;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response as Kind;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeadersResponse, ImmediateResponse,
    ProcessingResponse, StreamedBodyResponse, TrailersResponse,
};
use envoy_types::pb::envoy::r#type::v3::HttpStatus;
use envoy_types::pb::google::protobuf::{Struct, Value, value};
use http::{HeaderMap, StatusCode};

use crate::gateway::{DESTINATION, LB};
use crate::heads::difference;

/// The longest piece of a body that goes back: what the protocol asks for, so that a message stays under 64 KiB with what is
/// around it.
const LONGEST_PIECE: usize = 62_000;

/// Which of the two it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    Request,
    Response,
}

fn header(name: &str, value: &[u8], action: HeaderAppendAction) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(SentHeader {
            key: name.to_owned(),
            raw_value: value.to_vec(),
            ..SentHeader::default()
        }),
        append_action: action.into(),
        ..HeaderValueOption::default()
    }
}

/// A header in the place of whatever has its name.
pub(crate) fn overwrite(name: &str, value: &[u8]) -> HeaderValueOption {
    header(name, value, HeaderAppendAction::OverwriteIfExistsOrAdd)
}

/// A header beside others of its name.
pub(crate) fn append(name: &str, value: &[u8]) -> HeaderValueOption {
    header(name, value, HeaderAppendAction::AppendIfExistsOrAdd)
}

fn say(kind: Kind) -> ProcessingResponse {
    ProcessingResponse {
        response: Some(kind),
        ..ProcessingResponse::default()
    }
}

fn headers(about: About, common: CommonResponse) -> ProcessingResponse {
    let answer = HeadersResponse {
        response: Some(common),
    };
    say(match about {
        About::Request => Kind::RequestHeaders(answer),
        About::Response => Kind::ResponseHeaders(answer),
    })
}

fn body(about: About, common: CommonResponse) -> ProcessingResponse {
    let answer = BodyResponse {
        response: Some(common),
    };
    say(match about {
        About::Request => Kind::RequestBody(answer),
        About::Response => Kind::ResponseBody(answer),
    })
}

/// The headers stay as they are.
pub(crate) fn pass_headers(about: About) -> ProcessingResponse {
    headers(about, CommonResponse::default())
}

/// The headers are changed so.
pub(crate) fn change_headers(about: About, mutation: HeaderMutation) -> ProcessingResponse {
    let common = CommonResponse {
        header_mutation: Some(mutation),
        ..CommonResponse::default()
    };
    headers(about, common)
}

/// This piece of a body stays as it is.
pub(crate) fn pass_body(about: About) -> ProcessingResponse {
    body(about, CommonResponse::default())
}

/// The trailers stay as they are.
pub(crate) fn pass_trailers(about: About) -> ProcessingResponse {
    let answer = TrailersResponse::default();
    say(match about {
        About::Request => Kind::RequestTrailers(answer),
        About::Response => Kind::ResponseTrailers(answer),
    })
}

/// A piece of a body in both directions at once, in as many messages as it takes. `ends`: nothing comes after it.
pub(crate) fn pieces(about: About, mut bytes: Bytes, ends: bool) -> impl Iterator<Item = ProcessingResponse> {
    let many = bytes.len().div_ceil(LONGEST_PIECE).max(usize::from(ends));
    (0..many).map(move |number| {
        let piece = bytes.split_to(bytes.len().min(LONGEST_PIECE));
        let streamed = StreamedBodyResponse {
            // What is nobody else's is not copied.
            body: piece.into(),
            end_of_stream: ends && number + 1 == many,
            ..StreamedBodyResponse::default()
        };
        let common = CommonResponse {
            body_mutation: Some(BodyMutation {
                mutation: Some(Mutation::StreamedResponse(streamed)),
            }),
            ..CommonResponse::default()
        };
        body(about, common)
    })
}

/// Where the request is to go.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Destination {
    /// Addresses, the first one first.
    pub(crate) endpoints: String,
    pub(crate) mutation: HeaderMutation,
    /// The body in one piece, if it is another one than before.
    pub(crate) body: Option<Vec<u8>>,
}

impl Destination {
    /// As the answer to the headers, or to the body where that has come in one piece.
    pub(crate) fn answer(mut self, to_body: bool) -> ProcessingResponse {
        self.mutation
            .set_headers
            .push(overwrite(DESTINATION, self.endpoints.as_bytes()));
        let common = CommonResponse {
            header_mutation: Some(self.mutation),
            body_mutation: self.body.map(|bytes| BodyMutation {
                mutation: Some(Mutation::Body(bytes)),
            }),
            // Another model may mean another route.
            clear_route_cache: true,
            ..CommonResponse::default()
        };
        let answer = if to_body {
            body(About::Request, common)
        } else {
            headers(About::Request, common)
        };
        ProcessingResponse {
            dynamic_metadata: Some(metadata(self.endpoints)),
            ..answer
        }
    }
}

/// `{"envoy.lb": {"x-gateway-destination-endpoint": ENDPOINTS}}`
fn metadata(endpoints: String) -> Struct {
    let of = |key: &str, kind| Struct {
        fields: [(key.to_owned(), Value { kind: Some(kind) })].into(),
    };
    let lb = of(DESTINATION, value::Kind::StringValue(endpoints));
    of(LB, value::Kind::StructValue(lb))
}

/// The client gets this answer, and nobody else the request.
pub(crate) fn immediate(status: StatusCode, headers: &HeaderMap, body: Vec<u8>) -> ProcessingResponse {
    let reason = headers
        .get("x-paddler-reason")
        .and_then(|reason| reason.to_str().ok());
    say(Kind::ImmediateResponse(ImmediateResponse {
        status: Some(HttpStatus {
            code: i32::from(status.as_u16()),
        }),
        headers: Some(difference(&HeaderMap::new(), headers, &[])),
        body,
        // Where Envoy's access log says why.
        details: reason
            .map(|reason| format!("paddler_{reason}"))
            .unwrap_or_default(),
        ..ImmediateResponse::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_never_too_long_and_the_last_one_ends() {
        let lengths = |bytes: usize, ends| {
            let all = Bytes::from(vec![b'a'; bytes]);
            let pieces = pieces(About::Request, all, ends).map(|piece| match piece.response {
                Some(Kind::RequestBody(BodyResponse {
                    response: Some(common),
                })) => match common.body_mutation.unwrap().mutation.unwrap() {
                    Mutation::StreamedResponse(piece) => (piece.body.len(), piece.end_of_stream),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            });
            pieces.collect::<Vec<_>>()
        };
        assert_eq!(lengths(0, true), [(0, true)]);
        assert_eq!(lengths(0, false), []);
        assert_eq!(lengths(62_000, true), [(62_000, true)]);
        assert_eq!(lengths(62_001, true), [(62_000, false), (1, true)]);
        assert_eq!(lengths(124_000, false), [(62_000, false), (62_000, false)]);
    }

    #[test]
    fn an_answer_of_ours_has_all_its_headers_but_those_that_are_envoys() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("set-cookie", "a"),
            ("set-cookie", "b"),
            ("content-length", "1"),
            ("connection", "close"),
            ("x-paddler-reason", "queue_full"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let Some(Kind::ImmediateResponse(answer)) =
            immediate(StatusCode::TOO_MANY_REQUESTS, &headers, b"x".to_vec()).response
        else {
            panic!()
        };
        let set: Vec<_> = answer.headers.unwrap().set_headers;
        let set: Vec<_> = set
            .into_iter()
            .map(|set| {
                let header = set.header.unwrap();
                (header.key, header.raw_value, set.append_action)
            })
            .collect();
        let (append, overwrite) = (0, 2);
        let expected = [
            ("set-cookie", &b"a"[..], overwrite),
            ("set-cookie", b"b", append),
            ("x-paddler-reason", b"queue_full", overwrite),
        ];
        assert_eq!(
            set,
            expected.map(|(name, value, action)| (name.to_owned(), value.to_vec(), action))
        );
        assert_eq!(
            (answer.status.unwrap().code, answer.details.as_str()),
            (429, "paddler_queue_full")
        );
    }
}
