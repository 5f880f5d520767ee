//! How is the router run as a process, told and watched?

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use super::Failure;
use super::engines::panics;
use super::http::{ask, free_address};
use super::programs::Program;

/// The longest that it may take to start.
const START: Duration = Duration::from_secs(20);

/// `paddler gateway`, with a config file.
#[derive(Debug)]
pub struct GatewayProcess {
    /// Where requests come in.
    pub address: SocketAddr,
    management: SocketAddr,
    file: PathBuf,
    settings: String,
    program: Program,
}

impl GatewayProcess {
    /// Starts it in front of these upstreams, with these settings besides (YAML), and waits until it is ready. Without upstreams it
    /// has those of the settings.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start(
        paddler: &Path,
        folder: &Path,
        upstreams: &[(&str, SocketAddr)],
        settings: &str,
    ) -> Result<Self, Failure> {
        let (address, management) = (free_address()?, free_address()?);
        let file = folder.join("paddler.yaml");
        let settings = format!("listen: {address}\nmanagement: {management}\n{settings}");
        std::fs::write(&file, config(&settings, upstreams))?;
        let args = ["gateway", "--config", &file.to_string_lossy()].map(str::to_owned);
        let program = Program::start(paddler, &args)?;
        let gateway = Self {
            address,
            management,
            file,
            settings,
            program,
        };
        let ready = async {
            while !gateway.is_ready().await {
                // Short, since `goals` takes the time.
                sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(START, ready).await.is_err() {
            return Err(format!("the gateway does not become ready: {:#?}", gateway.program.log()).into());
        }
        Ok(gateway)
    }

    async fn is_ready(&self) -> bool {
        let answer = ask(self.management, Method::GET, "/readyz", Bytes::new()).await;
        answer.is_ok_and(|(status, _)| status == StatusCode::OK)
    }

    /// Where its management listener is.
    pub fn management(&self) -> SocketAddr {
        self.management
    }

    /// The process.
    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// The memory it holds, in bytes.
    pub fn memory(&self) -> u64 {
        self.program.memory()
    }

    /// How often it has panicked.
    pub fn panics(&self) -> usize {
        panics(&self.program)
    }

    /// Asks its management listener.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn manage(&self, method: Method, path: &str) -> Result<(StatusCode, String), Failure> {
        ask(self.management, method, path, Bytes::new()).await
    }

    /// Writes its config file anew, for these upstreams, and has it read again.
    ///
    /// # Errors
    /// When the file cannot be written, or the program runs no more.
    pub fn reload(&self, upstreams: &[(&str, SocketAddr)]) -> Result<(), Failure> {
        std::fs::write(&self.file, config(&self.settings, upstreams))?;
        self.program.signal(Signal::HUP)
    }

    /// The sum of a metric over its labels.
    ///
    /// # Errors
    /// When there is no such metric.
    pub async fn metric(&self, name: &str) -> Result<f64, Failure> {
        let (_, page) = self.manage(Method::GET, "/metrics").await?;
        sum(&page, name).ok_or_else(|| format!("no metric {name}").into())
    }
}

fn config(settings: &str, upstreams: &[(&str, SocketAddr)]) -> String {
    let entry = |(id, address): &(&str, SocketAddr)| format!("  - {{id: {id}, url: \"http://{address}\"}}\n");
    let entries: String = upstreams.iter().map(entry).collect();
    // Where there are none, the settings have them.
    let list = if entries.is_empty() { "" } else { "upstreams:\n" };
    format!("{settings}{list}{entries}")
}

/// The sum of a metric's samples on a page; `None` where the page does not have it.
pub fn sum(page: &str, name: &str) -> Option<f64> {
    page.contains(&format!("# TYPE {name} ")).then(|| {
        let samples = page.lines().filter_map(|line| line.strip_prefix(name));
        samples
            .filter(|rest| rest.starts_with([' ', '{']))
            .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels_and_no_other() {
        let page = "# TYPE a gauge\na{x=\"1\"} 2\na{x=\"2\"} 3\na_b 9\n";
        assert_eq!(sum(page, "a"), Some(5.0));
        assert_eq!(sum(page, "b"), None);
    }
}
