//! Making a workspace again what a snapshot says, in two phases (S99).
//!
//! [`Store::rewind`] scans the tree and stores it, records the intent, writes everything the
//! snapshot has and the tree has not into a staging directory, moves it into place, and compares
//! the result. Then the caller appends its event and calls [`Rewind::finish`], or, when that
//! failed, [`Rewind::rollback`]. Both trees being stored, either way is a turn from one to the
//! other; so is the recovery from a crash, with [`Store::recover`].
//!
//! What a rewind leaves alone: everything that the rules of now, or those of the snapshot,
//! exclude, and directories that hold such things. So the tree is exact but for that: when rules
//! were changed meanwhile, things may come to light that neither tree knows; then
//! [`Rewound::exact`] is false. Only what the snapshot itself holds is put back whatever the rules
//! of now say, and what stood there is stored for the way back.

mod intent;
mod stage;
mod turn;

pub(crate) use intent::Intent;
pub use intent::Phase;

use crate::beneath::{Root, remove_flat};
use crate::bound::Bound;
use crate::error::{WorkspaceError, show};
use crate::limits::{MAX_RULES_BYTES, MAX_TAG_BYTES};
use crate::manifest::{Flat, Manifest, Node, STAGING, join};
use crate::pack::{Kind, Reader};
use crate::reference::Ref;
use crate::rules::{Generation, compile};
use crate::scan::Scan;
use crate::sink::Sink;
use crate::stamp::{Stamp, now};
use crate::step::Step;
use crate::store::{Claim, Inner, Store};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use turn::{Turn, Turned};

/// What a rewind did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewound {
    /// The snapshot that the tree is now.
    pub reference: Ref,
    /// Files, symlinks and directories written.
    pub written: u64,
    /// Entries removed.
    pub removed: u64,
    /// Bytes of file content written.
    pub bytes: u64,
    /// [`Store::tree_hash`] gives this ref. False only where rules were changed since, or
    /// excluded things fill a directory that was empty.
    pub exact: bool,
}

/// A rewind that is on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// What the caller called it.
    pub tag: String,
    /// The snapshot it goes to.
    pub reference: Ref,
    /// How far it has come.
    pub phase: Phase,
}

/// Which way a rewind on record goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// To the snapshot: when the caller's event was appended.
    Finish,
    /// To what was there before.
    RollBack,
}

/// A rewind whose change is made and whose event is not yet appended. It keeps the workspace to
/// itself. Dropped, it stays on record for [`Store::recover`].
#[must_use = "a rewind is finished or rolled back"]
#[derive(Debug)]
pub struct Rewind {
    store: Arc<Inner>,
    root: Root,
    intent: Intent,
    rewound: Rewound,
    _claim: Claim,
}

/// How the result of a turn is compared.
enum Compare<'a> {
    /// The whole tree is what it becomes.
    Whole,
    /// These paths are; somebody else may have been at work elsewhere.
    Paths(&'a HashSet<Vec<u8>>),
}

impl Store {
    /// Changes the tree below `root` to what `reference` says. `tag` is given back by
    /// [`Store::pending`] after a crash; the journal position of the event to come is a good one.
    ///
    /// After an error the workspace is as it was, but for `rollback_failed`.
    ///
    /// # Errors
    ///
    /// As [`Store::checkpoint`], and `ref_not_found`, `corrupt`, `obstructed`, `not_exact`, `tag`,
    /// `rollback_failed`.
    pub fn rewind(
        &self,
        root: &Path,
        reference: &Ref,
        tag: &str,
        bound: &Bound,
    ) -> Result<Rewind, WorkspaceError> {
        if tag.len() > MAX_TAG_BYTES {
            return Err(WorkspaceError::Tag {
                size: tag.len() as u64,
                limit: MAX_TAG_BYTES as u64,
            });
        }
        let root = Root::open(root)?;
        let claim = self.0.claim(&root.path)?;
        let _inside = self.0.gate.enter(bound)?;
        if self.0.intent(&root.path)?.is_some() {
            return Err(WorkspaceError::RewindPending);
        }
        let reader = Reader::default();
        let target = self.0.manifest(&reader, reference, bound)?;
        self.0.check_limits(&target)?;
        let to = target.flat();
        let rules = self.0.rules_of(&reader, &target)?;

        let sink = Sink::new(&self.0);
        let mut scan = Scan::plain(&self.0, &root, bound);
        scan.sink = Some(&sink);
        scan.generation = Some(&rules);
        scan.hold = Some(&to);
        let scanned = scan.run()?;
        let source = scanned.manifest;
        let from = source.flat();
        for path in &scanned.blocked {
            let replaced = to.get(path).is_some_and(|node| !node.is_directory());
            if replaced {
                return Err(WorkspaceError::Obstructed {
                    path: show(path),
                    by: "a directory with excluded content",
                });
            }
        }
        let before = self.0.keep(&sink, &source, bound)?;
        sink.finish()?;
        let stat = rustix::fs::fstat(root.handle()).map_err(WorkspaceError::at(b""))?;
        let intent = Intent {
            v: 1,
            staging: format!("{}{:x}", String::from_utf8_lossy(STAGING), now()),
            from: before.to_string(),
            to: reference.to_string(),
            tag: tag.to_owned(),
            phase: Phase::Staging,
            root_mode: Stamp::of(&stat).permissions(),
        };
        let mut rewind = Rewind {
            store: self.0.clone(),
            root,
            intent,
            rewound: Rewound {
                reference: *reference,
                written: 0,
                removed: 0,
                bytes: 0,
                exact: false,
            },
            _claim: claim,
        };
        let mut touched = HashSet::new();
        let done = rewind.apply(
            &reader,
            (&source, &from),
            &to,
            &scanned.stamps,
            &mut touched,
            bound,
        );
        match done {
            Ok(()) => Ok(rewind),
            Err(cause) => Err(rewind.undo(cause, &reader, &from, &to, &target, &touched)),
        }
    }

