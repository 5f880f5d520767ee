//! How does the tree ask a function written in Python?
//!
//! A condition of the request; a filter or a cost of each candidate, or of all at once. What it raises, and what it returns that
//! is no answer, is a failure of its node, as with any host's; nothing of it ends the process.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use paddler_core::config::{ParamFault, Params, Registry};
use paddler_core::forward::Background;
use paddler_core::schedule::{CandidateSet, Condition, Cost, Filter, FilterError, PickCx};
use paddler_core::upstream::UpstreamIndex;
use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyRecursionError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyTuple};
use pythonize::pythonize;

use crate::asked::{read, unknown_argument};
use crate::facts::Facts;
use crate::refuse::{invalid, is_for_all};
use crate::specs::{Extra, Upstream};
use crate::value::repr;

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
    if is_for_all(py, error) && !Background::is_any_here() {
        FOR_ALL.set(Some(error.clone_ref(py)));
    }
}

/// Functions by their names.
type Named = BTreeMap<String, Py<PyAny>>;

/// The functions that a tree may name, of each kind.
#[derive(Default)]
pub(crate) struct Functions([Named; 3]);

/// How the kinds are given by name.
const KINDS: [&str; 3] = ["filters", "costs", "conditions"];

impl Functions {
    pub(crate) fn read(given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut functions = Self::default();
        for (kind, named) in given.into_iter().flatten() {
            let kind: PyBackedStr = kind.extract()?;
            let place = KINDS.iter().position(|known| *known == &*kind);
            let place = place.ok_or_else(|| unknown_argument(&kind))?;
            functions.0[place] = read::<Option<Named>>(&kind, &named)?.unwrap_or_default();
        }
        Ok(functions)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeMap::is_empty)
    }

    /// The name for a function that stands in a tree itself. Where it stands says what it is: a filter, a cost or a condition.
    pub(crate) fn name(&mut self, function: &Bound<'_, PyAny>) -> PyResult<String> {
        let own = function.getattr("__name__").and_then(|name| name.extract());
        let own: String = own.or_else(|_| function.get_type().getattr("__name__")?.extract())?;
        let built_in = Registry::new();
        let mut name = own.clone();
        let mut number = 1;
        loop {
            match self.0.iter().find_map(|named| named.get(&name)) {
                Some(known) if known.is(function) => break,
                None if built_in.is_free(&name) => break,
                _ => {}
            }
            number += 1;
            name = format!("{own} {number}");
        }
        for named in &mut self.0 {
            named.insert(name.clone(), function.clone().unbind());
        }
        Ok(name)
    }

    pub(crate) fn registry(self, py: Python<'_>) -> PyResult<Registry> {
        let mut registry = Registry::new();
        let [filters, costs, conditions] = self.0;
        for (name, call) in filters {
            let make = maker(py, &name, call, 2)?;
            let filter = move |params: &Params<'_>| Ok(Arc::new(make(params)?) as Arc<dyn Filter>);
            registry.filter(name, filter).map_err(invalid)?;
        }
        for (name, call) in costs {
            let make = maker(py, &name, call, 2)?;
            let cost = move |params: &Params<'_>| Ok(Arc::new(make(params)?) as Arc<dyn Cost>);
            registry.cost(name, cost).map_err(invalid)?;
        }
        for (name, call) in conditions {
            let make = maker(py, &name, call, 1)?;
            let condition = move |params: &Params<'_>| {
                let function = make(params)?;
                let title = function.title.clone();
                Ok(Condition::fallible(title, move |cx| function.holds(cx)))
            };
            registry.condition(name, condition).map_err(invalid)?;
        }
        Ok(registry)
    }
}

/// Makes of a function what its name stands for, with the parameters that stand under it. `given`: how many arguments it gets
/// besides those.
fn maker(
    py: Python<'_>,
    name: &str,
    call: Py<PyAny>,
    given: usize,
) -> PyResult<impl Fn(&Params<'_>) -> Result<Function, ParamFault> + use<>> {
    let (name, shown) = (name.to_owned(), call.bind(py));
    if !shown.is_callable() {
        let shown = repr(shown);
        return Err(invalid(format!("{name:?} is {shown}, which cannot be called")));
    }
    Ok(move |params: &Params<'_>| {
        let function = Python::attach(|py| Function::new(call.bind(py), &name, given, params));
        function.map_err(|error| error.to_string().into())
    })
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

