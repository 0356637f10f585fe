//! The contract as Rust types, generated from `wit/harness.wit`.
//!
//! Nothing outside `convert`, `imports` and `instance` names a generated type: the rest of the
//! crate speaks the domain types of `harness-core`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::indexing_slicing,
    clippy::unwrap_used
)]

wasmtime::component::bindgen!({
    path: "../../wit/harness.wit",
    world: "harness-provider",
    imports: {
        "harness:provider/process.[method]process.stdout": store | trappable,
        "harness:provider/process.[method]process.stderr": store | trappable,
        default: trappable,
    },
    exports: { default: async | store },
    with: {
        "harness:provider/host.abort-signal": crate::imports::abort::AbortHandle,
        "harness:provider/host.discovery": crate::imports::request::DiscoveryHandle,
        "harness:provider/host.preparation": crate::imports::request::PreparationHandle,
        "harness:provider/host.message-writer": crate::imports::channel::WriterHandle,
        "harness:provider/host.channel": crate::imports::channel::ChannelHandle,
        "harness:provider/host.activity": crate::imports::link::ActivityHandle,
        "harness:provider/host.link": crate::imports::link::LinkHandle,
        "harness:provider/delegation.delegates": crate::imports::delegation::DelegatesHandle,
        "harness:provider/process.process": crate::imports::process::ProcessHandle,
    },
    require_store_data_send: true,
});
