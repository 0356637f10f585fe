//! Removing what no snapshot needs.
//!
//! The caller takes a [`Mark`], then gathers the refs that are still wanted, then collects. What
//! was handed out after the mark is kept whether or not it was gathered, so a checkpoint may run
//! at any time. Packs with dead content are written anew without it; nothing is removed before
//! its live content is durable elsewhere, and nothing while somebody reads or relies on it.

use crate::bound::Bound;
use crate::error::WorkspaceError;
use crate::manifest::{Node, Section, decode_recipe};
use crate::pack::{Kind, PackWriter, Prepared, Reader, flush_directory, prepare};
use crate::reference::{Hash, Ref};
use crate::step::Step;
use crate::store::{Inner, Store, lock};
use std::collections::{HashMap, HashSet};
use std::sync::{PoisonError, TryLockError};

/// A pack larger than this is written anew only when a quarter of it is dead.
const LARGE: u64 = 64 << 20;
/// Small packs are put together when there are more than this.
const MANY: usize = 128;
/// A new pack is begun at this size.
const FULL: u64 = 512 << 20;

/// A point in time: what was handed out later is not collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

/// What a collection did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Records removed.
    pub records: u64,
    /// Bytes that the store shrank by.
    pub bytes: u64,
    /// Live refs that are not stored, or whose manifest is damaged.
    pub broken_refs: u64,
}

type Live = HashSet<(Kind, Hash)>;

impl Store {
    /// Begins a collection; gather the refs that are wanted afterwards.
    #[must_use]
    pub fn mark(&self) -> Mark {
        let mut recent = lock(&self.0.recent);
        recent.generation += 1;
        Mark(recent.generation)
    }

    /// Removes what neither `live` nor any ref handed out since the mark needs. After a failure
    /// nothing that is needed is missing, and the next collection goes on.
    ///
    /// # Errors
    ///
    /// `busy` while another collection runs; `deadline`, `cancelled`, `corrupt`, `disk_full`, `io`.
    pub fn collect(
        &self,
        mark: Mark,
        live: impl IntoIterator<Item = Ref>,
        bound: &Bound,
    ) -> Result<Collected, WorkspaceError> {
        let inner = &*self.0;
        let _collecting = match inner.collecting.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(WorkspaceError::Busy {
                    what: "the snapshot store",
                });
            }
        };
        let mut collected = Collected::default();
        let mut kept = Live::new();
        let mut done: HashSet<Ref> = HashSet::new();
        let (reader, old) = {
            // A pack is not removed under the eyes of a reader: another collection cannot run.
            let old: Vec<u64> = {
                let index = inner.index.read().unwrap_or_else(PoisonError::into_inner);
                index.packs.keys().copied().collect()
            };
            (Reader::default(), old)
        };
        let roots = live
            .into_iter()
            .chain(inner.handed_out_since(mark))
            .chain(inner.intended()?);
        for reference in roots {
            if done.insert(reference) && !inner.reach(&reader, &reference, &mut kept, bound)? {
                collected.broken_refs += 1;
            }
        }
        let plan = inner.plan(&old, &kept);
        let copies = inner.copy(&reader, &plan, &kept, bound)?;
        inner.steps.step(Step::Sweep)?;

        let _sweeping = inner.gate.sweep(bound)?;
        // What became live meanwhile may rely on a pack that was to go; then that one stays.
        let mut late = Live::new();
        for reference in inner
            .handed_out_since(mark)
            .into_iter()
            .chain(inner.intended()?)
        {
            if done.insert(reference) {
                inner.reach(&reader, &reference, &mut late, bound)?;
            }
        }
        late.retain(|record| !kept.contains(record));
        inner.sweep(&plan, copies, &late, &mut collected)?;
        lock(&inner.recent).refs.retain(|_, at| *at >= mark.0);
        Ok(collected)
    }
}

impl Inner {
    fn handed_out_since(&self, mark: Mark) -> Vec<Ref> {
        let recent = lock(&self.recent);
        let since = recent.refs.iter().filter(|(_, at)| **at >= mark.0);
        since.map(|(reference, _)| *reference).collect()
    }

