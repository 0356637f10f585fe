//! `just bench`: ratios against floors that are measured in the same run.
//!
//! A figure alone says more about the machine than about the host. Each row therefore sets what
//! the host does against the least that the same work costs here and now: a bare route, the same
//! bytes committed to bare SQLite, a bare instance. Exit status 1 when a target is missed.

mod client;
mod component;
mod floor;
mod journal;
mod restore;
mod stack;
mod workspace;

use anyhow::{Context, Result};
use client::{Client, throughput};
use floor::Commits;
use harness_journal::{Journal, Record};
use harness_session::HostConfig;
use serde_json::json;
use stack::{Stack, TOKEN};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// As in the binary: what is measured is what is served.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One line of the table.
pub(crate) struct Row {
    id: &'static str,
    what: String,
    value: f64,
    target: Option<Target>,
    note: String,
}

/// What a row is held against.
#[derive(Clone, Copy)]
enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => f.pad(&format!("≥ {bound}")),
            Self::AtMost(bound) => f.pad(&format!("≤ {bound}")),
        }
    }
}

impl Row {
    fn new(id: &'static str, what: &str, value: f64, target: Option<Target>) -> Self {
        Self {
            id,
            what: what.into(),
            value,
            target,
            note: String::new(),
        }
    }

    /// A part of the row before it: it has no target of its own.
    pub(crate) fn part(id: &'static str, what: &str, value: f64) -> Self {
        Self::new(id, what, value, None)
    }

    pub(crate) fn at_least(id: &'static str, what: &str, value: f64, target: f64) -> Self {
        Self::new(id, what, value, Some(Target::AtLeast(target)))
    }

    pub(crate) fn at_most(id: &'static str, what: &str, value: f64, target: f64) -> Self {
        Self::new(id, what, value, Some(Target::AtMost(target)))
    }

    pub(crate) fn note(mut self, note: String) -> Self {
        self.note = note;
        self
    }

    fn met(&self) -> bool {
        match self.target {
            Some(Target::AtLeast(bound)) => self.value >= bound,
            Some(Target::AtMost(bound)) => self.value <= bound,
            None => true,
        }
    }
}

