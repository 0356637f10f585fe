//! The provider inside the binary: `demo/planner`, served when nothing else is configured.
//!
//! The build script compiles it from its sources; see `build.rs`.

use bytes::Bytes;
use harness_engine::{ComponentSource, DelegationGrant, ProviderSpec, StateGrant};

static COMPONENT: &[u8] = include_bytes!(env!("HARNESS_EMBEDDED_COMPONENT"));

/// The component.
pub(crate) fn component() -> ComponentSource {
    ComponentSource::Bytes {
        name: "embedded".to_owned(),
        bytes: Bytes::from_static(COMPONENT),
    }
}

/// The provider as it is served by default: it may keep state and start delegates on itself, and
/// nothing else.
pub(crate) fn provider() -> ProviderSpec {
    let mut spec = ProviderSpec::new(component());
    spec.grants.state = Some(StateGrant::default());
    spec.grants.delegation = Some(DelegationGrant::default());
    spec
}