fn truth(answer: &Bound<'_, PyAny>) -> PyResult<bool> {
    let truth = answer.cast::<PyBool>().map(|truth| truth.is_true());
    truth.map_err(|_| wrong(answer, "True or False"))
}

/// A number, or `None` for what is not known. True is no number here.
fn number(answer: &Bound<'_, PyAny>) -> PyResult<Option<f32>> {
    if answer.is_none() {
        return Ok(None);
    }
    let is_number = answer.is_instance_of::<PyFloat>() || answer.is_instance_of::<PyInt>();
    let number = (is_number && !answer.is_instance_of::<PyBool>()).then(|| answer.extract::<f64>().ok());
    let number = number
        .flatten()
        .ok_or_else(|| wrong(answer, "a number or None"))?;
    Ok(Some(number as f32))
}

fn wrong(answer: &Bound<'_, PyAny>, wanted: &str) -> PyErr {
    PyTypeError::new_err(format!("it returned {}, and not {wanted}", repr(answer)))
}

impl Function {
    fn new(call: &Bound<'_, PyAny>, name: &str, given: usize, params: &Params<'_>) -> PyResult<Self> {
        let mut title = name.to_owned();
        let mut named = None;
        if let Some(value) = params.value() {
            let value = pythonize(call.py(), value)?;
            title.push_str(&format!(" {}", repr(&value)));
            named = Some(value.cast_into::<PyDict>()?.unbind());
        }
        let py = call.py();
        // One that does not say what it takes is believed.
        if let Ok(signature) = py.import("inspect")?.call_method1("signature", (call,)) {
            let given = PyTuple::new(py, (0..given).map(|_| py.None()))?;
            signature.call_method("bind", given, named.as_ref().map(|named| named.bind(py)))?;
        }
        Ok(Self {
            title,
            is_of_all: call.hasattr(OF_ALL)?,
            call: call.clone().unbind(),
            named,
            is_told: AtomicBool::new(false),
        })
    }

