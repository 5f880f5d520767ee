//! Where do an upstream's metrics stand?

use super::address::{Address, parse, parse_page};
use super::{Engine, UpstreamSpec};

impl UpstreamSpec {
    /// Where its metrics stand, if they stand elsewhere than below its URL: an upstream of the same id that is asked for nothing
    /// else, and the path there.
    ///
    /// It gets the key of the upstream only at the upstream's own host and port, and in clear only where the upstream does.
    ///
    /// ```
    /// use paddler_core::upstream::{Engine, UpstreamSpec};
    ///
    /// let mut spec = UpstreamSpec::new("gpu-1", "http://10.0.0.3:8000").unwrap();
    /// let at = |spec: &UpstreamSpec, engine| spec.metrics_at(engine).map(|(at, path)| at.url + &path);
    /// assert_eq!(at(&spec, Engine::Vllm), None, "they stand below its URL");
    /// assert_eq!(at(&spec, Engine::Triton).unwrap(), "http://10.0.0.3:8002/metrics");
    /// spec.metrics_url = Some("http://10.0.0.3:9400/page?all".into());
    /// assert_eq!(at(&spec, Engine::Vllm).unwrap(), "http://10.0.0.3:9400/page?all");
    /// ```
    pub fn metrics_at(&self, engine: Engine) -> Option<(Self, String)> {
        let (address, path) = match &self.metrics_url {
            Some(url) => parse_page(url).ok()?,
            None if engine == Engine::Triton => parse(&self.url).ok()?.metrics_of_triton(),
            None => return None,
        };
        let mut at = self.clone();
        at.url = address.to_string();
        let is_at = |own: Address| (own.tls(), own.authority()) == (address.tls(), address.authority());
        if !parse(&self.url).is_ok_and(is_at) {
            #[cfg(feature = "proxy")]
            at.extensions.remove::<super::http::UpstreamKey>();
        }
        Some((at, path))
    }
}

#[cfg(all(test, feature = "proxy"))]
mod tests {
    use super::*;
    use crate::upstream::http::UpstreamKey;

    #[test]
    fn the_key_goes_nowhere_but_to_the_upstream_itself() {
        let mut spec = UpstreamSpec::new("gpu-1", "http://10.0.0.3:8000").unwrap();
        spec.extensions.insert(UpstreamKey::new("sk-1").unwrap());
        spec.extensions.insert(7u8);
        for (url, engine, keeps) in [
            (Some("http://10.0.0.3:8000/page"), Engine::Vllm, true),
            (Some("http://10.0.0.3:8001/metrics"), Engine::Vllm, false),
            (Some("http://10.0.0.4:8000/metrics"), Engine::Vllm, false),
            (Some("https://10.0.0.3:8000/page"), Engine::Vllm, false),
            (None, Engine::Triton, false),
        ] {
            spec.metrics_url = url.map(str::to_owned);
            let (at, _) = spec.metrics_at(engine).unwrap();
            assert_eq!(at.extensions.get::<UpstreamKey>().is_some(), keeps, "{url:?}");
            assert_eq!(at.extensions.get::<u8>(), Some(&7), "what its host knows stays");
        }
        assert!(spec.extensions.get::<UpstreamKey>().is_some());
    }

    #[test]
    fn the_key_of_one_that_speaks_tls_goes_nowhere_in_clear_and_its_path_has_no_say() {
        let mut spec = UpstreamSpec::new("gpu-1", "https://10.0.0.3:8000/openai/v1").unwrap();
        spec.extensions.insert(UpstreamKey::new("sk-1").unwrap());
        for (url, keeps) in [
            ("http://10.0.0.3:8000/metrics", false),
            ("https://10.0.0.3:8000/metrics", true),
            ("https://10.0.0.3:8000/openai/v1/metrics", true),
            ("https://10.0.0.3/metrics", false),
        ] {
            spec.metrics_url = Some(url.to_owned());
            let (at, _) = spec.metrics_at(Engine::Vllm).unwrap();
            assert_eq!(at.extensions.get::<UpstreamKey>().is_some(), keeps, "{url}");
        }
    }

    #[test]
    fn triton_has_them_in_clear_at_a_port_of_their_own() {
        for (url, metrics) in [
            ("https://[::1]:8443", "http://[::1]:8002/metrics"),
            ("http://triton", "http://triton:8002/metrics"),
        ] {
            let spec = UpstreamSpec::new("t", url).unwrap();
            let (at, path) = spec.metrics_at(Engine::Triton).unwrap();
            assert_eq!(at.url + &path, metrics);
        }
    }
}
