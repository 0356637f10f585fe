//! What the guests are, seen from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed test

use std::collections::BTreeSet;
use std::fs;
use wasmparser::{Parser, Payload, Validator, WasmFeatures};

/// The interfaces a component imports, WASI's left out.
fn imports(path: &str) -> BTreeSet<String> {
    let bytes = fs::read(path).unwrap();
    let mut names = BTreeSet::new();
    let mut depth = 0u32;
    for payload in Parser::new(0).parse_all(&bytes) {
        match payload.unwrap() {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    let name = import.unwrap().name.name.to_owned();
                    if !name.starts_with("wasi:") {
                        names.insert(name);
                    }
                }
            }
            _ => {}
        }
    }
    names
}

fn interfaces(names: &[&str]) -> BTreeSet<String> {
    names
        .iter()
        .map(|name| format!("harness:provider/{name}@0.1.0"))
        .collect()
}

/// Importing an interface is asking for its grant, so the SDK must not import what
/// an author does not use.
#[test]
fn a_provider_imports_only_what_it_uses() {
    use harness_test_guests as built;
    let plain = interfaces(&["host", "types"]);
    assert_eq!(imports(built::PROVIDER_HELLO), plain);
    assert_eq!(imports(built::PROBE), plain);
    assert_eq!(imports(built::ABORT_DEAF), plain);
    let stateful = interfaces(&["host", "state", "types"]);
    let planner = interfaces(&["background", "delegation", "host", "state", "types"]);
    assert_eq!(imports(built::PROVIDER_PLANNER), planner);
    let delegating = interfaces(&["delegation", "host", "types"]);
    assert_eq!(imports(built::DELEGATE_BOMB), delegating);
    let background = interfaces(&["background", "host", "types"]);
    assert_eq!(imports(built::BACKGROUND_FLOOD), background);
    assert_eq!(imports(built::STATEFUL), stateful);
    let process = interfaces(&["host", "process", "types"]);
    assert_eq!(imports(built::UNGRANTED_IMPORT), process);
}

#[test]
fn all_but_the_malformed_are_valid_components() {
    let malformed = ["core_module", "truncated"];
    let mut seen = 0;
    for (name, path) in harness_test_guests::GUESTS {
        let bytes = fs::read(path).unwrap();
        let valid = Validator::new_with_features(WasmFeatures::all())
            .validate_all(&bytes)
            .is_ok();
        let component = Parser::is_component(&bytes);
        match *name {
            "core_module" => assert!(valid && !component, "{name}"),
            "truncated" => assert!(!valid && component, "{name}"),
            _ => {
                assert!(valid && component, "{name}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen + malformed.len(), harness_test_guests::GUESTS.len());
}

/// A grafted module is part of the component itself, not of a nested one.
#[test]
fn grafted_components_have_one_more_core_instance() {
    let count = |path: &str| {
        let bytes = fs::read(path).unwrap();
        let mut depth = 0;
        let mut instances = 0;
        for payload in Parser::new(0).parse_all(&bytes) {
            match payload.unwrap() {
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth -= 1,
                Payload::InstanceSection(section) if depth == 0 => instances += section.count(),
                _ => {}
            }
        }
        instances
    };
    let plain = count(harness_test_guests::TRAP_COMPACT);
    assert_eq!(count(harness_test_guests::TABLE_BOMB), plain + 1);
    assert_eq!(count(harness_test_guests::SPIN_AT_INSTANTIATION), plain + 1);
}
