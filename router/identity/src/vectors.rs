//! The cases every implementation of these rules runs: `tests/identity-vectors.json`.

use serde_json::Value;

/// The cases of one rule; at least `least` of them, so that an emptied list is noticed.
pub(crate) fn cases(rule: &str, least: usize) -> Vec<Value> {
    let vectors: Value = serde_json::from_str(include_str!("../../../tests/identity-vectors.json"))
        .expect("the vectors are JSON");
    let cases = vectors[rule].as_array().expect("a list of cases").clone();
    assert!(cases.len() >= least, "only {} cases of {rule}", cases.len());
    cases
}
