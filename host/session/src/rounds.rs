//! Reads that are asked for together and done once.
//!
//! Command state is read live, never from a cache (R41): an answer comes from a call that began
//! after its request had come in. Requests that wait for the same such call share it, so that a
//! crowd of readers costs the component as much as one.
//!
//! Invariants
//! - A round takes nobody in once its read has begun.
//! - Whoever leaves, the first of a round included, takes nothing from the others.
//! - A read that takes long holds up nobody: after [`PATIENCE`] the next one begins beside it.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;

/// How long a round waits for the read before it to end.
const PATIENCE: Duration = Duration::from_millis(20);

/// Rounds of reading one thing. `T` is what a read answers, an error included.
pub(crate) struct Rounds<T> {
    /// The round whose read has not begun. A std mutex: held for one look, never across an await.
    next: Mutex<Option<Arc<OnceCell<T>>>>,
    /// Held while a read runs.
    reading: tokio::sync::Mutex<()>,
}

impl<T> Default for Rounds<T> {
    fn default() -> Self {
        Self {
            next: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }
}

impl<T: Clone> Rounds<T> {
    /// The answer of a read that begins after this call. `read` makes it for everybody who waits,
    /// unless somebody else's already does.
    pub(crate) async fn join<F: Future<Output = T>>(&self, read: impl FnOnce() -> F) -> T {
        let round = self.next().get_or_insert_default().clone();
        let lead = || async {
            let _turn = tokio::time::timeout(PATIENCE, self.reading.lock()).await;
            self.close(&round);
            read().await
        };
        round.get_or_init(lead).await.clone()
    }

    fn next(&self) -> std::sync::MutexGuard<'_, Option<Arc<OnceCell<T>>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, round: &Arc<OnceCell<T>>) {
        self.next().take_if(|next| Arc::ptr_eq(next, round));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Semaphore;

    /// Reads that end when they are let go, each answering its number.
    struct Source {
        begun: AtomicUsize,
        let_go: Semaphore,
    }

    impl Source {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                begun: AtomicUsize::new(0),
                let_go: Semaphore::new(0),
            })
        }

        async fn read(&self) -> usize {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            self.let_go.acquire().await.unwrap().forget();
            number
        }

        fn begun(&self) -> usize {
            self.begun.load(Ordering::SeqCst)
        }
    }

    fn ask(rounds: &Arc<Rounds<usize>>, source: &Arc<Source>) -> tokio::task::JoinHandle<usize> {
        let (rounds, source) = (rounds.clone(), source.clone());
        tokio::spawn(async move { rounds.join(|| source.read()).await })
    }

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn r41_who_asks_during_a_read_gets_the_next_one() {
        let (rounds, source) = (Arc::new(Rounds::default()), Source::new());
        let first = ask(&rounds, &source);
        settle().await;
        let later: Vec<_> = (0..8).map(|_| ask(&rounds, &source)).collect();
        settle().await;
        assert_eq!(source.begun(), 1, "the crowd waits for the read that runs");
        source.let_go.add_permits(2);
        assert_eq!(first.await.unwrap(), 1);
        for answer in join_all(later).await {
            assert_eq!(answer.unwrap(), 2, "one read, begun after they asked");
        }
        assert_eq!(source.begun(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn r41_who_asks_one_after_the_other_reads_each_time() {
        let (rounds, source) = (Arc::new(Rounds::default()), Source::new());
        source.let_go.add_permits(3);
        for number in 1..=3 {
            assert_eq!(rounds.join(|| source.read()).await, number);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_read_holds_up_nobody() {
        let (rounds, source) = (Arc::new(Rounds::default()), Source::new());
        let slow = ask(&rounds, &source);
        settle().await;
        let next = ask(&rounds, &source);
        tokio::time::sleep(PATIENCE * 2).await;
        assert_eq!(source.begun(), 2, "begun beside the slow one");
        source.let_go.add_permits(2);
        assert_eq!((slow.await.unwrap(), next.await.unwrap()), (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_others_do_not_lose_by_who_leaves() {
        let (rounds, source) = (Arc::new(Rounds::default()), Source::new());
        let leader = ask(&rounds, &source);
        let follower = ask(&rounds, &source);
        settle().await;
        assert_eq!(source.begun(), 1);
        leader.abort();
        settle().await;
        assert_eq!(source.begun(), 2, "read again for who is left");
        source.let_go.add_permits(1);
        assert_eq!(follower.await.unwrap(), 2);
    }
}
