//! B11: a checkpoint of 10,000 files and 200 MB, an unchanged one, and a rewind, against `tar`.
//!
//! All in one run, on one file system, with the same files in the page cache for both sides: what
//! was just generated is there, and the first of each pair, which also warms what is not, is not
//! counted. `tar` is given its archive's flush, as the store flushes its packs.

use crate::{Row, median};
use anyhow::{Context, Result, ensure};
use harness_workspace::{Bound, Ref, Store};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const FILES: u64 = 10_000;
const SIZE: usize = 20_000;
const ROUNDS: usize = 3;

/// The three rows. `dir` is on the file system that is measured.
pub(crate) fn rows(dir: &Path) -> Result<Vec<Row>> {
    let bench = Bench {
        root: dir.join("b11-workspace"),
        archive: dir.join("b11.tar"),
        stores: dir.join("b11-stores"),
    };
    generate(&bench.root)?;
    bench.tar()?;
    bench.checkpoint("warm")?;
    let (mut tars, mut firsts, mut agains) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        tars.push(bench.tar()?);
        let (first, again) = bench.checkpoint(&round.to_string())?;
        firsts.push(first);
        agains.push(again);
    }
    let (mut untars, mut rewinds) = (Vec::new(), Vec::new());
    let store = Store::open(&bench.stores.join("0"))?;
    let reference = store.checkpoint(&bench.root, &Bound::none())?.reference;
    for _ in 0..ROUNDS {
        untars.push(bench.untar()?);
        rewinds.push(bench.rewind(&store, &reference)?);
    }
    fs::remove_dir_all(&bench.root)?;
    fs::remove_dir_all(&bench.stores)?;
    fs::remove_file(&bench.archive)?;
    let (tar, first, again) = (median(tars), median(firsts), median(agains));
    let (untar, rewind) = (median(untars), median(rewinds));
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    Ok(vec![
        Row::at_most(
            "B11",
            "checkpoint, 10,000 files, 200 MB / tar + fsync",
            ratio(first, tar),
            3.0,
        )
        .note(format!("{first:.0?} / {tar:.0?}")),
        Row::at_most(
            "B11",
            "unchanged checkpoint / first one",
            ratio(again, first),
            0.1,
        )
        .note(format!("{again:.1?} / {first:.0?}")),
        Row::at_most(
            "B11",
            "rewind of all files / tar -x + syncfs",
            ratio(rewind, untar),
            3.0,
        )
        .note(format!("{rewind:.0?} / {untar:.0?}")),
    ])
}

struct Bench {
    root: PathBuf,
    archive: PathBuf,
    stores: PathBuf,
}

impl Bench {
    fn tar(&self) -> Result<Duration> {
        let start = Instant::now();
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&self.archive).arg("-C").arg(&self.root);
        run(tar.arg("."))?;
        fs::File::open(&self.archive)?.sync_all()?;
        Ok(start.elapsed())
    }

    fn untar(&self) -> Result<Duration> {
        self.empty()?;
        let start = Instant::now();
        let mut tar = Command::new("tar");
        run(tar.arg("-xf").arg(&self.archive).arg("-C").arg(&self.root))?;
        run(Command::new("sync").arg("-f").arg(&self.root))?;
        Ok(start.elapsed())
    }

    /// A first checkpoint into an empty store, and an unchanged one.
    fn checkpoint(&self, name: &str) -> Result<(Duration, Duration)> {
        let store = Store::open(&self.stores.join(name))?;
        let start = Instant::now();
        let first = store.checkpoint(&self.root, &Bound::none())?;
        let took = start.elapsed();
        let start = Instant::now();
        let again = store.checkpoint(&self.root, &Bound::none())?;
        let same = again.reference == first.reference && again.new_records == 0;
        ensure!(same, "an unchanged checkpoint stored something");
        Ok((took, start.elapsed()))
    }

    /// From an empty workspace, so that every file is written.
    fn rewind(&self, store: &Store, reference: &Ref) -> Result<Duration> {
        self.empty()?;
        let start = Instant::now();
        let rewind = store.rewind(&self.root, reference, "bench", &Bound::none())?;
        let rewound = rewind.finish()?;
        let took = start.elapsed();
        let hash = store.tree_hash(&self.root, &Bound::none())?;
        ensure!(
            rewound.exact && hash == *reference,
            "the rewind is not exact"
        );
        Ok(took)
    }

    fn empty(&self) -> Result<()> {
        fs::remove_dir_all(&self.root)?;
        Ok(fs::create_dir(&self.root)?)
    }
}

fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("{command:?} cannot be run"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Files that do not compress, fourteen or so a directory.
fn generate(root: &Path) -> Result<()> {
    let mut state = 1u64;
    for n in 0..FILES {
        let at = root.join(format!("d{}/e{}", n % 100, n % 7));
        fs::create_dir_all(&at)?;
        let random = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        });
        let bytes: Vec<u8> = random.take(SIZE).collect();
        fs::write(at.join(format!("f{n}")), bytes)?;
    }
    Ok(())
}
