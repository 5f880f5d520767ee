//! How does the tree ask a function written in Python?
//!
//! Once for each candidate, or once for all, attached to the interpreter. What it raises, and what it returns that is no answer, is a failure of
//! its node, as with any host's filter; nothing of it ends the process.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use paddler_core::config::{ParamFault, Params, Registry};
use paddler_core::schedule::{CandidateSet, Cost, Filter, FilterError, PickCx};
use paddler_core::status::Entry;
use paddler_core::upstream::UpstreamIndex;
use pyo3::exceptions::{PyRecursionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt};

use crate::facts::Facts;
use crate::refuse::is_for_all;
use crate::running::{is_background, is_stopping_here};
use crate::specs::Upstream;
use crate::value::{object, repr};

/// What marks a function that is asked of all candidates at once: see `paddler.nodes.whole`.
const OF_ALL: &str = "_paddler_of_all";

/// How deep functions may ask for picks that ask functions again, and so on: by mistake, that has no end.
const DEEPEST: u32 = 16;

thread_local! {
    /// What a function has raised in this thread that is not for a pick to keep, such as Ctrl-C.
    static FOR_ALL: RefCell<Option<PyErr>> = const { RefCell::new(None) };

    /// How many functions are asked in this thread, each by a pick of the one before.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Raises what a function has raised in this thread since the last time and is not for a pick to keep.
///
/// # Errors
/// With that.
pub(crate) fn pass_on() -> PyResult<()> {
    FOR_ALL.take().map_or(Ok(()), Err)
}

/// Keeps an error that is not for a pick to keep until the pick is over. A board's own thread has nobody to pass it to.
fn keep(py: Python<'_>, error: &PyErr) {
    if is_for_all(py, error) && !is_background() {
        FOR_ALL.set(Some(error.clone_ref(py)));
    }
}

/// The functions that a tree may name.
#[derive(Default)]
pub(crate) struct Functions {
    filters: BTreeMap<String, Py<PyAny>>,
    costs: BTreeMap<String, Py<PyAny>>,
}

impl Functions {
    pub(crate) fn new(
        filters: Option<&Bound<'_, PyDict>>,
        costs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let read = |named: Option<&Bound<'_, PyDict>>| -> PyResult<BTreeMap<String, Py<PyAny>>> {
            named.map_or_else(|| Ok(BTreeMap::new()), |named| named.extract())
        };
        Ok(Self {
            filters: read(filters)?,
            costs: read(costs)?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filters.is_empty() && self.costs.is_empty()
    }

    /// The name for a function that stands in a tree itself. Where it stands says whether it is a filter or a cost.
    pub(crate) fn name(&mut self, function: &Bound<'_, PyAny>) -> PyResult<String> {
        let own = function
            .getattr("__name__")
            .or_else(|_| function.get_type().getattr("__name__"))?;
        let own: String = own.extract()?;
        let built_in = Registry::new();
        let mut name = own.clone();
        let mut number = 1;
        loop {
            match self.filters.get(&name).or_else(|| self.costs.get(&name)) {
                Some(known) if known.is(function) => break,
                None if built_in.is_free(&name) => break,
                _ => {}
            }
            number += 1;
            name = format!("{own} {number}");
        }
        self.filters.insert(name.clone(), function.clone().unbind());
        self.costs.insert(name.clone(), function.clone().unbind());
        Ok(name)
    }

    pub(crate) fn registry(self, py: Python<'_>) -> PyResult<Registry> {
        let mut registry = Registry::new();
        let taken = |taken: paddler_core::config::NameTaken| PyValueError::new_err(taken.to_string());
        for (name, call) in self.filters {
            let make = Make::new(py, &name, call)?;
            let filter = move |params: &Params<'_>| {
                Ok(Arc::new(AskedFilter(make.function(params)?)) as Arc<dyn Filter>)
            };
            registry.filter(name, filter).map_err(taken)?;
        }
        for (name, call) in self.costs {
            let make = Make::new(py, &name, call)?;
            let cost =
                move |params: &Params<'_>| Ok(Arc::new(AskedCost(make.function(params)?)) as Arc<dyn Cost>);
            registry.cost(name, cost).map_err(taken)?;
        }
        Ok(registry)
    }
}

/// Makes what a name stands for, with the parameters that stand under it.
struct Make {
    name: String,
    call: Py<PyAny>,
}

impl Make {
    fn new(py: Python<'_>, name: &str, call: Py<PyAny>) -> PyResult<Self> {
        if !call.bind(py).is_callable() {
            let message = format!("{name:?} is {}, which cannot be called", repr(call.bind(py)));
            return Err(PyValueError::new_err(message));
        }
        Ok(Self {
            name: name.into(),
            call,
        })
    }

    fn function(&self, params: &Params<'_>) -> Result<Function, ParamFault> {
        let function = Python::attach(|py| -> PyResult<Function> {
            let mut title = self.name.clone();
            let mut named = None;
            if let Some(value) = params.value() {
                let value = object(py, value)?;
                title.push_str(&format!(" {}", repr(&value)));
                named = Some(value.cast_into::<PyDict>()?.unbind());
            }
            let call = self.call.clone_ref(py);
            fits(call.bind(py), named.as_ref())?;
            let is_of_all = call.bind(py).hasattr(OF_ALL)?;
            Ok(Function {
                title,
                call,
                named,
                is_of_all,
                is_told: AtomicBool::new(false),
            })
        });
        function.map_err(|error| error.to_string().into())
    }
}

/// Whether it can be called with these parameters. One that does not say what it takes is believed.
fn fits(call: &Bound<'_, PyAny>, named: Option<&Py<PyDict>>) -> PyResult<()> {
    let py = call.py();
    match py.import("inspect")?.call_method1("signature", (call,)) {
        Ok(signature) => {
            let two = (py.None(), py.None());
            signature.call_method("bind", two, named.map(|named| named.bind(py)))?;
            Ok(())
        }
        Err(_) => Ok(()),
    }
}

/// A function with what it is given besides the request and a candidate.
struct Function {
    title: String,
    call: Py<PyAny>,
    named: Option<Py<PyDict>>,
    /// It is asked of all candidates at once.
    is_of_all: bool,
    /// Its first failure was logged.
    is_told: AtomicBool,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)
    }
}

