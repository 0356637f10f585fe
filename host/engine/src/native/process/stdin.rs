//! Standard input of a program: whole writes, in the order of the calls (N18).
//!
//! A write is queued in the call itself, not when its future is first polled, so calls of one
//! caller keep their order whatever is polled when. One task writes. A write whose caller went away
//! before its turn is left out; one that was begun is finished.

use crate::native::IoError;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot};

/// The queue's bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Bytes that wait, all writes together.
    pub(super) bytes: usize,
    /// Writes that wait.
    pub(super) writes: usize,
}

/// The queue's writing side.
pub(super) struct Stdin {
    queue: Arc<Queue>,
    bounds: Bounds,
}

struct Queue {
    /// A std mutex: held for a push or a pop, never across an await.
    state: Mutex<State>,
    /// One waiter, the writing task; the permit remembers a push that came before it waited.
    pushed: Notify,
}

#[derive(Default)]
struct State {
    writes: VecDeque<Write>,
    /// Bytes of `writes` and of the write under way.
    bytes: usize,
    closed: bool,
}

struct Write {
    data: Bytes,
    done: oneshot::Sender<Result<(), IoError>>,
}

impl Stdin {
    /// The queue before a pipe, and the task that writes.
    pub(super) fn new(
        pipe: pipe::Sender,
        bounds: Bounds,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            pushed: Notify::new(),
        });
        let task = write_all(queue.clone(), pipe);
        (Self { queue, bounds }, task)
    }

    /// Queues one whole write; the future resolves when the pipe took all of it.
    pub(super) fn write(
        &self,
        data: Bytes,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        let queued = self.push(data);
        async move { queued?.await.unwrap_or(Err(IoError::Closed)) }
    }

    /// End of file after the writes that were queued before.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.queue.pushed.notify_one();
    }

    fn push(&self, data: Bytes) -> Result<oneshot::Receiver<Result<(), IoError>>, IoError> {
        let mut state = self.queue.lock();
        if state.closed {
            return Err(IoError::Closed);
        }
        if !self.bounds.admit(&state, data.len()) {
            state.forget_dropped();
        }
        if !self.bounds.admit(&state, data.len()) {
            return Err(IoError::Limit(format!(
                "standard input holds at most {} bytes in {} writes that the program has not read yet",
                self.bounds.bytes, self.bounds.writes
            )));
        }
        let (done, receiver) = oneshot::channel();
        state.bytes += data.len();
        state.writes.push_back(Write { data, done });
        drop(state);
        self.queue.pushed.notify_one();
        Ok(receiver)
    }
}

impl Bounds {
    fn admit(self, state: &State, more: usize) -> bool {
        state.writes.len() < self.writes && state.bytes.saturating_add(more) <= self.bytes
    }
}

impl State {
    /// Leaves out the writes whose callers went away.
    fn forget_dropped(&mut self) {
        let mut freed = 0;
        self.writes.retain(|write| {
            let gone = write.done.is_closed();
            freed += if gone { write.data.len() } else { 0 };
            !gone
        });
        self.bytes -= freed;
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next write; `None` when the queue is closed and empty.
    async fn next(&self) -> Option<Write> {
        loop {
            {
                let mut state = self.lock();
                state.forget_dropped();
                if let Some(write) = state.writes.pop_front() {
                    return Some(write);
                }
                if state.closed {
                    return None;
                }
            }
            self.pushed.notified().await;
        }
    }
}

async fn write_all(queue: Arc<Queue>, mut pipe: pipe::Sender) {
    let on_end = CloseOnEnd(&queue);
    while let Some(write) = queue.next().await {
        let written = pipe.write_all(&write.data).await;
        queue.lock().bytes -= write.data.len();
        // A broken pipe: the program closed its input or ended.
        let broken = written.is_err();
        let _ = write.done.send(written.map_err(|_| IoError::Closed));
        if broken {
            break;
        }
    }
    drop(on_end);
}

/// However the task ends, by itself or dropped with its program, nothing is left waiting.
struct CloseOnEnd<'a>(&'a Queue);

impl Drop for CloseOnEnd<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        // Their senders drop: the callers learn `closed`.
        state.writes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    const SMALL: Bounds = Bounds {
        bytes: 200_000,
        writes: 4,
    };

    #[tokio::test]
    async fn n18_writes_go_out_whole_in_call_order_and_dropped_ones_not_at_all() {
        let (sender, mut receiver) = pipe::pipe().unwrap();
        let (stdin, task) = Stdin::new(sender, SMALL);
        // Larger than the pipe's buffer, so that it is under way while the others wait.
        let first = stdin.write(Bytes::from(vec![b'a'; 100_000]));
        let second = stdin.write(Bytes::from_static(b"bb"));
        let dropped = stdin.write(Bytes::from_static(b"never"));
        let last = stdin.write(Bytes::from_static(b"c"));
        drop(dropped);
        stdin.close();
        let task = tokio::spawn(task);
        let mut got = Vec::new();
        receiver.read_to_end(&mut got).await.unwrap();
        // Polled in another order than called.
        assert_eq!(
            (last.await, second.await, first.await),
            (Ok(()), Ok(()), Ok(()))
        );
        let mut expected = vec![b'a'; 100_000];
        expected.extend_from_slice(b"bbc");
        assert!(got == expected, "{} bytes", got.len());
        task.await.unwrap();
        assert_eq!(
            stdin.write(Bytes::from_static(b"x")).await,
            Err(IoError::Closed)
        );
    }

    #[tokio::test]
    async fn n18_a_write_under_way_is_finished_when_its_caller_goes() {
        let (sender, mut receiver) = pipe::pipe().unwrap();
        let (stdin, task) = Stdin::new(sender, SMALL);
        tokio::spawn(task);
        let first = stdin.write(Bytes::from(vec![b'a'; 150_000]));
        let mut got = vec![0; 1];
        receiver.read_exact(&mut got).await.unwrap();
        drop(first);
        stdin.close();
        receiver.read_to_end(&mut got).await.unwrap();
        assert_eq!(got.len(), 150_000);
    }

    #[tokio::test]
    async fn what_waits_is_bounded() {
        let (sender, receiver) = pipe::pipe().unwrap();
        let (stdin, task) = Stdin::new(sender, SMALL);
        let limit = |result| matches!(result, Err(IoError::Limit(_)));
        assert!(limit(stdin.write(Bytes::from(vec![0; 200_001])).await));
        let waiting: Vec<_> = (0..4)
            .map(|_| stdin.write(Bytes::from_static(b"x")))
            .collect();
        assert!(
            limit(stdin.write(Bytes::from_static(b"x")).await),
            "a fifth write"
        );
        drop(waiting);
        let fits = stdin.write(Bytes::from(vec![0; 200_000]));
        assert!(
            limit(stdin.write(Bytes::from_static(b"x")).await),
            "one byte more"
        );
        drop(receiver);
        task.await;
        assert_eq!(fits.await, Err(IoError::Closed), "nobody reads");
    }

    #[tokio::test]
    async fn a_dropped_task_leaves_nobody_waiting() {
        let (sender, _receiver) = pipe::pipe().unwrap();
        let (stdin, task) = Stdin::new(sender, SMALL);
        let task = tokio::spawn(task);
        let blocked = stdin.write(Bytes::from(vec![0; 200_000]));
        tokio::task::yield_now().await;
        task.abort();
        assert_eq!(blocked.await, Err(IoError::Closed));
    }
}
