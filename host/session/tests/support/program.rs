//! A granted program that the test scripts.

use harness_core::provider::{
    BoxFuture, IoError, OutputChunk, OutputStream, Process, ProcessOutput, Program, ProgramEnd,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, watch};

/// What a test holds of a program, and of the process it becomes.
pub struct Script {
    end: watch::Sender<Option<ProgramEnd>>,
    written: Mutex<Vec<u8>>,
    refusal: Mutex<Option<IoError>>,
    /// Starting waits for the test.
    pub hold: Mutex<Option<Arc<Notify>>>,
    pub starts: AtomicUsize,
    pub stops: AtomicUsize,
    pub drops: AtomicUsize,
    /// A stop does not end it.
    pub deaf: std::sync::atomic::AtomicBool,
}

impl Script {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            end: watch::channel(None).0,
            written: Mutex::default(),
            refusal: Mutex::default(),
            hold: Mutex::default(),
            starts: 0.into(),
            stops: 0.into(),
            drops: 0.into(),
            deaf: false.into(),
        })
    }

    /// The program, under that name.
    pub fn program(self: &Arc<Self>, name: &str) -> Box<dyn Program> {
        Box::new(Scripted {
            name: name.into(),
            script: self.clone(),
        })
    }

    pub fn cannot_start(&self, error: IoError) {
        *self.refusal.lock().unwrap() = Some(error);
    }

    pub fn writes(&self, bytes: &[u8]) {
        self.written.lock().unwrap().extend_from_slice(bytes);
    }

    /// It ends by itself.
    pub fn exits(&self, code: i32) {
        self.ends(ProgramEnd::Exited(code));
    }

    fn ends(&self, end: ProgramEnd) {
        self.end.send_modify(|known| {
            known.get_or_insert(end);
        });
    }

    pub fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }

    pub fn stops(&self) -> usize {
        self.stops.load(Ordering::SeqCst)
    }

    pub fn is_dropped(&self) -> bool {
        self.drops.load(Ordering::SeqCst) > 0
    }
}

struct Scripted {
    name: String,
    script: Arc<Script>,
}

impl Program for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(self: Box<Self>) -> BoxFuture<'static, Result<Arc<dyn Process>, IoError>> {
        let script = self.script;
        Box::pin(async move {
            script.starts.fetch_add(1, Ordering::SeqCst);
            let hold = script.hold.lock().unwrap().clone();
            if let Some(hold) = hold {
                hold.notified().await;
            }
            if let Some(error) = script.refusal.lock().unwrap().clone() {
                return Err(error);
            }
            Ok(Arc::new(Runs(script)) as Arc<dyn Process>)
        })
    }
}

struct Runs(Arc<Script>);

impl Process for Runs {
    fn written(&self) -> u64 {
        self.0.written.lock().unwrap().len() as u64
    }

    fn read(&self, from: u64, max: usize) -> ProcessOutput {
        let written = self.0.written.lock().unwrap();
        let rest = &written[usize::try_from(from).unwrap().min(written.len())..];
        let data = rest[..max.min(rest.len())].to_vec();
        ProcessOutput {
            from,
            next: from + data.len() as u64,
            chunks: vec![OutputChunk {
                stream: OutputStream::Stdout,
                data,
            }],
        }
    }

    fn stop(&self) {
        self.0.stops.fetch_add(1, Ordering::SeqCst);
        if !self.0.deaf.load(Ordering::SeqCst) {
            self.0.ends(ProgramEnd::Stopped);
        }
    }

    fn ended(&self) -> BoxFuture<'static, ProgramEnd> {
        let mut end = self.0.end.subscribe();
        Box::pin(async move {
            let ended = end.wait_for(Option::is_some).await;
            ended
                .ok()
                .and_then(|e| e.clone())
                .unwrap_or(ProgramEnd::Lost)
        })
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.0.drops.fetch_add(1, Ordering::SeqCst);
        self.0.ends(ProgramEnd::Stopped);
    }
}
