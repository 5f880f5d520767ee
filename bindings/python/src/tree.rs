//! How does a tree come from Python?

use std::path::PathBuf;
use std::sync::Arc;

use paddler_core::config::{ConfigFaults, Registry, tree_from_value, tree_from_yaml};
use paddler_core::schedule::{NodeId, Tree as CoreTree};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyMapping};

use crate::callables::Functions;
use crate::refuse::{self, invalid};
use crate::value::value;

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
        read: impl FnOnce(&Registry) -> Result<CoreTree, ConfigFaults>,
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
            Err(_) => Py::new(object.py(), Self::new(object, None, None)?),
        }
    }
}

#[pymethods]
impl Tree {
    #[new]
    #[pyo3(signature = (nodes, *, signals = None, **functions))]
    fn new(
        nodes: &Bound<'_, PyAny>,
        signals: Option<&str>,
        functions: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut functions = Functions::read(functions)?;
        let is_file = match nodes.cast::<PyMapping>() {
            Ok(mapping) => mapping.contains("tree")?,
            Err(_) => false,
        };
        let mut whole = nodes.clone();
        if !is_file {
            let keys = PyDict::new(nodes.py());
            keys.set_item("tree", nodes)?;
            signals.map_or(Ok(()), |signals| keys.set_item("signals", signals))?;
            whole = keys.into_any();
        } else if signals.is_some() {
            let message = "`signals` stands beside `tree` in the mapping, or is given by name, not both";
            return Err(invalid(message));
        }
        let read = value(&whole, Some(&mut |function| functions.name(function)))?;
        Self::build(nodes.py(), functions, |registry| {
            tree_from_value(&read, "", registry)
        })
    }

    #[staticmethod]
    #[pyo3(signature = (text, *, name = "", **functions))]
    fn from_yaml(
        py: Python<'_>,
        text: &str,
        name: &str,
        functions: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let functions = Functions::read(functions)?;
        Self::build(py, functions, |registry| tree_from_yaml(text, name, registry))
    }

    #[staticmethod]
    #[pyo3(signature = (path, *, **functions))]
    fn from_file(py: Python<'_>, path: PathBuf, functions: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        // So that its errors are Python's own, with their classes.
        let file = py.import("pathlib")?.call_method1("Path", (&path,))?;
        let text: PyBackedStr = file.call_method1("read_text", ("utf-8",))?.extract()?;
        Self::from_yaml(py, &text, &path.to_string_lossy(), functions)
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

    fn __repr__(&self) -> String {
        let nodes = self.tree.node_count();
        let first = self.tree.title(self.tree.root().id()).unwrap_or_default();
        format!("<paddler.Tree of {nodes} nodes: {first} ...>")
    }
}