    /// The rewind of this workspace that was neither finished nor rolled back.
    ///
    /// # Errors
    ///
    /// `root`, `corrupt`, `io`.
    pub fn pending(&self, root: &Path) -> Result<Option<Pending>, WorkspaceError> {
        let root = Root::open(root)?;
        let Some(intent) = self.0.intent(&root.path)? else {
            return Ok(None);
        };
        let (_, reference) = intent.refs()?;
        Ok(Some(Pending {
            tag: intent.tag,
            reference,
            phase: intent.phase,
        }))
    }

    /// Brings a rewind on record to an end, one way or the other; `false` when there is none.
    /// Paths that neither tree has are left alone. After an error it can be tried again, the other
    /// way, too.
    ///
    /// # Errors
    ///
    /// As [`Store::rewind`].
    pub fn recover(
        &self,
        root: &Path,
        recovery: Recovery,
        bound: &Bound,
    ) -> Result<bool, WorkspaceError> {
        let root = Root::open(root)?;
        let claim = self.0.claim(&root.path)?;
        let Some(intent) = self.0.intent(&root.path)? else {
            return Ok(false);
        };
        let (_, reference) = intent.refs()?;
        let rewind = Rewind {
            store: self.0.clone(),
            root,
            intent,
            rewound: Rewound {
                reference,
                written: 0,
                removed: 0,
                bytes: 0,
                exact: false,
            },
            _claim: claim,
        };
        match (recovery, rewind.intent.phase) {
            (Recovery::Finish, Phase::Applied) | (Recovery::RollBack, Phase::Staging) => {}
            (Recovery::Finish, _) => rewind.again(Recovery::Finish, bound)?,
            (Recovery::RollBack, _) => rewind.again(Recovery::RollBack, bound)?,
        }
        rewind.end()?;
        Ok(true)
    }
}

impl Rewind {
    /// What was done.
    #[must_use]
    pub fn rewound(&self) -> Rewound {
        self.rewound
    }

    /// Drops what a way back would need, once the event is appended.
    ///
    /// # Errors
    ///
    /// `io`, `changed`: the rewind stays on record; [`Store::recover`] finishes it.
    pub fn finish(self) -> Result<Rewound, WorkspaceError> {
        self.end()?;
        Ok(self.rewound)
    }

    /// Puts back what was there before the rewind.
    ///
    /// # Errors
    ///
    /// As [`Store::recover`]; the rewind stays on record.
    pub fn rollback(self, bound: &Bound) -> Result<(), WorkspaceError> {
        self.again(Recovery::RollBack, bound)?;
        self.end()
    }

    fn end(&self) -> Result<(), WorkspaceError> {
        self.store.steps.step(Step::Unstage)?;
        let at_root = || WorkspaceError::at(b"");
        self.root.unlock().map_err(at_root())?;
        remove_flat(&self.root, self.intent.staging.as_bytes())?;
        self.root
            .set_mode(self.intent.root_mode)
            .map_err(at_root())?;
        self.store.forget(&self.root.path)
    }

