//! Runs seeds until one breaks a rule.

use clap::Parser;
use harness_simulation::{Options, Report, run};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Runs the session layer over a simulated store, clock and providers. Without a bound it goes on
/// until a rule is broken.
#[derive(Parser)]
struct Arguments {
    /// Runs this seed alone, and prints its trace.
    #[arg(long)]
    seed: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds; all that there are when absent.
    #[arg(long)]
    seeds: Option<u64>,
    /// Threads; one a processor when absent.
    #[arg(long)]
    threads: Option<usize>,
}

/// How long no seed may end.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        return verdict(&run(seed, Options::echoing()));
    }
    let threads = arguments
        .threads
        .or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    let end = arguments
        .seeds
        .map_or(u64::MAX, |n| arguments.from.saturating_add(n));
    let (next, stop) = (AtomicU64::new(arguments.from), AtomicBool::new(false));
    let begun = Instant::now();
    let (found, reports) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(1).max(1) {
            let found = found.clone();
            let (next, stop) = (&next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let report = run(seed, Options::default());
                    if report.violation.is_some() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    if found.send(report).is_err() {
                        return;
                    }
                }
            });
        }
        drop(found);
        let mut runs = 0u64;
        let mut verdict_of_all = ExitCode::SUCCESS;
        loop {
            let report = match reports.recv_timeout(PATIENCE) {
                Ok(report) => report,
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    // A task that never waits cannot be ended from here.
                    let next = next.load(Ordering::Relaxed);
                    println!(
                        "no seed ended in {PATIENCE:?}: one of those before {next} never waits"
                    );
                    std::process::exit(1);
                }
            };
            runs += 1;
            if report.violation.is_some() {
                verdict_of_all = verdict(&report);
            }
            if runs.is_multiple_of(1_000) {
                println!("{runs} seeds in {:.0?}", begun.elapsed());
            }
        }
        println!("{runs} seeds in {:.1?}", begun.elapsed());
        verdict_of_all
    })
}

fn verdict(report: &Report) -> ExitCode {
    let (seed, digest, lines) = (report.seed, &report.digest, report.lines);
    match &report.violation {
        None => {
            println!("seed {seed}: {lines} lines, digest {digest}");
            ExitCode::SUCCESS
        }
        Some(violation) => {
            for line in &report.last {
                println!("{line}");
            }
            println!("seed {seed} breaks a rule: {violation}");
            println!("again: just simulate --seed {seed}   (digest {digest})");
            ExitCode::FAILURE
        }
    }
}
