//! B8 to B10: a long session taken up again, the start of a turn, the fold, the fan-out.

use crate::stack::Stack;
use crate::{Row, floor, median};
use anyhow::{Context, Result};
use harness_core::codec::decode_event;
use harness_core::command::{Agency, Cause, Command, CommandBody, CommandHeader};
use harness_core::content::{Block, Message, Part, Role};
use harness_core::event::{Event, EventBody};
use harness_core::ids::{CommandId, EventId, LoopId, MessageId, RunId, SessionId, TurnId};
use harness_core::session::{Record, Session};
use harness_journal::{Append, Epoch, Journal, NewRecord, NewSession, Projection, RecordKind};
use harness_session::{HostConfig, Item, Start};
use rusqlite::Connection;
use serde_json::json;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Records of one append while a journal is made.
const BATCH: usize = 3_500;
/// What an answer says.
const ANSWER: &str = "The tree is clean, the tests pass, and the release notes are written. ";

/// A journal as a long conversation leaves it: a prompt, its turn, an answer, rest.
struct Long {
    session: SessionId,
    loop_id: LoopId,
    last: u128,
}

impl Long {
    fn new(n: u128) -> Self {
        let base = 0x0190_0000_0000_7000_8000_0000_0000_0000 + (n << 96);
        Self {
            session: SessionId(Uuid::from_u128(base)),
            loop_id: LoopId(Uuid::from_u128(base + 1)),
            last: base + 1,
        }
    }

    fn id(&mut self) -> Uuid {
        self.last += 1;
        Uuid::from_u128(self.last)
    }

    fn event(&mut self, of_loop: bool, turn_id: TurnId, cause: Cause, body: EventBody) -> Record {
        Record::Event(Event {
            id: EventId(self.id()),
            session_id: self.session,
            loop_id: if of_loop { self.loop_id } else { LoopId::ZERO },
            turn_id,
            at: jiff::Timestamp::UNIX_EPOCH,
            cause,
            body,
        })
    }

    fn birth(&mut self) -> Result<Vec<Record>> {
        let started = EventBody::SessionStarted {
            project_id: "default".parse()?,
            title: "long".into(),
            agent: "demo/planner".parse()?,
            model: None,
            params: Default::default(),
            workspace_id: "default".parse()?,
            configuration: None,
        };
        let looped = EventBody::LoopStarted {
            harness_id: "demo/planner".parse()?,
            parent_loop_id: None,
            model: None,
        };
        let none = TurnId::ZERO;
        Ok(vec![
            self.event(false, none, Cause::default(), started),
            self.event(true, none, Cause::default(), looped),
        ])
    }

    /// One prompt and everything that follows from it: seven records.
    fn turn(&mut self) -> Vec<Record> {
        let command_id = CommandId(self.id());
        let (run_id, turn_id) = (RunId(self.id()), TurnId(self.id()));
        let text = |text: &str| vec![Part::Text { text: text.into() }];
        let mut message = |role, parts| Message {
            id: MessageId(self.id()),
            role,
            turn_id: Some(turn_id),
            created_at: jiff::Timestamp::UNIX_EPOCH,
            parts,
        };
        let asked = message(Role::User, text("Check the working tree."));
        let said = message(Role::Assistant, text(&ANSWER.repeat(4)));
        let command = Command {
            header: CommandHeader {
                command_id,
                cause: Cause::default(),
                agency: Agency::User,
                created_at: jiff::Timestamp::UNIX_EPOCH,
                caller: Some("token:bench".into()),
            },
            body: CommandBody::UserInput {
                blocks: vec![Block::Text {
                    text: "Check the working tree.".into(),
                }],
                no_fold: false,
                fold_only: false,
                target_loop_id: self.loop_id,
                background_hand_back: false,
                delegate_delivery_phase: None,
            },
        };
        let (none, by) = (TurnId::ZERO, Cause::by(command_id));
        let started = EventBody::TurnStarted {
            run_id,
            message: Some(asked),
            native: None,
        };
        let step = EventBody::StepDone {
            messages: vec![said],
            usage: None,
        };
        let usage = None;
        vec![
            Record::Command(command),
            self.event(false, none, Cause::default(), EventBody::SessionActive {}),
            self.event(
                true,
                turn_id,
                Cause::by_agency(command_id, Agency::User),
                started,
            ),
            self.event(true, turn_id, by, step),
            self.event(true, turn_id, by, EventBody::TurnDone { run_id, usage }),
            self.event(true, none, Cause::default(), EventBody::LoopIdle {}),
            self.event(false, none, Cause::default(), EventBody::SessionIdle {}),
        ]
    }

