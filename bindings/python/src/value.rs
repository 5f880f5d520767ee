//! How does an object of Python's become a value of a config?

use paddler_core::config::{Key, Kind, Value};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};

/// More than any tree has: a mapping may make what it holds when it is asked, and never come to an end.
const MOST: usize = 1_000_000;

/// Names a function that stands in a tree.
pub(crate) type Naming<'n> = &'n mut dyn FnMut(&Bound<'_, PyAny>) -> PyResult<String>;

/// Takes `None`, numbers, text, lists, tuples and mappings with text for keys, as deep as a config may be. Anything else is a
/// value that the core refuses, and says where it stands. A function stands for the name that `name` gives it.
pub(crate) fn value(object: &Bound<'_, PyAny>, name: Option<Naming<'_>>) -> PyResult<Value> {
    let mut reader = Reader {
        name,
        within: Vec::new(),
        left: MOST,
    };
    Ok(Value::new(reader.read(object)?))
}

struct Reader<'n> {
    name: Option<Naming<'n>>,
    /// The lists and mappings that what is read stands in.
    within: Vec<*mut PyObject>,
    /// How many values may still come.
    left: usize,
}

impl Reader<'_> {
    fn read(&mut self, object: &Bound<'_, PyAny>) -> PyResult<Kind> {
        if let Ok(truth) = object.cast::<PyBool>() {
            return Ok(Kind::Bool(truth.is_true()));
        } else if object.is_none() {
            return Ok(Kind::Null);
        } else if object.is_instance_of::<PyInt>() || object.is_instance_of::<PyFloat>() {
            let whole = object.extract().ok().filter(|_| object.is_instance_of::<PyInt>());
            let number = whole
                .map(Kind::Int)
                .or_else(|| object.extract().ok().map(Kind::Float));
            return Ok(number.unwrap_or_else(|| Kind::Other(repr(object))));
        } else if let Ok(text) = object.cast::<PyString>() {
            // Half of a surrogate pair is no text.
            return Ok(text
                .to_str()
                .map_or_else(|_| Kind::Other(repr(object)), |text| Kind::String(text.into())));
        }
        let is_list = object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
        if is_list || object.is_instance_of::<PyMapping>() {
            return self.inside(object, is_list);
        }
        match &mut self.name {
            Some(name) if object.is_callable() => name(object).map(Kind::String),
            _ => Ok(Kind::Other(repr(object))),
        }
    }

    fn inside(&mut self, object: &Bound<'_, PyAny>, is_list: bool) -> PyResult<Kind> {
        let what = if is_list { "a list" } else { "a mapping" };
        if self.within.contains(&object.as_ptr()) {
            return Ok(Kind::Other(format!("{what} that contains itself")));
        }
        if self.left == 0 || self.within.len() >= Value::MAX_DEPTH {
            // What holds this is not read to its end: twice as much may stand on each level.
            self.left = 0;
            return Ok(Kind::Other(format!(
                "{what} that is too deep or too large for a tree"
            )));
        }
        self.within.push(object.as_ptr());
        let kind = if is_list {
            let values = object.try_iter()?.map(|one| self.one(&one?));
            Kind::List(values.collect::<PyResult<_>>()?)
        } else {
            let pairs = object.cast::<PyMapping>()?.items()?;
            let pairs = pairs.iter().map(|pair| {
                let (key, under): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
                let (text, value) = match key.extract::<String>() {
                    Ok(text) => (text, self.one(&under)?),
                    Err(_) => {
                        let other = format!("what has {} for its key, which is no text", repr(&key));
                        (repr(&key), Value::new(Kind::Other(other)))
                    }
                };
                Ok((Key { text, place: None }, value))
            });
            Kind::Map(pairs.collect::<PyResult<_>>()?)
        };
        self.within.pop();
        Ok(kind)
    }

    fn one(&mut self, object: &Bound<'_, PyAny>) -> PyResult<Value> {
        self.left = self.left.saturating_sub(1);
        self.read(object).map(Value::new)
    }
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
