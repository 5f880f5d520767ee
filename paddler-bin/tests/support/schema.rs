//! Is a value of the shape that a JSON schema says?
//!
//! As much of JSON Schema as the management API uses; a word that is not known here fails the test, so that none is passed over.

use serde_json::Value;

/// Panics where the value is not as the schema says. `document`: where references lead.
pub(crate) fn check(document: &Value, schema: &Value, value: &Value) {
    if let Err(why) = fits(document, schema, value, "") {
        panic!("{why}\nin {value:#}");
    }
}

fn fits(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    for (word, says) in schema.as_object().unwrap() {
        let holds = match word.as_str() {
            "description" => true,
            "$ref" => {
                let target = document.pointer(says.as_str().unwrap().strip_prefix('#').unwrap());
                fits(document, target.unwrap(), value, at)?;
                true
            }
            "type" => match says {
                Value::Array(types) => types.iter().any(|one| is_a(value, one)),
                one => is_a(value, one),
            },
            "const" => value == says,
            "enum" => says.as_array().unwrap().contains(value),
            "minimum" => value
                .as_f64()
                .is_none_or(|number| number >= says.as_f64().unwrap()),
            "minItems" => value
                .as_array()
                .is_none_or(|all| all.len() as u64 >= says.as_u64().unwrap()),
            "maxItems" => value
                .as_array()
                .is_none_or(|all| all.len() as u64 <= says.as_u64().unwrap()),
            "oneOf" => {
                let all = says.as_array().unwrap().iter();
                let tried: Vec<_> = all.map(|one| fits(document, one, value, at)).collect();
                if tried.iter().filter(|tried| tried.is_ok()).count() != 1 {
                    return Err(format!("{at}: not one of: {tried:#?}"));
                }
                true
            }
            "required" => {
                let all = says.as_array().unwrap().iter();
                all.clone().all(|key| value.get(key.as_str().unwrap()).is_some())
            }
            "properties" | "additionalProperties" => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    let at = format!("{at}/{key}");
                    match (schema["properties"].get(key), word.as_str()) {
                        (Some(schema), "properties") => fits(document, schema, value, &at)?,
                        (None, "additionalProperties") if says == &Value::Bool(false) => {
                            return Err(format!("{at} is not documented"));
                        }
                        (None, "additionalProperties") => fits(document, says, value, &at)?,
                        _ => {}
                    }
                }
                true
            }
            "items" | "prefixItems" => {
                for (index, value) in value.as_array().into_iter().flatten().enumerate() {
                    let schema = if word == "items" {
                        Some(says)
                    } else {
                        says.get(index)
                    };
                    if let Some(schema) = schema {
                        fits(document, schema, value, &format!("{at}/{index}"))?;
                    }
                }
                true
            }
            unknown => panic!("{unknown} is not known to this check"),
        };
        if !holds {
            return Err(format!("{at}: {word} should be {says}, and there is {value}"));
        }
    }
    Ok(())
}

fn is_a(value: &Value, kind: &Value) -> bool {
    match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        unknown => panic!("{unknown} is no type"),
    }
}

#[test]
fn it_tells_what_fits_from_what_does_not() {
    use serde_json::json;

    let document = json!({"defs": {"id": {"type": "string"}}});
    let schema = json!({
        "type": "object", "required": ["id"], "additionalProperties": false,
        "properties": {
            "id": {"$ref": "#/defs/id"}, "state": {"enum": ["a", "b"]}, "many": {"type": ["integer", "null"], "minimum": 0},
            "pairs": {"type": "array", "items": {"prefixItems": [{"type": "string"}], "minItems": 1, "maxItems": 2}},
            "either": {"oneOf": [{"const": 1}, {"type": "string"}]},
        },
    });
    let fits = |value: Value| fits(&document, &schema, &value, "").is_ok();
    assert!(fits(
        json!({"id": "x", "state": "a", "many": null, "pairs": [["a", 1]], "either": 1})
    ));
    for wrong in [
        json!([]),
        json!({}),
        json!({"id": 1}),
        json!({"id": "x", "more": 1}),
        json!({"id": "x", "state": "c"}),
        json!({"id": "x", "many": -1}),
        json!({"id": "x", "many": 1.5}),
        json!({"id": "x", "pairs": [[]]}),
        json!({"id": "x", "pairs": [[1]]}),
        json!({"id": "x", "pairs": [["a", 1, 2]]}),
        json!({"id": "x", "either": 2}),
    ] {
        assert!(!fits(wrong.clone()), "{wrong}");
    }
}
