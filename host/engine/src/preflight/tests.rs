use super::*;
use crate::grants::{HttpGrant, ProcessCwd, StateGrant};
use std::collections::BTreeMap;

const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

// Encoded by hand: a section is its id, its length, and its items.
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

fn section(id: u8, items: usize, body: &[u8], out: &mut Vec<u8>) {
    let mut content = Vec::new();
    leb(items, &mut content);
    content.extend_from_slice(body);
    raw(id, &content, out);
}

fn raw(id: u8, content: &[u8], out: &mut Vec<u8>) {
    out.push(id);
    leb(content.len(), out);
    out.extend_from_slice(content);
}

/// A component that imports and exports empty instances of those names.
fn component(imports: &[&str], exports: &[&str]) -> Vec<u8> {
    // (component (type (instance)) (import …) (instance (export …))).
    fn name(name: &str, out: &mut Vec<u8>) {
        out.push(0);
        leb(name.len(), out);
        out.extend_from_slice(name.as_bytes());
    }
    let mut out = COMPONENT.to_vec();
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
    let report = preflight(&component(imports, exports), grants, None).unwrap();
    let codes: Vec<_> = report.problems.iter().map(LoadError::code).collect();
    assert_eq!(codes, expected, "{report}");
    report
}

fn refused(bytes: &[u8]) -> LoadError {
    preflight(bytes, None, None).unwrap_err()
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
        "harness:provider/delegation@0.1.0",
    ];
    let report = check(
        &imports,
        &[PROVIDER],
        Some(&none),
        &["not_granted", "not_granted", "not_granted"],
    );
    let text = report.to_string();
    assert!(
        text.contains("[provider.grants.process.<name>]") && text.contains("NO: not granted"),
        "{text}"
    );

    let grants = Grants {
        state: Some(StateGrant::default()),
        delegation: None,
        process: BTreeMap::new(),
        http: BTreeMap::from([("https://a.example".to_owned(), HttpGrant::default())]),
    };
    check(
        &["harness:provider/http@0.1.0"],
        &[PROVIDER],
        Some(&grants),
        &["unused_grant"],
    );
    // A program of the background is of use to `background` alone, one of the foreground is not.
    let program = |background| ProcessGrant {
        command: vec!["/bin/true".into()],
        env: BTreeMap::new(),
        cwd: ProcessCwd::Workspace,
        background,
    };
    let granted = |programs: &[bool]| Grants {
        process: programs
            .iter()
            .enumerate()
            .map(|(at, background)| (format!("p{at}"), program(*background)))
            .collect(),
        ..Grants::default()
    };
    let background = "harness:provider/background@0.1.0";
    let process = "harness:provider/process@0.1.0";
    for (imports, programs, problems) in [
        (vec![background], vec![true], vec![]),
        (vec![background, process], vec![true, false], vec![]),
        (
            vec![background],
            vec![false],
            vec!["not_granted", "unused_grant"],
        ),
        (vec![background], vec![true, false], vec!["unused_grant"]),
        (vec![process], vec![true], vec!["unused_grant"]),
        (vec![process], vec![false], vec![]),
        (vec![background], vec![], vec!["not_granted"]),
    ] {
        check(&imports, &[PROVIDER], Some(&granted(&programs)), &problems);
    }
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

/// A core module with a table of that many elements and a memory of that many pages.
fn module(elements: u8, pages: u8) -> Vec<u8> {
    let mut out = b"\0asm\x01\0\0\0".to_vec();
    section(4, 1, &[0x70, 0, elements], &mut out);
    section(5, 1, &[0, pages], &mut out);
    out
}

#[test]
fn memory_is_counted_once_an_instance_and_inside_nested_components_too() {
    const PAGE: u64 = 65536;
    let element = crate::instance::limiter::ELEMENT as u64;
    // (component
    //   (core module $a 10 elements, 2 pages) (core module $b 0 elements, 100 pages)
    //   (core instance $a) (core instance $a)
    //   (component $c (alias outer $a) (core instance $a)) (instance $c) (instance $c) (instance $c))
    // $b is never instantiated.
    let mut out = COMPONENT.to_vec();
    raw(1, &module(10, 2), &mut out);
    raw(1, &module(0, 100), &mut out);
    section(2, 2, &[0, 0, 0, 0, 0, 0], &mut out);
    let mut inner = COMPONENT.to_vec();
    section(6, 1, &[0x00, 0x11, 0x02, 1, 0], &mut inner);
    section(2, 1, &[0, 0, 0], &mut inner);
    raw(4, &inner, &mut out);
    section(5, 3, &[0, 0, 0, 0, 0, 0, 0, 0, 0], &mut out);
    let needs = 5 * (10 * element + 2 * PAGE);
    let report = |limit| preflight(&out, None, Some(limit)).unwrap();
    assert_eq!(report(needs).memory, needs);
    let problem = |limit| {
        let problems = report(limit).problems;
        problems.iter().any(|p| p.code() == "memory_limit")
    };
    assert!(problem(needs - 1) && !problem(needs));
}