    /// Writes about so many records.
    async fn write(&mut self, journal: &dyn Journal, records: usize) -> Result<()> {
        let mut batch = self.birth()?;
        let mut fold: Option<Session> = None;
        let (mut written, mut seq) = (0, 2);
        while written < records {
            while batch.len() < BATCH {
                batch.extend(self.turn());
            }
            for record in &batch {
                match (&mut fold, record) {
                    (Some(fold), _) => fold.replay(record, seq)?,
                    (none, Record::Event(event)) => *none = Some(Session::begin(event, seq)?),
                    _ => {}
                }
                seq += 1;
            }
            let view = fold.as_ref().context("a session")?.state.view();
            let create = (written == 0).then_some(NewSession { created_at_ms: 0 });
            written += batch.len();
            let records: Result<Vec<_>> = batch.drain(..).map(|r| encoded(&r)).collect();
            journal
                .append(Append {
                    session: self.session,
                    epoch: Epoch::FIRST,
                    expected_next: None,
                    create,
                    records: records?,
                    projection: Some(Projection {
                        project_id: view.project_id.clone(),
                        status: view.status.as_str().into(),
                        updated_at_ms: 0,
                        body: serde_json::to_vec(&view)?.into(),
                        needs_recovery: false,
                    }),
                    idempotency: Vec::new(),
                })
                .await?;
        }
        Ok(())
    }
}

fn encoded(record: &Record) -> Result<NewRecord> {
    let encoded = record.encode()?;
    Ok(NewRecord {
        kind: match record {
            Record::Command(_) => RecordKind::Command,
            Record::Event(_) => RecordKind::Event,
        },
        key: record.key(),
        fingerprint: encoded.fingerprint,
        bytes: encoded.bytes.into(),
    })
}

/// B8: journals of three lengths read back, and their first page.
pub(crate) async fn restores() -> Result<Vec<Row>> {
    let stack = Stack::start(HostConfig::default()).await?;
    let mut rows = Vec::new();
    let mut each = Vec::new();
    for (n, records) in [(1, 10_000), (2, 100_000), (3, 1_000_000)] {
        let mut long = Long::new(n);
        long.write(&stack.store, records).await?;
        let database = stack.dir.path().join("harness.db");
        let floor = tokio::task::spawn_blocking(move || read_all(&database, n)).await??;
        let start = Instant::now();
        let page = stack.host.journal(long.session, 1, 100).await?;
        let first_page = start.elapsed();
        anyhow::ensure!(page.events.len() == 100, "a page of 100");
        let start = Instant::now();
        let row = stack.host.snapshot(long.session).await?.session;
        let ours = start.elapsed();
        anyhow::ensure!(row.last_seq as usize >= records, "all of it was read");
        each.push(ours.as_secs_f64() / row.last_seq as f64);
        if records == 100_000 {
            let note = format!("{ours:.2?}, {:.2?} to read its bytes", floor);
            let seconds = ours.as_secs_f64();
            rows.push(Row::at_most("B8", "s to restore 100,000 records", seconds, 1.0).note(note));
            let ms = first_page.as_secs_f64() * 1000.0;
            rows.push(Row::at_most(
                "B8",
                "ms to the first page of its journal",
                ms,
                20.0,
            ));
            rows.push(fold(&stack, &long, floor).await?);
        }
    }
    let (least, most) = each
        .iter()
        .fold((f64::MAX, 0f64), |(l, m), e| (l.min(*e), m.max(*e)));
    let micros = |s: f64| s * 1e6;
    let note = each
        .iter()
        .map(|e| format!("{:.1}", micros(*e)))
        .collect::<Vec<_>>()
        .join(", ");
    let what = "restore of a record, dearest / cheapest of 10k to 1M";
    rows.push(Row::at_most("B8", what, most / least, 2.0).note(format!("{note} µs")));
    Ok(rows)
}

/// The bytes of a journal out of bare SQLite, one statement.
fn read_all(database: &std::path::Path, session: u128) -> Result<Duration> {
    let connection = Connection::open(database)?;
    let session = i64::try_from(session)?;
    let start = Instant::now();
    let mut query = connection
        .prepare("SELECT seq, kind, key, bytes FROM record WHERE session = ?1 ORDER BY seq")?;
    let mut rows = query.query([session])?;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        bytes += row.get_ref(3)?.as_blob()?.len();
    }
    anyhow::ensure!(bytes > 0, "a journal");
    Ok(start.elapsed())
}

/// B9: decoding and folding alone, against reading the same bytes.
async fn fold(stack: &Stack, long: &Long, floor: Duration) -> Result<Row> {
    let mut stored = Vec::new();
    let mut next = Some(1);
    while let Some(from) = next {
        let page = Journal::read(&stack.store, long.session, from, 1000).await?;
        stored.extend(page.records);
        next = page.next;
    }
    let events = stored.iter().filter(|r| r.kind == RecordKind::Event);
    let decoded: Result<Vec<_>, _> = events
        .map(|r| decode_event(&r.bytes).map(|e| (Record::Event(e), r.seq)))
        .collect();
    let decoded = decoded?;
    let commands = stored.iter().filter(|r| r.kind == RecordKind::Command);
    let commands: Result<Vec<_>, _> = commands
        .map(|r| harness_core::codec::decode_command(&r.bytes).map(|c| (Record::Command(c), r.seq)))
        .collect();
    let mut records = decoded;
    records.extend(commands?);
    records.sort_by_key(|(_, seq)| *seq);
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let mut session: Option<Session> = None;
        for (record, seq) in &records {
            match (&mut session, record) {
                (Some(session), _) => session.replay(record, *seq)?,
                (none, Record::Event(event)) => *none = Some(Session::begin(event, *seq)?),
                _ => {}
            }
        }
        times.push(start.elapsed());
    }
    let ours = median(times);
    let ratio = ours.as_secs_f64() / floor.as_secs_f64();
    let what = "fold of 100,000 records / reading their bytes";
    Ok(Row::at_most("B9", what, ratio, 2.0).note(format!("{ours:.2?} / {floor:.2?}")))
}

