//! How is a fault written in a header, on the command line and in JSON?

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Fault, FaultRule, Scope};

/// Why a text or a JSON value is not a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultParseError(String);

impl fmt::Display for FaultParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for FaultParseError {}

impl FaultParseError {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Reads `name`, `name=value` or `name=value;key=value`, such as `status=429;retry-after=2`.
impl FromStr for Fault {
    type Err = FaultParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(';').map(str::trim);
        let (name, value) = pair(parts.next().unwrap_or_default());
        let mut retry_after = None;
        for part in parts {
            match pair(part) {
                ("retry-after", value) if name == "status" => retry_after = Some(number(name, value)?),
                (key, _) => return Err(FaultParseError::new(format!("`{name}` takes no `{key}`"))),
            }
        }
        let fault = match name {
            "reset-after" => Self::ResetAfter {
                bytes: number(name, value)?,
            },
            "eof-after" => Self::EofAfter {
                bytes: number(name, value)?,
            },
            "stall-after" => Self::StallAfter {
                bytes: number(name, value)?,
            },
            "error-event-after" => Self::ErrorEventAfter {
                bytes: number(name, value)?,
            },
            "pieces" => Self::Pieces {
                bytes: number(name, value)?,
            },
            "slow-head" => Self::SlowHead {
                every: Duration::from_millis(number(name, value)?),
            },
            "html-error" => Self::HtmlError {
                code: number(name, value)?,
            },
            "text-error" => Self::TextError {
                code: number(name, value)?,
            },
            "informational" => Self::Informational {
                code: number(name, value)?,
            },
            "many-headers" => Self::ManyHeaders {
                count: number(name, value)?,
            },
            "padding" => Self::Padding {
                bytes: number(name, value)?,
            },
            "drip" => Self::Drip {
                every: Duration::from_millis(number(name, value)?),
            },
            "status" => Self::Status {
                code: number(name, value)?,
                retry_after,
            },
            "wrong-length" => Self::WrongLength {
                by: number(name, value)?,
            },
            "slow-status" => Self::SlowStatus {
                delay: Duration::from_millis(number(name, value)?),
            },
            _ if value.is_some() => return Err(FaultParseError::new(format!("`{name}` takes no value"))),
            _ => serde_json::from_value(json!({ "fault": name })).map_err(|_| {
                FaultParseError::new(format!("`{name}` is not a fault that can be given as text"))
            })?,
        };
        checked(fault)
    }
}

fn pair(text: &str) -> (&str, Option<&str>) {
    text.split_once('=')
        .map_or((text, None), |(name, value)| (name.trim(), Some(value.trim())))
}

fn number<N: FromStr>(name: &str, value: Option<&str>) -> Result<N, FaultParseError> {
    let value = value.ok_or_else(|| FaultParseError::new(format!("`{name}` needs `=` and a number")))?;
    value
        .parse()
        .map_err(|_| FaultParseError::new(format!("`{name}`: `{value}` is not a number that fits")))
}

fn checked(fault: Fault) -> Result<Fault, FaultParseError> {
    let (code, codes) = match fault {
        Fault::Status { code, .. } | Fault::HtmlError { code } | Fault::TextError { code } => {
            (code, 200..=599)
        }
        // 101 is not interim: it ends HTTP, and takes `raw`.
        Fault::Informational { code } => (code, 102..=199),
        _ => return Ok(fault),
    };
    if codes.contains(&code) {
        return Ok(fault);
    }
    Err(FaultParseError::new(format!(
        "`{}`: {code} is not between {} and {}",
        fault.name(),
        codes.start(),
        codes.end()
    )))
}

/// Reads a fault as text, or the JSON object of a rule.
impl FromStr for FaultRule {
    type Err = FaultParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !text.trim_start().starts_with('{') {
            return text.parse().map(Self::new);
        }
        let value = serde_json::from_str(text).map_err(|error| FaultParseError::new(error.to_string()))?;
        Self::from_json(&value)
    }
}

impl FaultRule {
    /// Reads a fault's object, which may also hold `times`, `for_ms`, `after`, `every`, `chance` and `on` (`inference`,
    /// `status`, `all` or a path).
    ///
    /// # Errors
    ///
    /// Says what is missing, unknown or of the wrong kind.
    pub fn from_json(value: &Value) -> Result<Self, FaultParseError> {
        let mut members = value
            .as_object()
            .cloned()
            .ok_or_else(|| FaultParseError::new("a fault is a JSON object"))?;
        let times = count(&mut members, "times")?;
        let after = count(&mut members, "after")?;
        let every = count(&mut members, "every")?;
        let chance = members.remove("chance");
        let lasting = whole(&mut members, "for_ms")?.map(Duration::from_millis);
        let on = members.remove("on");
        if members.contains_key("fault") && members.len() > 1 && takes_no_fields(&members) {
            return Err(FaultParseError::new("this fault takes no fields of its own"));
        }
        let fault: Fault = serde_json::from_value(Value::Object(members))
            .map_err(|error| FaultParseError::new(error.to_string()))?;
        let mut rule = Self::new(checked(fault)?);
        rule.lasting = lasting;
        rule.times = times;
        rule.after = after.unwrap_or(rule.after);
        rule.every = every.unwrap_or(rule.every).max(1);
        if let Some(chance) = chance {
            rule.chance = share(&chance)?;
        }
        if let Some(on) = on {
            rule.on = scope(&on)?;
        }
        Ok(rule)
    }