    /// Adds all that a ref needs; false when its manifest cannot be read, so that nothing is left
    /// of it to restore.
    fn reach(
        &self,
        reader: &Reader,
        reference: &Ref,
        live: &mut Live,
        bound: &Bound,
    ) -> Result<bool, WorkspaceError> {
        let lost = |error: WorkspaceError| match error {
            WorkspaceError::Corrupt { .. } => {
                tracing::error!(%reference, %error, "a snapshot is damaged");
                Ok(false)
            }
            error => Err(error),
        };
        if !self.has(Kind::Recipe, &reference.0) {
            return Ok(false);
        }
        let recipe = match self.read(reader, Kind::Recipe, &reference.0) {
            Ok(recipe) => recipe,
            Err(error) => return lost(error),
        };
        let Some(sections) = decode_recipe(&recipe) else {
            return Ok(false);
        };
        live.insert((Kind::Recipe, reference.0));
        for hash in sections {
            bound.check()?;
            if !live.insert((Kind::Object, hash)) {
                // Shared with a snapshot that was looked at: all below it is known.
                continue;
            }
            let bytes = match self.read(reader, Kind::Object, &hash) {
                Ok(bytes) => bytes,
                Err(error) => return lost(error),
            };
            let Some(section) = Section::decode(&bytes) else {
                return Ok(false);
            };
            for entry in section.entries {
                if let Node::File { chunks, .. } = entry.node {
                    live.extend(chunks.into_iter().map(|hash| (Kind::Object, hash)));
                }
            }
        }
        Ok(true)
    }

    /// The packs of these to remove, those with live content among them to be written anew first.
    fn plan(&self, old: &[u64], live: &Live) -> Vec<u64> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let mut alive: HashMap<u64, (usize, u64)> = HashMap::new();
        for record in live {
            if let Some(place) = index.records.get(record) {
                let (count, bytes) = alive.entry(place.pack).or_default();
                *count += 1;
                *bytes += place.record.footprint();
            }
        }
        let small = |size: u64| size <= LARGE / 8;
        let count = index.packs.values().filter(|pack| small(pack.size)).count();
        let mut plan = Vec::new();
        for number in old {
            let Some(pack) = index.packs.get(number) else {
                continue;
            };
            let (count_alive, bytes) = alive.get(number).copied().unwrap_or_default();
            let dead = pack.size.saturating_sub(bytes);
            let worth = if pack.size <= LARGE {
                count_alive < pack.records.len()
            } else {
                count_alive == 0 || dead > pack.size / 4
            };
            if worth || count > MANY && small(pack.size) {
                plan.push(*number);
            }
        }
        plan
    }

    /// Writes the live content of these packs anew.
    fn copy(
        &self,
        reader: &Reader,
        plan: &[u64],
        live: &Live,
        bound: &Bound,
    ) -> Result<Vec<u64>, WorkspaceError> {
        let mut wanted = Vec::new();
        {
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            for number in plan {
                let records = index.packs.get(number).map(|pack| pack.records.as_slice());
                for record in records.unwrap_or_default() {
                    let here = index
                        .records
                        .get(record)
                        .is_some_and(|place| place.pack == *number);
                    if here && live.contains(record) {
                        wanted.push(*record);
                    }
                }
            }
        }
        let mut copies = Vec::new();
        let mut writer: Option<PackWriter> = None;
        for (kind, hash) in wanted {
            bound.check()?;
            let bytes = match self.read(reader, kind, &hash) {
                Ok(bytes) => bytes,
                // It is lost already; a later checkpoint stores it again.
                Err(WorkspaceError::Corrupt { .. }) => continue,
                Err(error) => return Err(error),
            };
            let open = match writer.as_mut() {
                Some(open) => open,
                None => writer.insert(PackWriter::create(&self.packs(), self.steps.clone())?),
            };
            let prepared: Prepared = prepare(&bytes);
            open.add(kind, &hash, &bytes, &prepared)?;
            if open.size() >= FULL
                && let Some(full) = writer.take()
            {
                copies.push(self.adopt(full.finish()?));
            }
        }
        if let Some(rest) = writer {
            copies.push(self.adopt(rest.finish()?));
        }
        Ok(copies)
    }

    /// Removes packs; nobody is at work on any.
    fn sweep(
        &self,
        plan: &[u64],
        copies: Vec<u64>,
        late: &Live,
        collected: &mut Collected,
    ) -> Result<(), WorkspaceError> {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        let needed: HashSet<u64> = late
            .iter()
            .filter_map(|record| index.records.get(record))
            .map(|place| place.pack)
            .collect();
        let size = |index: &crate::store::Index, numbers: &[u64]| -> u64 {
            let packs = numbers.iter().filter_map(|number| index.packs.get(number));
            packs.map(|pack| pack.size).sum()
        };
        let added = size(&index, &copies);
        let mut removed = 0;
        for number in plan {
            if needed.contains(number) {
                continue;
            }
            let Some(pack) = index.packs.remove(number) else {
                continue;
            };
            removed += pack.size;
            for record in &pack.records {
                let here = index
                    .records
                    .get(record)
                    .is_some_and(|place| place.pack == *number);
                if here {
                    index.records.remove(record);
                    collected.records += 1;
                }
            }
            match std::fs::remove_file(&pack.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(WorkspaceError::store("removing a pack")(error));
                }
                _ => {}
            }
        }
        collected.bytes = removed.saturating_sub(added);
        flush_directory(&self.packs())
    }
}
