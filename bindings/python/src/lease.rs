//! How does a request's sender say how far it is, and how it went?

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddler_core::health::{Fault, Verdict};
use paddler_core::queue::{Charge, Used};
use paddler_core::upstream::{Lease as CoreLease, Stage, UpstreamSpec};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

use crate::asked::seconds;
use crate::refuse::invalid;
use crate::running::Running;
use crate::shared::Shared;
use crate::specs::Upstream;

/// The right to use an upstream for one request.
#[pyclass(frozen, module = "paddler", weakref)]
pub(crate) struct Lease {
    held: Mutex<Held>,
    shared: Arc<Shared>,
    #[pyo3(get)]
    explanation: Option<Py<PyAny>>,
}

struct Held {
    /// `None` once it has been given back.
    lease: Option<CoreLease>,
    spec: Arc<UpstreamSpec>,
    charge: Option<(Charge, Arc<Running>)>,
    /// It was said that it failed, so nobody knows when the engine is free.
    failed: bool,
}

impl Lease {
    /// `charge`: what its tenant was charged, to be set right at the end.
    pub(crate) fn new(
        lease: CoreLease,
        spec: Arc<UpstreamSpec>,
        shared: Arc<Shared>,
        charge: Option<(Charge, Arc<Running>)>,
        explanation: Option<Py<PyAny>>,
    ) -> Self {
        let held = Held {
            lease: Some(lease),
            spec,
            charge,
            failed: false,
        };
        Self {
            held: Mutex::new(held),
            shared,
            explanation,
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Nothing in here can leave it half changed.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, completed: bool, used: Option<Used>) {
        let mut held = self.held();
        let (lease, charge) = (held.lease.take(), held.charge.take());
        drop(held);
        match lease {
            Some(lease) if completed => lease.complete(),
            lease => drop(lease),
        }
        if let (Some((charge, running)), Some(used)) = (charge, used) {
            // It may take the queue's lock, under which functions of Python's are asked: so not in this thread.
            if let Ok(background) = running.background() {
                let router = background.router().clone();
                background.spawn(async move { router.charge_used(charge, used) });
            }
        }
    }
}

#[pymethods]
impl Lease {
    #[getter]
    fn upstream(&self) -> Upstream {
        Upstream(self.held().spec.clone())
    }

    #[getter]
    fn stage(&self) -> &'static str {
        match self.held().lease.as_ref().map(CoreLease::stage) {
            None => "ended",
            Some(Stage::Reserved) => "reserved",
            Some(Stage::Sent) => "sent",
            Some(_) => "first_byte",
        }
    }

    #[getter]
    fn weight(&self) -> u32 {
        self.held().lease.as_ref().map_or(0, CoreLease::weight)
    }

    fn sent(&self) {
        if let Some(lease) = &mut self.held().lease {
            lease.sent();
        }
    }

    fn first_byte(&self) {
        if let Some(lease) = &mut self.held().lease {
            lease.first_byte();
        }
    }

    #[pyo3(signature = (status = 200, *, retry_after = None))]
    fn answered(&self, py: Python<'_>, status: u16, retry_after: Option<f64>) -> PyResult<()> {
        let now = self.shared.now(py)?;
        let asked = retry_after
            .map(|after| seconds("retry_after", after))
            .transpose()?;
        // Each request is another one.
        let request = std::ptr::from_ref(self).addr() as u64 ^ now.as_nanos();
        if let Some(lease) = &mut self.held().lease {
            lease.report(Verdict::of_status(status, asked, || request), now);
        }
        Ok(())
    }

    fn failed(&self, py: Python<'_>, fault: &str) -> PyResult<()> {
        let fault: Fault = fault.parse().map_err(invalid)?;
        let now = self.shared.now(py)?;
        let mut held = self.held();
        held.failed = true;
        if let Some(lease) = &mut held.lease {
            lease.report(Verdict::Fault(fault), now);
        }
        drop(held);
        if fault == Fault::Unreachable {
            // The engine never saw it.
            self.end(true, Some(Used::Nothing));
        }
        Ok(())
    }

    fn move_to(&self, py: Python<'_>, id: &str) -> PyResult<()> {
        self.shared.refresh(py)?;
        let snapshot = self.shared.published.load();
        let unknown = || PyKeyError::new_err(id.to_owned());
        let upstream = snapshot.index(id).ok_or_else(unknown)?;
        let mut spec = snapshot.spec(upstream).ok_or_else(unknown)?.clone();
        let mut held = self.held();
        if let Some(lease) = &mut held.lease {
            lease.move_to(&snapshot, upstream).map_err(|_| unknown())?;
            std::mem::swap(&mut held.spec, &mut spec);
        }
        // Not before: what is Python's there may ask this lease when it goes.
        drop(held);
        drop(spec);
        Ok(())
    }

    #[pyo3(signature = (*, prompt_tokens = None, output_tokens = None))]
    fn complete(&self, prompt_tokens: Option<u64>, output_tokens: Option<u64>) {
        let used = output_tokens.map(|output| Used::Tokens {
            prompt: prompt_tokens,
            output,
        });
        self.end(true, used);
    }

    fn release(&self) {
        let untouched = self.stage() == "reserved";
        self.end(false, untouched.then_some(Used::Nothing));
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __exit__(&self, kind: &Bound<'_, PyAny>, _error: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        if kind.is_none() && !self.held().failed {
            self.end(true, None);
        } else {
            self.release();
        }
    }

    fn __repr__(&self) -> String {
        let stage = self.stage();
        format!("<paddler.Lease on {} {stage}>", self.held().spec.id)
    }
}