    /// The object that [`from_json`](Self::from_json) reads.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(&self.fault).unwrap_or_default();
        value["on"] = json!(self.on.to_string());
        if let Some(times) = self.times {
            value["times"] = json!(times);
        }
        if let Some(time) = self.lasting {
            value["for_ms"] = json!(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        }
        if self.after > 0 {
            value["after"] = json!(self.after);
        }
        if self.every > 1 {
            value["every"] = json!(self.every);
        }
        if self.chance < 1.0 {
            value["chance"] = json!(self.chance);
        }
        value
    }
}

/// Faults without fields would otherwise swallow misspelled ones in silence.
fn takes_no_fields(members: &serde_json::Map<String, Value>) -> bool {
    let name = members.get("fault").cloned().unwrap_or_default();
    serde_json::from_value::<Fault>(json!({ "fault": name })).is_ok()
}

fn whole(members: &mut serde_json::Map<String, Value>, name: &str) -> Result<Option<u64>, FaultParseError> {
    match members.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_u64()
            .map(Some)
            .ok_or_else(|| FaultParseError::new(format!("`{name}` must be a whole number"))),
    }
}

fn count(members: &mut serde_json::Map<String, Value>, name: &str) -> Result<Option<u32>, FaultParseError> {
    let too_large = |_| FaultParseError::new(format!("`{name}` is more than 4294967295"));
    whole(members, name)?
        .map(|number| u32::try_from(number).map_err(too_large))
        .transpose()
}

fn share(value: &Value) -> Result<f64, FaultParseError> {
    value
        .as_f64()
        .filter(|chance| (0.0..=1.0).contains(chance))
        .ok_or_else(|| FaultParseError::new("`chance` is a number from 0 to 1"))
}

fn scope(value: &Value) -> Result<Scope, FaultParseError> {
    match value.as_str() {
        Some("inference") => Ok(Scope::Inference),
        Some("status") => Ok(Scope::Status),
        Some("all") => Ok(Scope::All),
        Some(path) if path.starts_with('/') => Ok(Scope::Path(path.to_owned())),
        _ => Err(FaultParseError::new(
            "`on` is `inference`, `status`, `all` or a path",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms() {
        assert_eq!("reset".parse(), Ok(Fault::Reset));
        assert_eq!("hang-on-disconnect".parse(), Ok(Fault::HangOnDisconnect));
        assert_eq!("reset-after=100".parse(), Ok(Fault::ResetAfter { bytes: 100 }));
        assert_eq!("wrong-length=-3".parse(), Ok(Fault::WrongLength { by: -3 }));
        let limited = Fault::Status {
            code: 429,
            retry_after: Some(2),
        };
        assert_eq!("status=429; retry-after=2".parse(), Ok(limited));
        for bad in [
            "",
            "nonsense",
            "reset=1",
            "drip",
            "drip=x",
            "status=9",
            "drip=1;retry-after=2",
        ] {
            assert!(bad.parse::<Fault>().is_err(), "{bad}");
        }
    }

    #[test]
    fn json_forms_round_trip() {
        for text in [
            r#"{"fault":"refuse","for_ms":500,"on":"all"}"#,
            r#"{"fault":"drip","every_ms":7,"times":2,"on":"/health"}"#,
            r#"{"fault":"metric-names","names":{"a":null,"b":"c"},"on":"status"}"#,
            r#"{"fault":"status","code":500,"retry_after":null,"on":"inference"}"#,
            r#"{"fault":"model-list","names":["a","a"],"on":"status","after":3,"every":2,"chance":0.5}"#,
            r#"{"fault":"raw","text":"HTTP/1.1 101\r\n\r\n","on":"inference"}"#,
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(FaultRule::from_json(&value).unwrap().to_json(), value);
        }
    }

    #[test]
    fn json_that_is_wrong_is_refused() {
        for text in [
            "[]",
            "{}",
            r#"{"fault":"no-such"}"#,
            r#"{"fault":"reset","bytes":3}"#,
            r#"{"fault":"drip"}"#,
            r#"{"fault":"reset","times":-1}"#,
            r#"{"fault":"reset","on":"elsewhere"}"#,
            r#"{"fault":"reset-after","bytes":1,"size":2}"#,
            r#"{"fault":"status","code":99}"#,
            r#"{"fault":"informational","code":101}"#,
            r#"{"fault":"reset","chance":2}"#,
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert!(FaultRule::from_json(&value).is_err(), "{text}");
        }
    }
}
