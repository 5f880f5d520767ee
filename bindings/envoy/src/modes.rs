//! Which bodies does Envoy show us, and how does it want them answered?
//!
//! It says so in its first message (`protocol_config`), if it is new enough to. What it does not say is what the endpoint
//! picker protocol asks for: everything, both ways at once.

use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use envoy_types::pb::envoy::service::ext_proc::v3::ProtocolConfiguration;

/// What is shown of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestBody {
    /// `FULL_DUPLEX_STREAMED`: in pieces, which it gets back from us, or what else is to stand there.
    Duplex,
    /// `BUFFERED`: in one piece, after the headers have been answered, and before they are passed on.
    Whole,
    /// There is none.
    Empty,
    /// `STREAMED`: in pieces, once the headers have been passed on, which is too late to read it.
    Late,
    /// `NONE`.
    Hidden,
}

impl RequestBody {
    /// Whether all of it is known before a place has to be named.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::Duplex | Self::Whole | Self::Empty)
    }
}

/// What is shown of a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseBody {
    /// `FULL_DUPLEX_STREAMED`.
    Duplex,
    /// `STREAMED` or `BUFFERED`: each piece is passed on once it has been answered.
    Answered,
    /// `NONE`: when the answer has ended cannot be seen.
    Hidden,
}

/// What is shown in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) request: RequestBody,
    pub(crate) response: ResponseBody,
}

impl Modes {
    /// What Envoy says, or the direction and the mode that is not served.
    pub(crate) fn of(config: Option<&ProtocolConfiguration>) -> Result<Self, String> {
        let Some(config) = config else {
            return Ok(Self {
                request: RequestBody::Duplex,
                response: ResponseBody::Duplex,
            });
        };
        let mode = |direction: &str, number: i32| {
            // Of a part nobody knows what the rest says, which goes on unjudged.
            let not_served = [BodySendMode::Grpc, BodySendMode::BufferedPartial];
            let mode = BodySendMode::try_from(number)
                .ok()
                .filter(|mode| !not_served.contains(mode));
            mode.ok_or_else(|| {
                format!(
                    "the {direction} body mode {number} is not served: use FULL_DUPLEX_STREAMED, or BUFFERED"
                )
            })
        };
        let request = match mode("request", config.request_body_mode)? {
            BodySendMode::FullDuplexStreamed => RequestBody::Duplex,
            BodySendMode::Buffered => RequestBody::Whole,
            BodySendMode::Streamed => RequestBody::Late,
            _ => RequestBody::Hidden,
        };
        let response = match mode("response", config.response_body_mode)? {
            BodySendMode::FullDuplexStreamed => ResponseBody::Duplex,
            BodySendMode::Buffered | BodySendMode::Streamed => ResponseBody::Answered,
            _ => ResponseBody::Hidden,
        };
        let in_turn = request == RequestBody::Late || response == ResponseBody::Answered;
        if in_turn && config.send_body_without_waiting_for_header_response {
            return Err(
                "bodies that come before their headers are answered are not served in this mode: \
                        leave send_body_without_waiting_for_header_response out, or use FULL_DUPLEX_STREAMED"
                    .to_owned(),
            );
        }
        Ok(Self { request, response })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_as_envoy_says_and_else_as_the_protocol_asks() {
        let of = |request, response| {
            let config = ProtocolConfiguration {
                request_body_mode: request,
                response_body_mode: response,
                ..ProtocolConfiguration::default()
            };
            Modes::of(Some(&config)).map(|modes| (modes.request, modes.response))
        };
        assert_eq!(of(0, 0), Ok((RequestBody::Hidden, ResponseBody::Hidden)));
        assert_eq!(of(1, 1), Ok((RequestBody::Late, ResponseBody::Answered)));
        assert_eq!(of(2, 2), Ok((RequestBody::Whole, ResponseBody::Answered)));
        assert_eq!(of(4, 4), Ok((RequestBody::Duplex, ResponseBody::Duplex)));
        assert!(
            of(3, 4).is_err()
                && of(4, 3).is_err()
                && of(5, 4).is_err()
                && of(4, 5).is_err()
                && of(77, 4).is_err()
        );
        let hasty = |request, response| {
            let config = ProtocolConfiguration {
                request_body_mode: request,
                response_body_mode: response,
                send_body_without_waiting_for_header_response: true,
            };
            Modes::of(Some(&config)).is_ok()
        };
        assert!(hasty(4, 4) && !hasty(1, 4) && !hasty(4, 1));
        let unsaid = Modes::of(None).unwrap();
        assert_eq!(
            (unsaid.request, unsaid.response),
            (RequestBody::Duplex, ResponseBody::Duplex)
        );
    }
}
