use super::*;
use crate::grants::{HttpGrant, StateGrant};
use std::collections::BTreeMap;

/// A component that imports and exports empty instances of those names.
fn component(imports: &[&str], exports: &[&str]) -> Vec<u8> {
    // (component (type (instance)) (import …) (instance (export …))), encoded by hand: a section is
    // its id, its length, and its items.
    fn leb(mut n: usize, out: &mut Vec<u8>) {
        loop {
            let byte = (n & 0x7f) as u8;
            n >>= 7;
            out.push(if n == 0 { byte } else { byte | 0x80 });
            if n == 0 {
                break;
            }
        }
    }
    fn name(name: &str, out: &mut Vec<u8>) {
        out.push(0);
        leb(name.len(), out);
        out.extend_from_slice(name.as_bytes());
    }
    fn section(id: u8, items: usize, body: &[u8], out: &mut Vec<u8>) {
        let mut content = Vec::new();
        leb(items, &mut content);
        content.extend_from_slice(body);
        out.push(id);
        leb(content.len(), out);
        out.extend_from_slice(&content);
    }
    let mut out = b"\0asm\x0d\0\x01\0".to_vec();
    section(7, 1, &[0x42, 0], &mut out);
    let mut body = Vec::new();
    for import in imports {
        name(import, &mut body);
        body.extend_from_slice(&[5, 0]);
    }
    section(10, imports.len(), &body, &mut out);
    section(5, 1, &[1, 0], &mut out);
    let mut body = Vec::new();
    for export in exports {
        name(export, &mut body);
        leb(5, &mut body);
        leb(imports.len(), &mut body);
        body.push(0);
    }
    section(11, exports.len(), &body, &mut out);
    out
}

const PROVIDER: &str = "harness:provider/provider@0.1.0";

/// Checks the codes of all problems.
fn check(
    imports: &[&str],
    exports: &[&str],
    grants: Option<&Grants>,
    expected: &[&str],
) -> Preflight {
    let report = preflight(&component(imports, exports), grants).unwrap();
    let codes: Vec<_> = report.problems.iter().map(LoadError::code).collect();
    assert_eq!(codes, expected, "{report}");
    report
}

fn refused(bytes: &[u8]) -> LoadError {
    preflight(bytes, None).unwrap_err()
}

#[test]
fn what_is_no_component_has_a_message_of_its_own() {
    assert_eq!(refused(b"").code(), "not_a_component");
    assert_eq!(refused(b"#!/bin/sh\n").code(), "not_a_component");
    assert_eq!(refused(b"\x7fELF\x02\x01\x01").code(), "precompiled");
    assert_eq!(refused(b"\0asm\x01\0\0\0").code(), "core_module");
    let whole = component(&["harness:provider/host@0.1.0"], &[PROVIDER]);
    for end in [5, whole.len() / 2, whole.len() - 1] {
        assert_eq!(refused(&whole[..end]).code(), "truncated", "cut at {end}");
    }
    let mut broken = whole;
    broken[8] = 99;
    assert_eq!(refused(&broken).code(), "malformed");
}

#[test]
fn a_provider_without_grants_is_fine() {
    let imports = [
        "harness:provider/types@0.1.0",
        "harness:provider/host@0.1.0",
        "wasi:io/poll@0.2.6",
        "wasi:clocks/monotonic-clock@0.3.0",
    ];
    let report = check(&imports, &[PROVIDER], Some(&Grants::default()), &[]);
    assert_eq!(report.contract.as_deref(), Some("0.1.0"));
}

#[test]
fn grants_and_imports_must_agree() {
    let none = Grants::default();
    let imports = [
        "harness:provider/host@0.1.0",
        "harness:provider/process@0.1.0",
        "harness:provider/http@0.1.0",
    ];
    let report = check(
        &imports,
        &[PROVIDER],
        Some(&none),
        &["not_granted", "not_granted"],
    );
    let text = report.to_string();
    assert!(
        text.contains("[provider.grants.process.<name>]") && text.contains("NO: not granted"),
        "{text}"
    );

    let grants = Grants {
        state: Some(StateGrant::default()),
        process: BTreeMap::new(),
        http: BTreeMap::from([("https://a.example".to_owned(), HttpGrant::default())]),
    };
    check(
        &["harness:provider/http@0.1.0"],
        &[PROVIDER],
        Some(&grants),
        &["unused_grant"],
    );
    // Without grants to compare with, the need is only told.
    let report = check(&imports, &[PROVIDER], None, &[]);
    assert!(report.to_string().contains("with a grant"), "{report}");
}

#[test]
fn versions_and_unknown_imports_are_told_apart() {
    check(
        &["harness:provider/host@0.2.0"],
        &["harness:provider/provider@0.2.0"],
        None,
        &["contract_version"],
    );
    check(
        &["harness:provider/host@0.1.0"],
        &["harness:provider/provider@0.2.0"],
        None,
        &["contract_version"],
    );
    check(
        &["harness:provider/host@0.1.7"],
        &["harness:provider/provider@0.1.7"],
        None,
        &[],
    );
    check(
        &["harness:provider/host@0.1.0"],
        &["wasi:cli/run@0.2.0"],
        None,
        &["no_provider"],
    );
    check(
        &["evil:host/shell@1.0.0"],
        &[PROVIDER],
        None,
        &["unknown_import"],
    );
    check(
        &["harness:provider/shell@0.1.0"],
        &[PROVIDER],
        None,
        &["unknown_import"],
    );
    let report = check(
        &["wasi:http/outgoing-handler@0.2.0"],
        &[PROVIDER],
        None,
        &["unknown_import"],
    );
    assert!(
        report.to_string().contains("harness:provider/http"),
        "{report}"
    );
}
