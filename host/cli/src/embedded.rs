//! The provider inside the binary: `demo/planner`, served when nothing else is configured.
//!
//! The build script compiles it from its sources; see `build.rs`. It comes with one program of its
//! own, which sleeps: without a program that may run in the background it could not be linked.

use bytes::Bytes;
use harness_engine::{
    ComponentSource, DelegationGrant, Grants, ProcessCwd, ProcessGrant, ProviderSpec, Secret,
    StateGrant,
};
use std::collections::BTreeMap;

static COMPONENT: &[u8] = include_bytes!(env!("HARNESS_EMBEDDED_COMPONENT"));

/// The program's name in the demo.
const SLEEP: &str = "sleep";
/// Sleeps as many seconds as the first line of its input says. A word of that line is an argument
/// of `sleep` and never anything else.
const SCRIPT: &str = "read -r seconds && echo \"sleeping $seconds s\" && sleep -- \"$seconds\" && echo \"slept $seconds s\"";

/// The component.
pub(crate) fn component() -> ComponentSource {
    ComponentSource::Bytes {
        name: "embedded".to_owned(),
        bytes: Bytes::from_static(COMPONENT),
    }
}

/// The provider as it is served by default: it may keep state, start delegates on itself and sleep, and
/// nothing else.
pub(crate) fn provider() -> ProviderSpec {
    let mut spec = ProviderSpec::new(component());
    spec.grants.state = Some(StateGrant::default());
    spec.grants.delegation = Some(DelegationGrant::default());
    complete(&mut spec.grants);
    spec
}

/// Adds the demo's own program, unless the operator granted one that may run in the background.
pub(crate) fn complete(grants: &mut Grants) {
    if !grants.allows("background") {
        grants.process.entry(SLEEP.to_owned()).or_insert_with(sleep);
    }
}

fn sleep() -> ProcessGrant {
    ProcessGrant {
        command: ["sh", "-c", SCRIPT].map(str::to_owned).to_vec(),
        env: BTreeMap::from([(
            "PATH".to_owned(),
            Secret::new("/usr/local/bin:/usr/bin:/bin"),
        )]),
        cwd: ProcessCwd::Path("/".into()),
        background: true,
    }
}
