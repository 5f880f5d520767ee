//! What does a proxy cost that is hyper and nothing else?
//!
//! It reads no body, knows no statuses and picks in turn: what is under its figures is hyper's, tokio's and the system's, and what
//! a router costs over them is its own. `proxies --peers bare` runs it.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use clap::Parser;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use paddler_benches::harness::Failure;
use tokio::net::TcpListener;

/// As the program `paddler` has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Forwards each request to one of the engines, in turn.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where it listens.
    #[arg(long)]
    listen: SocketAddr,
    /// Where the engines are, with commas between.
    #[arg(long, required = true, value_delimiter = ',')]
    engines: Vec<Authority>,
}

#[derive(Debug)]
struct Proxy {
    client: Client<HttpConnector, Incoming>,
    engines: Vec<Authority>,
    turn: AtomicUsize,
}

impl Proxy {
    async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>, Failure> {
        let turn = self.turn.fetch_add(1, Relaxed) % self.engines.len();
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.engines[turn].clone())
            .path_and_query(path.unwrap_or(PathAndQuery::from_static("/")))
            .build()?;
        Ok(self.client.request(request).await?)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match serve(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Ends with the program.
async fn serve(arguments: Arguments) -> Result<(), Failure> {
    let listener = TcpListener::bind(arguments.listen).await?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let proxy = Arc::new(Proxy {
        client: Client::builder(TokioExecutor::new()).build(connector),
        engines: arguments.engines,
        turn: AtomicUsize::new(0),
    });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let proxy = proxy.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| proxy.forward(request));
            if let Err(error) = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await
            {
                eprintln!("{error}");
            }
        });
    }
}
