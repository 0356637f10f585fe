//! A run: several processes one after the other over one store, the last of them calm, so that
//! everything must come to its end.

use crate::client::Client;
use crate::dice::Dice;
use crate::life::{Life, Plan};
use crate::provider::Shelf;
use crate::world::World;
use harness_core::ids::SessionId;
use harness_core::view::Status;
use harness_journal::{Catalog, Project, Workspace, WorkspaceState, WorkspaceTarget};
use harness_session::{Caller, Host, HostConfig, Parts};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How to run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Print every line of the trace.
    pub echo: bool,
    /// A defect of the session layer to switch on.
    #[cfg(feature = "planted-faults")]
    pub planted: Option<harness_session::Planted>,
}

impl Options {
    /// Prints every line of the trace.
    #[must_use]
    pub fn echoing() -> Self {
        Self {
            echo: true,
            #[cfg(feature = "planted-faults")]
            planted: None,
        }
    }
}

/// How a run went.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Digest of its trace: the same for the same seed.
    pub digest: String,
    /// Lines of its trace.
    pub lines: u64,
    /// Every type of event that came up.
    pub kinds: BTreeSet<&'static str>,
    /// The first rule that was broken.
    pub violation: Option<String>,
    /// The last lines of the trace.
    pub last: Vec<String>,
}

/// How long everything may take to come to its end in a calm process.
const PATIENCE: Duration = Duration::from_secs(1_200);

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> Report {
    let world = Arc::new(World::new(seed, options.echo));
    let panics = crate::panics::watch();
    for plan in plans(&world.dice) {
        live(&world, plan, options);
        if let Some(panic) = panics.first() {
            world.violated(format!("a panic: {panic}"));
        }
        if world.violation().is_some() {
            break;
        }
        world.store.reopen();
    }
    if world.violation().is_none() {
        let settled = world.ledger().settled();
        world.hold(settled);
    }
    Report {
        seed,
        digest: world.trace.digest(),
        lines: world.trace.lines(),
        kinds: world.ledger().kinds(),
        violation: world.violation(),
        last: world.trace.last(),
    }
}

fn plans(dice: &Dice) -> Vec<Plan> {
    let lives = 1 + dice.below(4);
    let mut plans: Vec<Plan> = (0..lives)
        .map(|_| {
            // As often early as late, over two orders of magnitude.
            let about = 6u64 << dice.below(7);
            Plan {
                crash_at: dice.percent(75).then(|| about + dice.below(about)),
                faults: if dice.percent(30) {
                    1 + dice.below(40)
                } else {
                    0
                },
                calm: false,
            }
        })
        .collect();
    plans.push(Plan {
        crash_at: None,
        faults: 0,
        calm: true,
    });
    plans
}

/// One process, from its start to its end.
fn live(world: &Arc<World>, plan: Plan, options: Options) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return world.violated(format!("no runtime: {error}")),
    };
    runtime.block_on(async {
        world.begin();
        world.note(format_args!("BEGIN {plan:?}"));
        let life = Life::new(world.clone(), plan);
        tokio::select! {
            biased;
            () = world.broken() => {}
            () = life.died() => {}
            () = serves(&life, options) => {}
        }
        world.end();
    });
    // Whatever the process still did is gone with its tasks.
}

async fn serves(life: &Arc<Life>, options: Options) {
    let world = &life.world;
    install(world).await;
    let host = host(life, options);
    if let Err(error) = host.recover("/simulated".into()).await {
        world.note(format_args!("not recovered: {error}"));
    }
    let client = Client::new(life.clone(), host.clone());
    tokio::spawn(client.clone().follows_rows());
    if life.plan.calm {
        let settled = settles(life, &host, &client).await;
        return world.hold(settled);
    }
    let clients = 1 + world.dice.below(3);
    let acting = (0..clients).map(|_| {
        let times = 5 + world.dice.below(30);
        tokio::spawn(client.clone().acts(times))
    });
    futures::future::join_all(acting).await;
    let ended = host.shutdown().await;
    world.note(format_args!("END all ended: {ended}"));
}

