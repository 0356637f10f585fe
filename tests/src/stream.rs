//! Reading server-sent events, checking what every stream promises.
//!
//! The ids of enduring events rise strictly; an event's name is its `type`; an ephemeral one has
//! no id; nothing follows `lagged`.

use crate::PATIENCE;
use futures::{Stream, StreamExt};
use serde_json::Value;
use std::collections::VecDeque;
use std::pin::Pin;

/// One event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Its name.
    pub event: String,
    /// Journal sequence of an enduring event.
    pub id: Option<u64>,
    /// Its data.
    pub data: Value,
}

type Bytes = Pin<Box<dyn Stream<Item = reqwest::Result<Vec<u8>>> + Send>>;

/// An open stream.
pub struct Frames {
    bytes: Bytes,
    buffer: Vec<u8>,
    ready: VecDeque<Frame>,
    last: u64,
    lagged: bool,
    ended: bool,
}

impl Frames {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        let bytes = response
            .bytes_stream()
            .map(|chunk| chunk.map(|bytes| bytes.to_vec()));
        Self {
            bytes: Box::pin(bytes),
            buffer: Vec::new(),
            ready: VecDeque::new(),
            last: 0,
            lagged: false,
            ended: false,
        }
    }

    /// Newest id so far.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether the host ended it for being slow.
    #[must_use]
    pub fn lagged(&self) -> bool {
        self.lagged
    }

    /// The next event; `None` when the stream ended or broke.
    ///
    /// # Panics
    /// It breaks a promise of the API.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(self.checked(frame));
            }
            if self.ended {
                return None;
            }
            match self.bytes.next().await {
                Some(Ok(chunk)) => {
                    self.buffer.extend_from_slice(&chunk);
                    self.split();
                }
                Some(Err(_)) | None => self.ended = true,
            }
        }
    }

    /// The next event for which `wanted` says yes.
    ///
    /// # Panics
    /// None comes.
    pub async fn until(&mut self, mut wanted: impl FnMut(&Frame) -> bool) -> Frame {
        let found = async {
            loop {
                let frame = self.next().await.expect("the stream goes on");
                if wanted(&frame) {
                    return frame;
                }
            }
        };
        tokio::time::timeout(PATIENCE, found)
            .await
            .expect("the event comes in time")
    }

    fn checked(&mut self, frame: Frame) -> Frame {
        assert!(!self.lagged, "{frame:?} follows `lagged`");
        if let Some(id) = frame.id {
            assert!(
                id > self.last || frame.event == "snapshot",
                "{id} follows {}",
                self.last
            );
            assert_eq!(frame.data["seq"], id, "{frame:?}");
            self.last = id;
        }
        self.lagged = frame.event == "lagged";
        if frame.event != "session" {
            assert_eq!(frame.data["v"], 1, "{frame:?}");
        }
        if let Some(kind) = frame.data["type"].as_str() {
            assert_eq!(kind, frame.event, "{frame:?}");
        }
        frame
    }

    fn split(&mut self) {
        // Whole events are taken out at once: taking each from the front would move the rest.
        let mut begin = 0;
        let buffer = std::mem::take(&mut self.buffer);
        while let Some(length) = memchr::memmem::find(&buffer[begin..], b"\n\n") {
            let block = &buffer[begin..begin + length + 2];
            begin += length + 2;
            let text = std::str::from_utf8(block).expect("UTF-8");
            let (mut event, mut id, mut data) = (None, None, None);
            for line in text.lines() {
                if let Some(value) = line.strip_prefix("event: ") {
                    event = Some(value.to_owned());
                } else if let Some(value) = line.strip_prefix("id: ") {
                    id = Some(value.parse().expect("an id is a sequence"));
                } else if let Some(value) = line.strip_prefix("data: ") {
                    assert!(data.is_none(), "data of two lines: {text}");
                    data = Some(serde_json::from_str(value).expect("data is JSON"));
                } else {
                    assert!(line.is_empty() || line.starts_with(':'), "{line}");
                }
            }
            if let (Some(event), Some(data)) = (event, data) {
                self.ready.push_back(Frame { event, id, data });
            }
        }
        self.buffer = buffer[begin..].to_vec();
    }
}
