//! The JSON examples of the API guide are what the API sends (G1, S38).

use harness_api::ProblemDocument;
use serde_json::Value;

#[test]
fn g1_s38_every_json_example_of_the_guide_round_trips() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api-guide.md");
    let guide = std::fs::read_to_string(page).unwrap();
    let examples: Vec<&str> = guide
        .split("```json\n")
        .skip(1)
        .map(|block| block.split("\n```").next().unwrap())
        .collect();
    assert!(!examples.is_empty(), "the guide has lost its examples");
    for example in examples {
        let written: Value = serde_json::from_str(example).unwrap();
        let problem: ProblemDocument = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(problem.status, problem.code.status(), "{example}");
        assert_eq!(
            serde_json::to_value(&problem).unwrap(),
            written,
            "{example}"
        );
    }
}