impl Function {
    /// What it says of each of these.
    fn judge<T>(
        &self,
        cx: &PickCx<'_>,
        candidates: impl Iterator<Item = UpstreamIndex>,
        mut each: impl FnMut(T),
        read: impl Fn(&Bound<'_, PyAny>) -> Option<T>,
        wanted: &str,
    ) -> Result<(), FilterError> {
        if is_stopping_here() {
            return Err(FilterError::new("the board is being stopped"));
        }
        let judged = Python::try_attach(|py| {
            let _deeper = self.deeper(py)?;
            let request =
                Bound::new(py, Facts((*cx.facts).into())).map_err(|error| self.raised(py, error))?;
            let named = self.named.as_ref().map(|named| named.bind(py));
            let mut take = |answer: &Bound<'_, PyAny>| match read(answer) {
                Some(answer) => {
                    each(answer);
                    Ok(())
                }
                None => Err(self.failed(py, format!("it returned {}, and not {wanted}", repr(answer)))),
            };
            let mut candidates = candidates.filter_map(|upstream| Candidate::new(cx, upstream));
            if self.is_of_all {
                let all: Vec<_> = candidates.collect();
                let many = all.len();
                let answers = self.call.bind(py).call((&request, all), named);
                let answers = answers.and_then(|answers| answers.extract::<Vec<Bound<'_, PyAny>>>());
                let answers = answers.map_err(|error| self.raised(py, error))?;
                if answers.len() != many {
                    let said = format!("it returned {} answers for {many} candidates", answers.len());
                    return Err(self.failed(py, said));
                }
                return answers.iter().try_for_each(take);
            }
            candidates.try_for_each(|candidate| {
                let answer = self.call.bind(py).call((&request, candidate), named);
                take(&answer.map_err(|error| self.raised(py, error))?)
            })
        });
        judged.unwrap_or_else(|| Err(FilterError::new("the interpreter is shutting down")))
    }

    /// Goes one deeper, for as long as what this gives is held.
    fn deeper(&self, py: Python<'_>) -> Result<Deeper, FilterError> {
        let depth = DEPTH.get();
        if depth >= DEEPEST {
            let message = format!("a function asks for picks that ask it again, {DEEPEST} deep");
            return Err(self.raised(py, PyRecursionError::new_err(message)));
        }
        DEPTH.set(depth + 1);
        Ok(Deeper)
    }

    fn raised(&self, py: Python<'_>, error: PyErr) -> FilterError {
        let said = error.to_string();
        self.log(py, &said);
        keep(py, &error);
        FilterError::with_source(said, error)
    }

    fn failed(&self, py: Python<'_>, said: String) -> FilterError {
        self.log(py, &said);
        FilterError::new(said)
    }

    /// The first failure is logged: where the tree only prefers, nobody else would hear of it.
    fn log(&self, py: Python<'_>, said: &str) {
        if !self.is_told.swap(true, Relaxed) {
            let log = || {
                let logger = py.import("logging")?.call_method1("getLogger", ("paddler",))?;
                let text = "%s could not judge: %s; further failures are not logged";
                logger.call_method1("error", (text, &self.title, said))
            };
            // A log that is broken must not break a pick.
            if let Err(error) = log() {
                keep(py, &error);
            }
        }
    }
}

/// Held while a function is asked.
struct Deeper;

impl Drop for Deeper {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// A filter that is a function of Python's.
struct AskedFilter(Function);

impl fmt::Debug for AskedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Filter for AskedFilter {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        let mut passes = Vec::with_capacity(set.len());
        let read = |answer: &Bound<'_, PyAny>| answer.cast::<PyBool>().ok().map(|truth| truth.is_true());
        self.0
            .judge(cx, set.iter(), |pass| passes.push(pass), read, "True or False")?;
        let mut passes = passes.into_iter();
        set.retain(|_| passes.next().unwrap_or(false));
        Ok(())
    }
}

/// A cost that is a function of Python's.
struct AskedCost(Function);

impl fmt::Debug for AskedCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number, or `None` for what is not known. True is no number here.
fn number(answer: &Bound<'_, PyAny>) -> Option<Option<f32>> {
    if answer.is_none() {
        return Some(None);
    }
    let is_number = answer.is_instance_of::<PyFloat>() || answer.is_instance_of::<PyInt>();
    let number =
        (is_number && !answer.is_instance_of::<PyBool>()).then(|| answer.extract::<f64>().ok())??;
    Some(Some(number as f32))
}

impl AskedCost {
    fn ask(
        &self,
        cx: &PickCx<'_>,
        candidates: impl Iterator<Item = UpstreamIndex>,
        each: impl FnMut(Option<f32>),
    ) -> Result<(), FilterError> {
        self.0.judge(cx, candidates, each, number, "a number or None")
    }
}

impl Cost for AskedCost {
    fn cost(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Result<Option<f32>, FilterError> {
        let mut cost = None;
        self.ask(cx, [upstream].into_iter(), |one| cost = one)?;
        Ok(cost)
    }

    fn costs(
        &self,
        cx: &PickCx<'_>,
        set: &CandidateSet<'_>,
        into: &mut Vec<Option<f32>>,
    ) -> Result<(), FilterError> {
        self.ask(cx, set.iter(), |cost| into.push(cost))
    }
}

/// An upstream as a filter or a cost sees it: all of one moment. Counts are in requests of weight one, unless said
/// otherwise; `None` is unknown.
#[pyclass(frozen, module = "paddler")]
pub(crate) struct Candidate {
    entry: Arc<Entry>,
    #[pyo3(get)]
    own_weight: u32,
    #[pyo3(get)]
    own_requests: u32,
    #[pyo3(get)]
    load: u32,
    #[pyo3(get)]
    room: Option<u32>,
    #[pyo3(get)]
    waiting: Option<u32>,
    #[pyo3(get)]
    kv_cache_usage: Option<f64>,
    #[pyo3(get)]
    prefill_tokens: u64,
    #[pyo3(get)]
    adapter_active: bool,
    #[pyo3(get)]
    fits: bool,
    #[pyo3(get)]
    age: Option<f64>,
}

impl Candidate {
    fn new(cx: &PickCx<'_>, upstream: UpstreamIndex) -> Option<Self> {
        Some(Self {
            entry: cx.snapshot.entry(upstream)?.clone(),
            own_weight: cx.own_weight(upstream),
            own_requests: cx.own_requests(upstream),
            load: cx.load(upstream),
            room: cx.room(upstream),
            waiting: cx.waiting(upstream),
            kv_cache_usage: cx.kv_cache_usage(upstream),
            prefill_tokens: cx.prefill_tokens(upstream),
            adapter_active: cx.adapter_active(upstream),
            fits: cx.fits(upstream),
            age: cx.age(upstream).map(|age| age.as_secs_f64()),
        })
    }
}

#[pymethods]
impl Candidate {
    #[getter]
    fn id(&self) -> &str {
        self.entry.spec().id.as_str()
    }

    #[getter]
    fn upstream(&self) -> Upstream {
        Upstream(self.entry.spec().clone())
    }

    #[getter]
    fn running(&self) -> Option<u32> {
        let report = self.entry.report()?;
        report.running.or(report.slots_busy)
    }

    /// What was said with the last report besides the signals, if that was said.
    #[getter]
    fn extra(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let extra = self.entry.report()?.extensions.get::<crate::specs::Extra>()?;
        Some(extra.0.clone_ref(py))
    }

    fn __repr__(&self) -> String {
        let Self {
            load, room, waiting, ..
        } = self;
        let count = |count: &Option<u32>| count.map_or("None".into(), |count| count.to_string());
        let (room, waiting) = (count(room), count(waiting));
        format!(
            "<paddler.Candidate {} load={load} room={room} waiting={waiting}>",
            self.id()
        )
    }
}