    /// Asks it in this thread, attached to the interpreter. What goes wrong is a failure of its node.
    fn judge<R>(
        &self,
        cx: &PickCx<'_>,
        ask: impl FnOnce(Python<'_>, Py<Facts>) -> PyResult<R>,
    ) -> Result<R, FilterError> {
        if Background::is_stopping_here() {
            return Err(FilterError::new("the board is being stopped"));
        }
        let judged = Python::try_attach(|py| {
            let depth = DEPTH.get();
            if depth >= DEEPEST {
                let message = format!("a function asks for picks that ask it again, {DEEPEST} deep");
                return Err(self.raised(py, PyRecursionError::new_err(message)));
            }
            DEPTH.set(depth + 1);
            let judged = Py::new(py, Facts((*cx.facts).into())).and_then(|request| ask(py, request));
            DEPTH.set(depth);
            judged.map_err(|error| self.raised(py, error))
        });
        judged.unwrap_or_else(|| Err(FilterError::new("the interpreter is shutting down")))
    }

    fn call<'py>(&self, py: Python<'py>, given: impl PyCallArgs<'py>) -> PyResult<Bound<'py, PyAny>> {
        let named = self.named.as_ref().map(|named| named.bind(py));
        self.call.bind(py).call(given, named)
    }

    /// As a condition.
    fn holds(&self, cx: &PickCx<'_>) -> Result<bool, FilterError> {
        self.judge(cx, |py, request| truth(&self.call(py, (request,))?))
    }

    /// What it says of each of these.
    fn each<T>(
        &self,
        cx: &PickCx<'_>,
        candidates: impl Iterator<Item = UpstreamIndex>,
        read: fn(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<Vec<T>, FilterError> {
        self.judge(cx, |py, request| {
            let candidates = candidates.map(|upstream| Candidate::new(py, cx, upstream));
            if !self.is_of_all {
                let each = candidates.map(|candidate| read(&self.call(py, (&request, candidate))?));
                return each.collect();
            }
            let all: Vec<_> = candidates.collect();
            let many = all.len();
            let answers: Vec<Bound<'_, PyAny>> = self.call(py, (&request, all))?.extract()?;
            if answers.len() != many {
                let said = answers.len();
                return Err(invalid(format!(
                    "it returned {said} answers for {many} candidates"
                )));
            }
            answers.iter().map(read).collect()
        })
    }

    /// The first failure is logged: where the tree only prefers, nobody else would hear of it.
    fn raised(&self, py: Python<'_>, error: PyErr) -> FilterError {
        let said = error.to_string();
        if !self.is_told.swap(true, Relaxed) {
            let log = || {
                let logger = py.import("logging")?.call_method1("getLogger", ("paddler",))?;
                let text = "%s could not judge: %s; further failures are not logged";
                logger.call_method1("error", (text, &self.title, &said))
            };
            // A log that is broken must not break a pick.
            if let Err(error) = log() {
                keep(py, &error);
            }
        }
        keep(py, &error);
        FilterError::with_source(said, error)
    }
}

impl Filter for Function {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        let mut passes = self.each(cx, set.iter(), truth)?.into_iter();
        set.retain(|_| passes.next().unwrap_or(false));
        Ok(())
    }
}

impl Cost for Function {
    fn cost(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Result<Option<f32>, FilterError> {
        Ok(self.each(cx, [upstream].into_iter(), number)?.pop().flatten())
    }

    fn costs(
        &self,
        cx: &PickCx<'_>,
        set: &CandidateSet<'_>,
        into: &mut Vec<Option<f32>>,
    ) -> Result<(), FilterError> {
        into.append(&mut self.each(cx, set.iter(), number)?);
        Ok(())
    }
}

/// An upstream as a filter or a cost sees it: all of one moment. Counts are in requests of weight one, unless said
/// otherwise; `None` is unknown.
#[pyclass(frozen, get_all, module = "paddler")]
pub(crate) struct Candidate {
    upstream: Upstream,
    own_weight: u32,
    own_requests: u32,
    load: u32,
    room: Option<u32>,
    waiting: Option<u32>,
    running: Option<u32>,
    kv_cache_usage: Option<f64>,
    prefill_tokens: u64,
    adapter_active: bool,
    fits: bool,
    age: Option<f64>,
    /// What was said with the last report besides the signals, if that was said.
    extra: Option<Py<PyAny>>,
}

impl Candidate {
    fn new(py: Python<'_>, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Self {
        let (spec, report) = (cx.snapshot.spec(upstream), cx.report(upstream));
        Self {
            upstream: Upstream(spec.expect("a candidate's place has an upstream").clone()),
            own_weight: cx.own_weight(upstream),
            own_requests: cx.own_requests(upstream),
            load: cx.load(upstream),
            room: cx.room(upstream),
            waiting: cx.waiting(upstream),
            running: report.and_then(|report| report.running.or(report.slots_busy)),
            kv_cache_usage: cx.kv_cache_usage(upstream),
            prefill_tokens: cx.prefill_tokens(upstream),
            adapter_active: cx.adapter_active(upstream),
            fits: cx.fits(upstream),
            age: cx.age(upstream).map(|age| age.as_secs_f64()),
            extra: report.and_then(|report| Some(report.extensions.get::<Extra>()?.0.clone_ref(py))),
        }
    }
}

#[pymethods]
impl Candidate {
    #[getter]
    fn id(&self) -> &str {
        self.upstream.0.id.as_str()
    }

    fn __repr__(&self) -> String {
        let (id, load) = (self.id(), self.load);
        let count = |count: Option<u32>| count.map_or("None".into(), |count| count.to_string());
        let (room, waiting) = (count(self.room), count(self.waiting));
        format!("<paddler.Candidate {id} load={load} room={room} waiting={waiting}>")
    }
}
