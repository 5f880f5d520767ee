//! Which files does a config name?
//!
//! They are listed here once, for whoever looks for them, reads or watches them. What names files is taken apart in full, so
//! that a new setting cannot be left out. The access log is none of them: it is written, and changes all the time.

use std::path::PathBuf;

use super::{AgentRules, Config, ListenerTls, Otlp, Telemetry, UpstreamConfig};
use crate::upstream::{Protocol, Tls, UpstreamSpec};

/// A file that a setting names. `P`: a reference to its path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedFile<P> {
    /// The setting, as faults name it: `upstreams[0].tls.ca`.
    pub setting: String,
    /// What it is for.
    pub purpose: FilePurpose,
    /// Where it is. Never empty.
    pub path: P,
}

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FilePurpose {
    /// A list of more upstreams: see [`Config::upstreams_file`].
    Upstreams,
    /// The keys that clients present, or agents, or those of the management API.
    Keys,
    /// The TLS of clients.
    ListenerTls,
    /// The key that is sent to the upstream at this position of [`Config::upstreams`].
    UpstreamKey(usize),
    /// The TLS with the upstream at this position.
    UpstreamTls(usize),
    /// What the collector of OpenTelemetry wants.
    OtlpHeaders,
}

/// One list for a config that is shared and for one that is not.
macro_rules! named_files {
    ($config:expr) => {{
        let Config {
            upstreams_file,
            api_key_file,
            management_key_file,
            agents: AgentRules { key_file, access: _ },
            tls,
            upstreams,
            telemetry:
                Telemetry {
                    otlp,
                    access_log: _,
                    count_tokens: _,
                    statsd: _,
                },
            ..
        } = $config;
        let mut all = Vec::new();
        let mut add = |setting: String, purpose, path: Option<_>| {
            all.extend(path.map(|path| NamedFile {
                setting,
                purpose,
                path,
            }));
        };
        add(
            "upstreams_file".into(),
            FilePurpose::Upstreams,
            upstreams_file.into(),
        );
        add("api_key_file".into(), FilePurpose::Keys, api_key_file.into());
        add(
            "management_key_file".into(),
            FilePurpose::Keys,
            management_key_file.into(),
        );
        add("agents.key_file".into(), FilePurpose::Keys, key_file.into());
        if let Some(ListenerTls {
            certificate,
            key,
            client_ca,
            client_certificates: _,
            handshake_timeout: _,
            handshakes: _,
            management: _,
        }) = tls
        {
            let of_clients = FilePurpose::ListenerTls;
            add("tls.certificate".into(), of_clients, Some(certificate));
            add("tls.key".into(), of_clients, Some(key));
            add("tls.client_ca".into(), of_clients, client_ca.into());
        }
        for (at, upstream) in upstreams.into_iter().enumerate() {
            let UpstreamConfig {
                spec: UpstreamSpec { protocol, .. },
                api_key_file,
                dns: _,
                number,
            } = upstream;
            let Protocol {
                tls:
                    Tls {
                        ca,
                        certificate,
                        key,
                        server_name: _,
                    },
                http2: _,
                host: _,
            } = protocol;
            let setting = format!("upstreams[{}]", number.unwrap_or(at));
            let of_tls = FilePurpose::UpstreamTls(at);
            add(
                format!("{setting}.api_key_file"),
                FilePurpose::UpstreamKey(at),
                api_key_file.into(),
            );
            add(format!("{setting}.tls.ca"), of_tls, ca.into());
            add(format!("{setting}.tls.certificate"), of_tls, certificate.into());
            add(format!("{setting}.tls.key"), of_tls, key.into());
        }
        if let Some(Otlp {
            headers_file,
            endpoint: _,
            sample: _,
        }) = otlp
        {
            let purpose = FilePurpose::OtlpHeaders;
            add("otlp.headers_file".into(), purpose, headers_file.into());
        }
        // A certificate without its key is a fault, and names no file.
        all.retain(|named| !named.path.as_os_str().is_empty());
        all
    }};
}

impl Config {
    /// The files that it names, in the order of the settings here.
    ///
    /// ```
    /// use std::path::Path;
    ///
    /// use paddler_core::config::{Config, ListenerTls};
    ///
    /// let mut config = Config::default();
    /// config.api_key_file = Some("keys.txt".into());
    /// config.tls = Some(ListenerTls::new("tls.crt", "/run/tls.key"));
    /// for named in config.files_mut() {
    ///     *named.path = Path::new("/etc/paddler").join(&*named.path);
    /// }
    /// let files: Vec<_> = config.files().into_iter().map(|named| (named.setting, named.path.clone())).collect();
    /// assert_eq!(files[0], ("api_key_file".into(), "/etc/paddler/keys.txt".into()));
    /// assert_eq!(files[2], ("tls.key".into(), "/run/tls.key".into()));
    /// ```
    pub fn files(&self) -> Vec<NamedFile<&PathBuf>> {
        named_files!(self)
    }

    /// The same, to be changed: `paddler` looks for relative paths beside the config file.
    pub fn files_mut(&mut self) -> Vec<NamedFile<&mut PathBuf>> {
        named_files!(self)
    }
}
