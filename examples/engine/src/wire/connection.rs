//! How is one connection served, and when is it closed?

use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::sleep_until;

use super::line::Line;
use super::socket::Wire;
use crate::config::Face;
use crate::core::Core;
use crate::serve;

/// Serves a connection to its end.
pub(crate) async fn run(core: Arc<Core>, stream: TcpStream) {
    // Small writes must not wait for each other; where this fails the socket is gone anyway.
    stream.set_nodelay(true).ok();
    let line = Line::new();
    let service = service_fn(|request: Request<Incoming>| serve::answer(core.clone(), line.begin(), request));
    let connection = http1::Builder::new()
        .title_case_headers(core.config.face == Face::Llamacpp)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(Wire::new(stream, line.clone())), service);
    let mut connection = std::pin::pin!(connection);
    let mut closing = false;
    let born = core.crashes();
    loop {
        let deadline = line.idle_deadline(core.config.keep_alive).filter(|_| !closing);
        let idle = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // How a connection ended is seen in what was counted, not in hyper's error: cuts are the point.
            _ = connection.as_mut() => return,
            () = core.crashed(born) => {
                line.reset_at_end();
                return;
            }
            () = line.changed(), if !closing => closing = line.must_close(),
            () = idle => closing = true,
        }
        if closing {
            connection.as_mut().graceful_shutdown();
        }
    }
}
