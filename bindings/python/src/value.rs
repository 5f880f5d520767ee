//! How does an object of Python's become a value of a config?

use paddler_core::config::{Key, Kind, Value};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};

/// Takes `None`, numbers, text, lists, tuples and mappings with text for keys, as deep as a config may be. A function stands for
/// the name that `name` gives it.
pub(crate) fn value(
    object: &Bound<'_, PyAny>,
    name: &mut dyn FnMut(&Bound<'_, PyAny>) -> PyResult<String>,
) -> PyResult<Value> {
    read(object, name, 0)
}

fn read(
    object: &Bound<'_, PyAny>,
    name: &mut dyn FnMut(&Bound<'_, PyAny>) -> PyResult<String>,
    depth: usize,
) -> PyResult<Value> {
    let deeper = || {
        if depth < Value::MAX_DEPTH {
            Ok(depth + 1)
        } else {
            let most = Value::MAX_DEPTH;
            let message = format!("lists and mappings stand in each other more than {most} deep");
            Err(PyValueError::new_err(message))
        }
    };
    let kind = if object.is_none() {
        Kind::Null
    } else if let Ok(truth) = object.cast::<PyBool>() {
        Kind::Bool(truth.is_true())
    } else if object.is_instance_of::<PyInt>() {
        match object.extract::<i64>() {
            Ok(number) => Kind::Int(number),
            Err(_) => Kind::Float(object.extract()?),
        }
    } else if object.is_instance_of::<PyFloat>() {
        Kind::Float(object.extract()?)
    } else if let Ok(text) = object.cast::<PyString>() {
        Kind::String(text.to_str()?.to_owned())
    } else if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let depth = deeper()?;
        let values = object.try_iter()?.map(|one| read(&one?, name, depth));
        Kind::List(values.collect::<PyResult<_>>()?)
    } else if let Ok(mapping) = object.cast::<PyMapping>() {
        let depth = deeper()?;
        let pairs = mapping.items()?;
        let pairs = pairs.iter().map(|pair| {
            let (key, under): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
            let text = key
                .extract()
                .map_err(|_| PyTypeError::new_err(format!("keys are text, and {} is not", repr(&key))))?;
            Ok((Key { text, place: None }, read(&under, name, depth)?))
        });
        Kind::Map(pairs.collect::<PyResult<_>>()?)
    } else if object.is_callable() {
        Kind::String(name(object)?)
    } else {
        let message = format!("{} is nothing that a tree can hold", repr(object));
        return Err(PyTypeError::new_err(message));
    };
    Ok(Value::new(kind))
}

/// The same value, for a function of Python's.
pub(crate) fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match &value.kind {
        Kind::Null | Kind::Refused => py.None().into_bound(py),
        Kind::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        Kind::Int(number) => number.into_pyobject(py)?.into_any(),
        Kind::Float(number) => PyFloat::new(py, *number).into_any(),
        Kind::String(text) => PyString::new(py, text).into_any(),
        Kind::List(values) => {
            let values: Vec<_> = values
                .iter()
                .map(|one| object(py, one))
                .collect::<PyResult<_>>()?;
            PyList::new(py, values)?.into_any()
        }
        Kind::Map(pairs) => {
            let dict = PyDict::new(py);
            for (key, under) in pairs {
                dict.set_item(&key.text, object(py, under)?)?;
            }
            dict.into_any()
        }
    })
}

/// What Python shows of it, cut short.
pub(crate) fn repr(object: &Bound<'_, PyAny>) -> String {
    let text = object.repr().map(|text| text.to_string());
    let mut text = text.unwrap_or_else(|_| "an object that cannot show itself".into());
    if let Some((end, _)) = text.char_indices().nth(60) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}