fn host(life: &Arc<Life>, options: Options) -> Host {
    let dice = &life.world.dice;
    let seconds = Duration::from_secs;
    let mut config = HostConfig {
        slots: 1 + usize::try_from(dice.below(3)).unwrap_or(0),
        inbox: 3 + usize::try_from(dice.below(6)).unwrap_or(0),
        ..HostConfig::default()
    };
    if dice.percent(30) {
        config.gates.permission = Some(seconds(1 + dice.below(60)));
        config.gates.ask_user = Some(seconds(1 + dice.below(60)));
    }
    let mut parts = Parts::new(
        Arc::new(crate::flaky::FlakyJournal(life.clone())),
        Arc::new(life.world.store.clone()),
        Arc::new(Shelf::new(life)),
        config,
    );
    parts.surroundings = life.world.clone();
    #[cfg(feature = "planted-faults")]
    {
        parts.planted = options.planted;
    }
    let _ = options;
    Host::new(parts)
}

/// The project that every session works in. Its workspace is remote: nothing of it is looked for
/// on this machine.
async fn install(world: &World) {
    let (Ok(id), Ok(workspace_id)) = ("default".parse(), "default".parse()) else {
        return;
    };
    let workspace = Workspace {
        id: workspace_id,
        project_id: id,
        target: WorkspaceTarget::Remote {
            host: "far".into(),
            path: "/work".into(),
        },
        state: WorkspaceState::Ready,
    };
    let project = Project {
        id: workspace.project_id.clone(),
        name: "Default".into(),
        default_workspace_id: Some(workspace.id.clone()),
    };
    // From the second process on it is there.
    let _ = world.store.create_project(project, Some(workspace)).await;
}

/// In a calm process everything that was left open comes to its end, and every session can be
/// shut down and taken up again.
async fn settles(life: &Arc<Life>, host: &Host, client: &Client) -> Result<(), String> {
    let world = &life.world;
    for id in world.store.sessions() {
        let stopped = host.session(id).await.map_err(|e| e.to_string())?.status == Status::Stopped;
        client.look(id).await;
        if !stopped {
            let released = host.release(id, Caller::default(), None, Vec::new()).await;
            released.map_err(|e| format!("held inputs of {id} are not released: {e}"))?;
        }
    }
    let begun = tokio::time::Instant::now();
    loop {
        let mut open = Vec::new();
        for id in world.store.sessions() {
            client.answers_all(id).await;
            let row = host.session(id).await.map_err(|e| e.to_string())?;
            if row.queued + row.held + row.open_gates > 0 || row.status == Status::InProgress {
                open.push(id);
            }
        }
        if open.is_empty() {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("these do not come to their end: {open:?}"));
        }
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(10)).await;
    let (free, slots) = (host.load().slots_used, host.load().slots);
    if free != 0 {
        return Err(format!("{free} of {slots} slots are held and nothing runs"));
    }
    world.ledger().settled()?;
    for id in world.store.sessions() {
        ends_and_returns(host, client, id).await?;
    }
    if !host.shutdown().await {
        return Err("the host does not shut down in time".into());
    }
    Ok(())
}

async fn ends_and_returns(host: &Host, client: &Client, id: SessionId) -> Result<(), String> {
    let shut = host.shutdown_session(id, Caller::default()).await;
    shut.map_err(|e| format!("{id} is not shut down: {e}"))?;
    let row = host.session(id).await.map_err(|e| e.to_string())?;
    if row.status != Status::Stopped {
        return Err(format!("{id} was shut down and is {:?}", row.status));
    }
    let row = host.restore(id, Caller::default()).await;
    let row = row.map_err(|e| format!("{id} is not restored: {e}"))?;
    if row.status == Status::Stopped {
        return Err(format!("{id} was restored and is stopped"));
    }
    client.look(id).await;
    Ok(())
}
