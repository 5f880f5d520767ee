//! How is a page of metrics written?

use std::collections::BTreeMap;

use crate::effects::Effects;

/// Counts of values up to each of some bounds.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len()],
            count: 0,
            sum: 0.0,
        }
    }

    pub(crate) fn observe(&mut self, value: f64) {
        for (count, bound) in self.counts.iter_mut().zip(self.bounds) {
            *count += u64::from(value <= *bound);
        }
        self.count += 1;
        self.sum += value;
    }
}

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// `3`, as llama.cpp does.
    Short,
    /// `3.0`, as Python does.
    Float,
}

/// What the format allows and few expect.
const ODD: &str = r#"# A comment, and then an empty line.

# TYPE sim_odd untyped
sim_odd{path="C:\\dir",text="a \"quoted\" } word",lines="one\ntwo",} 1
sim_odd{kind="nan"} NaN
sim_odd{kind="infinite"} +Inf 1800000000000
sim_odd{ kind = "spaced" }   -1.5e-300
sim_odd_without_labels	2 -1
"#;

/// A page in the Prometheus text format.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    text: String,
    numbers: Numbers,
    renames: Option<&'a BTreeMap<String, Option<String>>>,
    odd: bool,
}

impl<'a> Page<'a> {
    /// Families that faults rename get the name given there, or are left out.
    pub(crate) fn new(numbers: Numbers, effects: &'a Effects) -> Self {
        Self {
            text: String::new(),
            numbers,
            renames: effects.renames.as_ref(),
            odd: effects.odd_metrics,
        }
    }

    pub(crate) fn finish(mut self) -> String {
        if self.odd {
            self.text.push_str(ODD);
        }
        self.text
    }

    fn number(&self, value: f64) -> String {
        match self.numbers {
            Numbers::Float => float(value),
            Numbers::Short => format!("{value}"),
        }
    }

    /// The name a family goes by; `None` if it is absent.
    fn name(&self, name: &str) -> Option<String> {
        match self.renames.and_then(|renames| renames.get(name)) {
            Some(renamed) => renamed.clone(),
            None => Some(name.to_owned()),
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.text
            .push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let value = self.number(value);
        let line = if labels.is_empty() {
            format!("{name} {value}\n")
        } else {
            format!("{name}{{{labels}}} {value}\n")
        };
        self.text.push_str(&line);
    }

    /// Writes a family of samples, each with its labels already in order.
    pub(crate) fn family(&mut self, kind: &str, name: &str, help: &str, samples: &[(String, f64)]) {
        if let Some(name) = self.name(name) {
            self.head(&name, kind, help);
            for (labels, value) in samples {
                self.sample(&name, labels, *value);
            }
        }
    }

    /// Writes a histogram under the labels `engine` and `model_name`.
    pub(crate) fn histogram(&mut self, name: &str, help: &str, model: &str, histogram: &Histogram) {
        let Some(name) = self.name(name) else { return };
        self.head(&name, "histogram", help);
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            let labels = format!("engine=\"0\",le=\"{bound:?}\",{model}");
            self.sample(&format!("{name}_bucket"), &labels, *count as f64);
        }
        let labels = format!("engine=\"0\",{model}");
        let all = histogram.count as f64;
        self.sample(
            &format!("{name}_bucket"),
            &format!("engine=\"0\",le=\"+Inf\",{model}"),
            all,
        );
        self.sample(&format!("{name}_count"), &labels, all);
        self.sample(&format!("{name}_sum"), &labels, histogram.sum);
    }
}

/// A number as Python's client writes it: from a million on with an exponent.
fn float(value: f64) -> String {
    if value < 1e6 || !value.is_finite() {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => format!("{digits}e+{exponent:0>2}"),
        None => text,
    }
}

/// One label, its value escaped.
pub(crate) fn label(name: &str, value: &str) -> String {
    let mut text = format!("{name}=\"");
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_look_like_those_of_python() {
        for (value, text) in [
            (0.0, "0.0"),
            (2.5, "2.5"),
            (999_999.0, "999999.0"),
            (1.8e9, "1.8e+09"),
        ] {
            assert_eq!(float(value), text);
        }
        assert_eq!(float(1_795_972_597.515_035_4), "1.7959725975150354e+09");
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(label("a", "x\"y\\z\n"), r#"a="x\"y\\z\n""#);
    }

    #[test]
    fn families_can_be_renamed_or_left_out() {
        let renames = BTreeMap::from([("a".to_owned(), Some("b".to_owned())), ("c".to_owned(), None)]);
        let effects = Effects {
            renames: Some(renames),
            ..Effects::default()
        };
        let mut page = Page::new(Numbers::Short, &effects);
        page.family("gauge", "a", "A.", &[(String::new(), 1.0)]);
        page.family("gauge", "c", "C.", &[(String::new(), 2.0)]);
        assert_eq!(page.finish(), "# HELP b A.\n# TYPE b gauge\nb 1\n");
    }

    #[test]
    fn buckets_add_up() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.5, 9.0] {
            histogram.observe(value);
        }
        assert_eq!(
            (histogram.counts.as_slice(), histogram.count),
            ([1, 2].as_slice(), 3)
        );
    }
}
