//! A component's exports: found once, when it is linked, and type-checked in an instance when they
//! are first called there.
//!
//! The generated bindings look all of them up and check all of them in every instance, which was
//! a sixth of what opening one cost. The instance that describes a component when it is loaded is
//! checked whole ([`check`]), and no other instance of it can have other types.

use crate::bindings::HarnessProviderPre;
use crate::bindings::exports::harness::provider::provider::Invocation;
use crate::bindings::harness::provider::host::{Channel, Discovery, Link, Preparation};
use crate::bindings::harness::provider::types::{
    CommandState, Compaction, Error, Execution, HarnessInfo, Input, Operation, Outcome, Readiness,
};
use crate::instance::ctx::Ctx;
use std::sync::{Arc, OnceLock};
use wasmtime::Store;
use wasmtime::component::{
    Accessor, Component, ComponentExportIndex, Instance, Resource, ResourceAny, TypedFunc,
};

const PROVIDER: &str = "harness:provider/provider@0.1.0";

/// What a function of the contract returns: nothing, or one value.
pub(crate) trait Returned {
    type Value;
    fn value(self) -> Self::Value;
}

impl Returned for () {
    type Value = ();
    fn value(self) {}
}

impl<T> Returned for (T,) {
    type Value = T;
    fn value(self) -> T {
        self.0
    }
}

macro_rules! exports {
    ($($call:ident = $name:literal: ($($arg:ident: $param:ty),*) -> ($($value:ty)?);)*) => {
        /// Where the exports of a component are.
        #[derive(Debug)]
        pub(crate) struct Exports {
            $($call: ComponentExportIndex,)*
        }

        impl Exports {
            /// Finds them all.
            pub(crate) fn of(component: &Component) -> wasmtime::Result<Self> {
                let provider = find(component, None, PROVIDER)?;
                Ok(Self { $($call: find(component, Some(&provider), $name)?,)* })
            }
        }

        /// The exports of one instance.
        pub(crate) struct Guest {
            instance: Instance,
            exports: Arc<Exports>,
            $($call: OnceLock<TypedFunc<($($param,)*), ($($value,)?)>>,)*
        }

        impl Guest {
            pub(crate) fn new(instance: Instance, exports: Arc<Exports>) -> Self {
                Self { instance, exports, $($call: OnceLock::new(),)* }
            }

            $(pub(crate) async fn $call(
                &self,
                accessor: &Accessor<Ctx>,
                $($arg: $param),*
            ) -> wasmtime::Result<<($($value,)?) as Returned>::Value> {
                let callee = match self.$call.get() {
                    Some(callee) => *callee,
                    None => {
                        let found = accessor.with(|access| {
                            self.instance.get_typed_func(access, &self.exports.$call)
                        })?;
                        *self.$call.get_or_init(|| found)
                    }
                };
                Ok(callee.call_concurrent(accessor, ($($arg,)*)).await?.value())
            })*
        }
    };
}

exports! {
    call_describe = "describe": () -> (HarnessInfo);
    call_run = "run": (link: Resource<Link>) -> (Result<(), Error>);
    call_detect = "detect": (request: Resource<Discovery>) -> (Result<Readiness, Error>);
    call_get_command_state = "get-command-state":
        (request: Resource<Discovery>) -> (Result<Option<CommandState>, Error>);
    call_prepare_operation = "prepare-operation":
        (request: Resource<Preparation>, operation: Operation) -> (Result<ResourceAny, Error>);
    call_execution = "[method]prepared.execution": (prepared: ResourceAny) -> (Execution);
    call_discard = "discard": (prepared: ResourceAny) -> ();
    call_invoke = "invoke":
        (prepared: ResourceAny, command_id: String, channel: Resource<Channel>)
        -> (Result<Invocation, Error>);
    call_start_prompt = "start-prompt":
        (input: Input, channel: Resource<Channel>) -> (Result<ResourceAny, Error>);
    call_adopt_turn = "adopt-turn":
        (id: String, command_id: String, channel: Resource<Channel>)
        -> (Result<ResourceAny, Error>);
    call_done = "done": (session: ResourceAny) -> (Result<Outcome, Error>);
    call_compact = "compact":
        (command_id: String, channel: Resource<Channel>) -> (Result<Compaction, Error>);
}

fn find(
    component: &Component,
    within: Option<&ComponentExportIndex>,
    name: &str,
) -> wasmtime::Result<ComponentExportIndex> {
    component
        .get_export_index(within, name)
        .ok_or_else(|| wasmtime::Error::msg(format!("the component does not export `{name}`")))
}

/// Holds every export of this instance against the contract.
pub(crate) fn check(
    store: &mut Store<Ctx>,
    pre: &HarnessProviderPre<Ctx>,
    instance: &Instance,
) -> wasmtime::Result<()> {
    crate::bindings::HarnessProviderIndices::new(pre.instance_pre())?
        .load(store, instance)
        .map(drop)
}