    fn turn<'a>(
        &'a self,
        reader: &'a Reader,
        from: &'a Flat<'a>,
        to: &'a Flat<'a>,
        bound: &'a Bound,
    ) -> Turn<'a> {
        Turn {
            store: &self.store,
            root: &self.root,
            reader,
            bound,
            staging: &self.intent.staging,
            from,
            to,
            stamps: None,
            only: None,
        }
    }

    /// The first run.
    fn apply(
        &mut self,
        reader: &Reader,
        (source, from): (&Manifest, &Flat<'_>),
        to: &Flat<'_>,
        stamps: &HashMap<Vec<u8>, Stamp>,
        touched: &mut HashSet<Vec<u8>>,
        bound: &Bound,
    ) -> Result<(), WorkspaceError> {
        self.store.record(&self.root.path, &self.intent)?;
        let mut turn = self.turn(reader, from, to, bound);
        turn.stamps = Some(stamps);
        let Turned {
            written,
            removed,
            bytes,
        } = turn.run(touched, || self.reach(Phase::Moving))?;
        let besides = self.compare(reader, source, to, &Compare::Whole, bound)?;
        // Whether what lies besides shows is only seen by looking without regard to the past.
        let exact = besides == 0 || {
            let scanned = Scan::plain(&self.store, &self.root, bound).run()?;
            scanned.manifest.encode()?.reference == self.rewound.reference
        };
        self.reach(Phase::Applied)?;
        self.intent.phase = Phase::Applied;
        self.rewound = Rewound {
            written,
            removed,
            bytes,
            exact,
            ..self.rewound
        };
        Ok(())
    }

    fn reach(&self, phase: Phase) -> Result<(), WorkspaceError> {
        let intent = Intent {
            phase,
            ..self.intent.clone()
        };
        self.store.record(&self.root.path, &intent)
    }

    /// Undoes a first run that failed: only what it touched is put back, so that somebody else's
    /// change which made it fail survives.
    fn undo(
        self,
        cause: WorkspaceError,
        reader: &Reader,
        from: &Flat<'_>,
        to: &Flat<'_>,
        target: &Manifest,
        touched: &HashSet<Vec<u8>>,
    ) -> WorkspaceError {
        let bound = Bound::none();
        let back = || {
            let mut turn = self.turn(reader, to, from, &bound);
            turn.only = Some(touched);
            if !touched.is_empty() {
                turn.run(&mut HashSet::new(), || Ok(()))?;
                let compare = Compare::Paths(touched);
                self.compare(reader, target, from, &compare, &bound)?;
            }
            self.end()
        };
        match back() {
            Ok(()) => cause,
            Err(failure) => WorkspaceError::RollbackFailed {
                cause: cause.to_string(),
                failure: failure.to_string(),
            },
        }
    }

    /// A later run, from whatever the tree is.
    fn again(&self, direction: Recovery, bound: &Bound) -> Result<(), WorkspaceError> {
        let _inside = self.store.gate.enter(bound)?;
        let reader = Reader::default();
        let (before, after) = self.intent.refs()?;
        let (source, target) = match direction {
            Recovery::Finish => (before, after),
            Recovery::RollBack => (after, before),
        };
        let source = self.store.manifest(&reader, &source, bound)?;
        let target = self.store.manifest(&reader, &target, bound)?;
        let (from, to) = (source.flat(), target.flat());
        let turn = self.turn(&reader, &from, &to, bound);
        let paths: HashSet<Vec<u8>> = turn.differing().cloned().collect();
        turn.run(&mut HashSet::new(), || self.reach(Phase::Moving))?;
        self.compare(&reader, &source, &to, &Compare::Paths(&paths), bound)?;
        Ok(())
    }

    /// Compares the tree with what it becomes; answers with the places where a plain scan
    /// might see another tree.
    fn compare(
        &self,
        reader: &Reader,
        source: &Manifest,
        to: &Flat<'_>,
        compare: &Compare<'_>,
        bound: &Bound,
    ) -> Result<u64, WorkspaceError> {
        self.store.steps.step(Step::Verify)?;
        let rules = self.store.rules_of(reader, source)?;
        let mut scan = Scan::plain(&self.store, &self.root, bound);
        scan.generation = Some(&rules);
        scan.hold = Some(to);
        let scanned = scan.run()?;
        let found = scanned.manifest.flat();
        let differs = |path: &&Vec<u8>| found.get(*path) != to.get(*path);
        let first = match compare {
            Compare::Whole => found.keys().chain(to.keys()).find(differs),
            Compare::Paths(paths) => paths.iter().find(differs),
        };
        match first {
            Some(path) => Err(WorkspaceError::NotExact { path: show(path) }),
            None => Ok(scanned.besides),
        }
    }
}

impl Inner {
    /// What a manifest says of itself; what is really written is counted as well.
    fn check_limits(&self, manifest: &Manifest) -> Result<(), WorkspaceError> {
        let checks = [
            ("entries", manifest.entries(), self.limits.entries),
            ("bytes of file content", manifest.bytes(), self.limits.bytes),
        ];
        match checks.into_iter().find(|(_, size, limit)| size > limit) {
            Some((what, _, limit)) => Err(WorkspaceError::TooLarge { what, limit }),
            None => Ok(()),
        }
    }

    /// The `.gitignore` files of a tree.
    fn rules_of(&self, reader: &Reader, tree: &Manifest) -> Result<Generation, WorkspaceError> {
        let mut rules = Generation::new();
        for section in &tree.sections {
            for entry in &section.entries {
                let Node::File { size, chunks, .. } = &entry.node else {
                    continue;
                };
                if entry.name != b".gitignore" {
                    continue;
                }
                let path = join(&section.path, &entry.name);
                if *size > MAX_RULES_BYTES {
                    return Err(WorkspaceError::Rules {
                        path: show(&path),
                        reason: format!("it has more than {MAX_RULES_BYTES} bytes"),
                    });
                }
                let mut bytes = Vec::new();
                for chunk in chunks {
                    bytes.extend(self.read(reader, Kind::Object, chunk)?);
                }
                rules.insert(section.path.clone(), compile(&path, &bytes)?);
            }
        }
        Ok(rules)
    }
}
