//! The contract's text: one truth in the repository, and shapes that toolchains
//! can carry.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // a failed test

use std::path::{Path, PathBuf};
use wit_parser::abi::AbiVariant;
use wit_parser::{Resolve, WorldItem};

fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("wit/harness.wit")
}

/// The crate carries its own copy so that it builds outside the repository.
#[test]
fn the_copy_of_the_contract_is_the_contract() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit/harness.wit");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert!(
        read(&own()) == read(&repository),
        "guest-sdk/wit/harness.wit differs from wit/harness.wit: copy one over the other"
    );
}

/// wit-bindgen 0.63 leaks the spilled parameters of an async export with more than
/// 16 flat ones.
#[test]
fn exports_have_at_most_16_flat_parameters() {
    let mut resolve = Resolve::default();
    let package = resolve.push_file(own()).unwrap();
    let world = resolve
        .select_world(&[package], Some("harness-provider"))
        .unwrap();
    let mut checked = 0;
    for item in resolve.worlds[world].exports.values() {
        let WorldItem::Interface { id, .. } = item else {
            continue;
        };
        for (name, function) in &resolve.interfaces[*id].functions {
            let mut flat = 0;
            for param in &function.params {
                let mut storage = [wit_parser::abi::WasmType::I32; 64];
                let mut types = wit_parser::abi::FlatTypes::new(&mut storage);
                assert!(
                    resolve.push_flat(&param.ty, &mut types),
                    "{name}: more than 64"
                );
                flat += types.to_vec().len();
            }
            assert!(flat <= 16, "{name} has {flat} flat parameters");
            let signature = resolve.wasm_signature(AbiVariant::GuestExportAsync, function);
            assert!(!signature.indirect_params, "{name} spills its parameters");
            checked += 1;
        }
    }
    assert!(checked >= 11, "only {checked} exports were seen");
}
