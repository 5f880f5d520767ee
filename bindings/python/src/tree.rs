//! How does a tree come from Python?

use std::path::PathBuf;
use std::sync::Arc;

use paddler_core::config::{ConfigFaults, Key, Kind, Value, tree_from_value, tree_from_yaml};
use paddler_core::schedule::{NodeId, Tree as CoreTree};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyString, PyType};

use crate::callables::Functions;
use crate::{refuse, value};

/// A checked tree: every way through it ends in a decision. Several boards may share one.
#[pyclass(frozen, module = "paddler")]
pub(crate) struct Tree {
    pub(crate) tree: Arc<CoreTree>,
    /// Whether it asks functions of Python's.
    pub(crate) asks_python: bool,
}

impl Tree {
    fn build(
        py: Python<'_>,
        functions: Functions,
        read: impl FnOnce(&paddler_core::config::Registry) -> Result<CoreTree, ConfigFaults>,
    ) -> PyResult<Self> {
        let asks_python = !functions.is_empty();
        let tree = read(&functions.registry(py)?).map_err(|faults| refuse::config(py, &faults))?;
        Ok(Self {
            tree: Arc::new(tree),
            asks_python,
        })
    }

    /// A tree, or what makes one.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Py<Self>> {
        match object.cast::<Self>() {
            Ok(tree) => Ok(tree.clone().unbind()),
            Err(_) => Py::new(object.py(), Self::new(object.py(), object, None, None, None)?),
        }
    }
}

#[pymethods]
impl Tree {
    #[new]
    #[pyo3(signature = (nodes, *, signals = None, filters = None, costs = None))]
    fn new(
        py: Python<'_>,
        nodes: &Bound<'_, PyAny>,
        signals: Option<&str>,
        filters: Option<&Bound<'_, PyDict>>,
        costs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut functions = Functions::new(filters, costs)?;
        let is_file = match nodes.cast::<PyMapping>() {
            Ok(mapping) => mapping.contains("tree")?,
            Err(_) => false,
        };
        let mut read = value::value(nodes, &mut |function| functions.name(function))?;
        if !is_file {
            let key = |text: &str| Key {
                text: text.into(),
                place: None,
            };
            let mut pairs = vec![(key("tree"), read)];
            if let Some(signals) = signals {
                pairs.push((key("signals"), Value::new(Kind::String(signals.into()))));
            }
            read = Value::new(Kind::Map(pairs));
        } else if signals.is_some() {
            let message = "`signals` stands beside `tree` in the mapping, or is given by name, not both";
            return Err(PyValueError::new_err(message));
        }
        Self::build(py, functions, |registry| tree_from_value(&read, "", registry))
    }

    #[classmethod]
    #[pyo3(signature = (text, *, name = "", filters = None, costs = None))]
    fn from_yaml(
        cls: &Bound<'_, PyType>,
        text: &str,
        name: &str,
        filters: Option<&Bound<'_, PyDict>>,
        costs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let functions = Functions::new(filters, costs)?;
        Self::build(cls.py(), functions, |registry| {
            tree_from_yaml(text, name, registry)
        })
    }

    #[classmethod]
    #[pyo3(signature = (path, *, filters = None, costs = None))]
    fn from_file(
        cls: &Bound<'_, PyType>,
        path: PathBuf,
        filters: Option<&Bound<'_, PyDict>>,
        costs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let text = std::fs::read_to_string(&path).map_err(|error| {
            // As Python's own: the number says which class, and the file is named.
            let text = error.to_string();
            match error.raw_os_error() {
                Some(number) => PyOSError::new_err((number, text, path.clone())),
                None => PyOSError::new_err(format!("{}: {text}", path.display())),
            }
        })?;
        Self::from_yaml(cls, &text, &path.to_string_lossy(), filters, costs)
    }

    /// What a node does, in a line.
    fn title(&self, node: u32) -> Option<String> {
        self.tree.title(NodeId::new(node)).map(ToOwned::to_owned)
    }

    #[getter]
    fn signals(&self) -> &'static str {
        self.tree.signals().as_str()
    }

    fn __len__(&self) -> usize {
        self.tree.node_count()
    }

    fn __str__(&self) -> String {
        self.tree.to_string()
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        let nodes = self.tree.node_count();
        let first = self.tree.title(self.tree.root().id()).unwrap_or_default();
        PyString::new(py, &format!("<paddler.Tree of {nodes} nodes: {first} ...>"))
    }
}