/// The middle of these times.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Resident memory of this process that is its own, in bytes.
pub(crate) fn memory() -> Result<u64> {
    let rollup =
        std::fs::read_to_string("/proc/self/smaps_rollup").context("memory is read from /proc")?;
    let kib = |name: &str| -> u64 {
        rollup
            .lines()
            .find_map(|l| l.strip_prefix(name))
            .and_then(|l| l.split_whitespace().next())
            .and_then(|n| n.parse().ok())
            .unwrap_or(0)
    };
    Ok((kib("Private_Clean:") + kib("Private_Dirty:")) * 1024)
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let only: Vec<String> = std::env::args().skip(1).map(|a| a.to_uppercase()).collect();
    let wanted = |id: &str| only.is_empty() || only.iter().any(|o| o == id);
    let dir = tempfile::tempdir()?;
    let mut rows = Vec::new();
    if wanted("B1") {
        rows.push(discovery().await?);
    }
    if wanted("B2") || wanted("B3") {
        rows.extend(controls().await?);
    }
    if wanted("B4") {
        rows.push(component::instantiate(dir.path(), 500).await?);
    }
    if wanted("B5") {
        rows.push(component::load(dir.path()).await?);
    }
    if wanted("B6") {
        rows.push(parked(10_000).await?);
        rows.push(component::live_instances(dir.path(), 200).await?);
    }
    if wanted("B7") {
        rows.push(first_byte().await?);
    }
    if wanted("B8") || wanted("B9") {
        rows.extend(restore::restores().await?);
    }
    if wanted("B10") {
        rows.push(restore::starts().await?);
    }
    if wanted("B11") {
        // Beside the program, not in a directory for temporary files, which may be memory: the disk
        // is what is measured.
        let program = std::env::current_exe()?;
        let here = tempfile::tempdir_in(program.parent().context("a program is in a directory")?)?;
        let path = here.path().to_owned();
        rows.extend(tokio::task::spawn_blocking(move || workspace::rows(&path)).await??);
    }
    if wanted("B12") {
        rows.push(restore::fan_out().await?);
    }
    println!(
        "{:<4} {:<52} {:>10} {:>10}  ",
        "", "what", "value", "target"
    );
    for row in &rows {
        let target = row.target.map(|t| t.to_string()).unwrap_or_default();
        let mark = if row.met() { "" } else { "MISSED " };
        println!(
            "{:<4} {:<52} {:>10.2} {:>10}  {mark}{}",
            row.id, row.what, row.value, target, row.note
        );
    }
    Ok(if rows.iter().all(Row::met) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// B1: live command state over HTTP against a bare route of the same bytes.
async fn discovery() -> Result<Row> {
    let stack = Stack::start(HostConfig::default()).await?;
    let mut client = stack.client().await?;
    let session = stack.session(&mut client).await?;
    let path = format!("/v1/sessions/{session}/harness-commands");
    let (_, json) = client.request("GET", &path, "").await?;
    let floor = floor::server(String::from_utf8(json)?, stack.dir.path(), Vec::new()).await?;
    let time = Duration::from_secs(3);
    let mut ratios = Vec::new();
    for _ in 0..3 {
        let bare = throughput(floor, TOKEN, "/json", 32, time).await?;
        let ours = throughput(stack.address, TOKEN, &path, 32, time).await?;
        ratios.push((ours / bare, ours, bare));
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, ours, bare) = ratios.get(1).copied().context("three rounds")?;
    Ok(Row::at_least(
        "B1",
        "GET harness-commands / bare JSON route, 32 conns",
        ratio,
        0.5,
    )
    .note(format!("{ours:.0}/s / {bare:.0}/s")))
}

/// The records that one control appends, commit by commit, as the journal holds them.
async fn commits_of(stack: &Stack, session: &str) -> Result<Commits> {
    let commits = records_of(stack, session).await?;
    let bytes = |records: Vec<Record>| records.into_iter().map(|r| r.bytes.to_vec()).collect();
    Ok(commits.into_iter().map(bytes).collect())
}

async fn records_of(stack: &Stack, session: &str) -> Result<[Vec<Record>; 2]> {
    let id = session.parse()?;
    let before = Journal::tail(&stack.store, id).await?.next_seq;
    let mut client = stack.client().await?;
    stack.note(&mut client, session).await?;
    let page = Journal::read(&stack.store, id, before, 100).await?;
    let mut intent = page.records;
    // The intent with the session's activation, then everything else with the outcome.
    let outcome = intent.split_off(intent.len().min(2));
    Ok([intent, outcome])
}

/// B2 and B3: durable controls, one client and 64 sessions.
async fn controls() -> Result<Vec<Row>> {
    let stack = Stack::start(HostConfig::default()).await?;
    let mut client = stack.client().await?;
    let session = stack.session(&mut client).await?;
    let commits = commits_of(&stack, &session).await?;
    let floor = floor::server("{}".into(), stack.dir.path(), commits.clone()).await?;
    let route = floor;
    let mut bare = Client::connect(floor, TOKEN).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        let start = Instant::now();
        bare.request("POST", "/durable", "{}").await?;
        theirs.push(start.elapsed());
        let start = Instant::now();
        stack.note(&mut client, &session).await?;
        ours.push(start.elapsed());
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let b2 = Row::at_most(
        "B2",
        "durable control / bare route + 2 ordered commits",
        ours.as_secs_f64() / theirs.as_secs_f64(),
        1.6,
    )
    .note(format!("{ours:.2?} / {theirs:.2?}"));

    let time = Duration::from_secs(5);
    let path = stack.dir.path().to_owned();
    let floor_commits = commits.clone();
    let bare = tokio::task::spawn_blocking(move || floor::batched(&path, &floor_commits, 64, time))
        .await??;
    let mut sessions = Vec::new();
    for _ in 0..64 {
        sessions.push(stack.session(&mut client).await?);
    }
    let start = Instant::now();
    let work = sessions.iter().map(|session| async {
        let mut client = stack.client().await?;
        let mut done = 0u64;
        while start.elapsed() < time {
            stack.note(&mut client, session).await?;
            done += 1;
        }
        Ok::<_, anyhow::Error>(done)
    });
    let done: u64 = futures::future::try_join_all(work).await?.into_iter().sum();
    let ours = done as f64 / start.elapsed().as_secs_f64();
    let b3 = Row::at_least(
        "B3",
        "controls/s over 64 sessions / batched commits",
        ours / bare,
        0.4,
    )
    .note(format!("{ours:.0}/s / {bare:.0}/s"));
    let http = throughput(route, TOKEN, "/json", 64, time).await?;
    let http = Row::part(
        "",
        "  a bare JSON route, 64 conns / the same floor",
        http / bare,
    )
    .note(format!("{http:.0}/s"));
    let log = journal::controls(&stack, records_of(&stack, &session).await?, 64, time).await?;
    let log = Row::part(
        "",
        "  the journal alone, 64 sessions / the same floor",
        log / bare,
    )
    .note(format!("{log:.0}/s"));
    Ok(vec![b2, b3, http, log])
}

/// B6: memory of parked sessions.
async fn parked(n: usize) -> Result<Row> {
    let quick = Duration::from_millis(200);
    let config = HostConfig {
        instance_idle: quick,
        park_after: quick,
        ..HostConfig::default()
    };
    let stack = Stack::start(config).await?;
    // What as many sessions at once allocate for as long as they live is not a parked one's.
    create(&stack, 400).await?;
    settle(&stack).await?;
    let before = memory()?;
    create(&stack, n).await?;
    settle(&stack).await?;
    let each = memory()?.saturating_sub(before) as f64 / n as f64 / 1024.0;
    Ok(
        Row::at_most("B6", "KiB a parked session (10,000)", each, 2.0)
            .note(format!("{} live", stack.host.live_sessions())),
    )
}

/// Creates `n` sessions, 16 at a time.
async fn create(stack: &Stack, n: usize) -> Result<()> {
    let clients = (0..16).map(|_| async {
        let mut client = stack.client().await?;
        for _ in 0..n / 16 {
            stack.session(&mut client).await?;
        }
        Ok::<_, anyhow::Error>(())
    });
    futures::future::try_join_all(clients).await.map(drop)
}

/// Waits until every session is parked and no instance is left.
async fn settle(stack: &Stack) -> Result<()> {
    use harness_core::admin::ProviderAdmin;
    for _ in 0..600 {
        let instances: usize = stack.registry.reports().iter().map(|r| r.instances).sum();
        if stack.host.live_sessions() == 0 && instances == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("sessions were not parked")
}

/// B7: from sending a prompt to the first delta of its answer.
async fn first_byte() -> Result<Row> {
    let stack = Stack::start(HostConfig::default()).await?;
    let mut client = stack.client().await?;
    let session = stack.session(&mut client).await?;
    let commits = commits_of(&stack, &session).await?;
    let path = stack.dir.path().to_owned();
    let floor = tokio::task::spawn_blocking(move || floor::ordered(&path, &commits, 100)).await??;
    let mut events = stack.client().await?;
    events
        .events(&format!("/v1/sessions/{session}/events"))
        .await?;
    let body = json!({"blocks": [{"type": "text", "text": "demo:burst 1"}]}).to_string();
    let mut times = Vec::new();
    for _ in 0..100 {
        let start = Instant::now();
        client
            .request("POST", &format!("/v1/sessions/{session}/input"), &body)
            .await?;
        events.until("event: TokenDelta").await?;
        times.push(start.elapsed());
        events.until("event: SessionIdle").await?;
    }
    let ours = median(times);
    let over = (ours.as_secs_f64() - floor.as_secs_f64()) * 1000.0;
    Ok(
        Row::at_most("B7", "ms to the first delta beyond two commits", over, 2.0)
            .note(format!("{ours:.2?} - {floor:.2?}")),
    )
}
