//! What a live instance costs. Alone in its binary, because it reads the memory of the process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // a failed test

mod support;

use std::time::Instant;
use support::*;

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("Rss:")).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn b6_a_live_instance_takes_at_most_200_kib() {
    const N: usize = 200;
    let bench = Bench::new(&[]).await;
    let warm = bench.open().await;
    discover(&*warm, "").await.unwrap();
    let (before, start) = (resident(), Instant::now());
    let mut live = Vec::new();
    for _ in 0..N {
        let instance = bench.open().await;
        discover(&*instance, "").await.unwrap();
        live.push(instance);
    }
    let (each, time) = (
        resident().saturating_sub(before) / N,
        start.elapsed() / N as u32,
    );
    println!("{each} KiB and {time:?} for an instance with its first call");
    assert!(each <= 200, "{each} KiB an instance");
    drop(live);
}