/// B10: from a prompt to its durable `TurnStarted`, against the two commits it takes.
pub(crate) async fn starts() -> Result<Row> {
    let stack = Stack::start(HostConfig::default()).await?;
    let mut client = stack.client().await?;
    let session = stack.session(&mut client).await?;
    let id: SessionId = session.parse()?;
    let mut events = stack.host.subscribe(id, Start::Now).await?;
    let path = format!("/v1/sessions/{session}/input");
    let body = json!({"blocks": [{"type": "text", "text": "demo:burst 1"}]}).to_string();
    let until = async |events: &mut harness_session::Subscription, name: &str| loop {
        match events.next().await {
            Some(Item::Frame(frame)) if frame.name == name => return Ok(()),
            Some(Item::Frame(_) | Item::Snapshot { .. }) => {}
            _ => anyhow::bail!("the stream ended"),
        }
    };
    let (mut times, mut commits) = (Vec::new(), None);
    for _ in 0..200 {
        let before = Journal::tail(&stack.store, id).await?.next_seq;
        let start = Instant::now();
        client.request("POST", &path, &body).await?;
        until(&mut events, "TurnStarted").await?;
        times.push(start.elapsed());
        until(&mut events, "SessionIdle").await?;
        if commits.is_none() {
            let page = Journal::read(&stack.store, id, before, 3).await?;
            let bytes = page.records.iter().map(|r| r.bytes.to_vec());
            commits = Some(vec![bytes.collect::<Vec<_>>()]);
        }
    }
    let commits = commits.context("a turn")?;
    let directory = stack.dir.path().to_owned();
    let floor = tokio::task::spawn_blocking(move || floor::ordered(&directory, &commits, 200));
    let floor = floor.await??;
    let ours = median(times);
    let ratio = ours.as_secs_f64() / floor.as_secs_f64();
    let what = "prompt to durable TurnStarted / one commit";
    Ok(Row::at_most("B10", what, ratio, 4.0).note(format!("{ours:.2?} / {floor:.2?}")))
}

/// B12: one event to a thousand subscribers, against as many sends into bare channels.
pub(crate) async fn fan_out() -> Result<Row> {
    const SUBSCRIBERS: usize = 1_000;
    let stack = Stack::start(HostConfig::default()).await?;
    let mut client = stack.client().await?;
    let session = stack.session(&mut client).await?;
    let id: SessionId = session.parse()?;
    let (told, mut tell) = tokio::sync::mpsc::channel::<()>(SUBSCRIBERS * 4);
    for _ in 0..SUBSCRIBERS {
        let mut events = stack.host.subscribe(id, Start::Now).await?;
        let told = told.clone();
        tokio::spawn(async move {
            while let Some(item) = events.next().await {
                if let Item::Frame(frame) = item
                    && frame.name == "SessionIdle"
                {
                    let _ = told.send(()).await;
                }
            }
        });
    }
    let mut alone = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        stack.note(&mut client, &session).await?;
        for _ in 0..SUBSCRIBERS {
            tell.recv().await.context("a subscriber")?;
        }
        alone.push(start.elapsed());
    }
    let ours = median(alone);
    let floor = bare_channels(SUBSCRIBERS).await?;
    let ratio = ours.as_secs_f64() / floor.as_secs_f64();
    let what = "a control seen by 1,000 / bare channels";
    Ok(Row::at_most("B12", what, ratio, 4.0).note(format!("{ours:.2?} / {floor:.2?}")))
}

/// As many frames as a control shows, into bare channels and out again.
async fn bare_channels(subscribers: usize) -> Result<Duration> {
    const FRAMES: usize = 6;
    let (told, mut tell) = tokio::sync::mpsc::channel::<()>(subscribers * 4);
    let mut senders = Vec::new();
    for _ in 0..subscribers {
        let (sender, mut frames) = tokio::sync::mpsc::channel::<std::sync::Arc<str>>(256);
        senders.push(sender);
        let told = told.clone();
        tokio::spawn(async move {
            let mut seen = 0;
            while frames.recv().await.is_some() {
                seen += 1;
                if seen % FRAMES == 0 {
                    let _ = told.send(()).await;
                }
            }
        });
    }
    let mut times = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..FRAMES {
            let frame: std::sync::Arc<str> = "x".repeat(300).into();
            for sender in &senders {
                let _ = sender.try_send(frame.clone());
            }
        }
        for _ in 0..subscribers {
            tell.recv().await.context("a subscriber")?;
        }
        times.push(start.elapsed());
    }
    Ok(median(times))
}
