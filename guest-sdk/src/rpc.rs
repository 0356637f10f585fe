//! JSON-RPC 2.0, one message a line, over a [`Connection`].
//!
//! Invariants:
//! - a call that is dropped is still sent whole, and its answer is not lost: it
//!   goes to the call's `on_orphan` hook, so that a native turn that was started
//!   for nobody can be stopped;
//! - whatever the peer sends, the reader goes on: noise, answers to nothing,
//!   second answers and oversize lines are reported ([`Fault`]) and skipped;
//! - each request of the peer is answered exactly once, with an error when the
//!   [`Responder`] is dropped;
//! - answers and notifications are delivered in the order in which they were sent,
//!   synchronously ([`Rpc::send`]).
//!
//! Deliberately not here: batches, which no agent protocol uses, and time limits
//! (race the call).

mod message;

pub use message::{RpcError, codes};

use crate::Shared;
use crate::connection::{Connection, ConnectionError, Protocol, lines::Oversize};
use futures::channel::oneshot;
use futures::future::LocalBoxFuture;
use message::{Id, Incoming};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// Calls that may wait for an answer at once.
const PENDING_CALLS: usize = 1024;
/// Requests of the peer that may wait for ours at once.
const OPEN_REQUESTS: usize = 256;

/// What the peer's side of the protocol means. Called by the reader: nothing here
/// waits; use [`Connection::spawn`] for what must.
pub trait Peer {
    /// The handshake of a new process.
    fn open(&self) -> LocalBoxFuture<'static, Result<(), String>>;
    /// A notification.
    fn notification(&self, method: &str, params: Value);
    /// A request. The default answers that there is no such method.
    fn request(&self, request: Request) {
        request.unknown();
    }
    /// Something that is no message of the protocol. The default logs it.
    fn fault(&self, fault: &Fault) {
        tracing::warn!("native connection: {fault}");
    }
    /// The process is gone; all calls have been failed.
    fn closed(&self, reason: &ConnectionError);
    /// See [`Protocol::pressure`].
    fn pressure(&self) -> Option<LocalBoxFuture<'static, ()>> {
        None
    }
}

/// What the peer sent that is no message of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not JSON, or JSON that is no JSON-RPC message; its beginning.
    Noise(String),
    /// An answer to a request that was answered before, or never made.
    UnknownAnswer(String),
    /// A line beyond the bound.
    Oversize {
        /// Its bytes.
        bytes: usize,
        /// The bound.
        limit: usize,
        /// The method of the call that it answered, when that could be told.
        call: Option<String>,
    },
    /// Bytes that are not UTF-8 were replaced in an otherwise good message.
    Utf8,
    /// A request was refused because too many are open.
    Flood(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Noise(head) => write!(out, "not a message, skipped: {head:?}"),
            Self::UnknownAnswer(id) => write!(out, "answer to no open request, ignored: id {id}"),
            Self::Oversize {
                bytes,
                limit,
                call: None,
            } => write!(
                out,
                "a line of {bytes} bytes, skipped: the limit is {limit}"
            ),
            Self::Oversize {
                bytes,
                limit,
                call: Some(method),
            } => write!(
                out,
                "the answer to {method:?} has {bytes} bytes, skipped: the limit is {limit}"
            ),
            Self::Utf8 => write!(out, "bytes that are not UTF-8 were replaced"),
            Self::Flood(method) => write!(
                out,
                "request {method:?} refused: {OPEN_REQUESTS} are open already"
            ),
        }
    }
}

type Continuation = Box<dyn FnOnce(Result<Value, RpcError>)>;

struct Pending {
    method: String,
    then: Continuation,
}

#[derive(Default)]
struct Calls {
    last: u64,
    pending: HashMap<u64, Pending>,
}

/// The calling side; clones share one set of calls.
#[derive(Clone)]
pub struct Rpc {
    connection: Connection,
    calls: Shared<Calls>,
    open_requests: Rc<Cell<usize>>,
}

impl std::fmt::Debug for Rpc {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Rpc").finish_non_exhaustive()
    }
}

impl Rpc {
    /// Speaks over `connection`.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            calls: Shared::default(),
            open_requests: Rc::new(Cell::new(0)),
        }
    }

    /// The connection beneath.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What [`Connection::run`] needs: this side's calls and `peer`'s meaning.
    pub fn protocol<P: Peer>(&self, peer: P) -> impl Protocol + use<P> {
        Lines {
            rpc: self.clone(),
            peer,
        }
    }

    /// Sends a request; `then` gets the answer, synchronously and in order with
    /// the notifications around it.
    ///
    /// # Errors
    ///
    /// `Connection` when it cannot be sent; `then` is dropped uncalled.
    pub fn send(
        &self,
        method: &str,
        params: &Value,
        then: impl FnOnce(Result<Value, RpcError>) + 'static,
    ) -> Result<(), RpcError> {
        let id = self.calls.with(|calls| {
            if calls.pending.len() >= PENDING_CALLS {
                return None;
            }
            calls.last += 1;
            Some(calls.last)
        });
        let Some(id) = id else {
            return Err(RpcError::Connection(ConnectionError::Congested(format!(
                "{PENDING_CALLS} calls wait for the native process"
            ))));
        };
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.write(&line)?;
        self.calls.with(|calls| {
            calls.pending.insert(
                id,
                Pending {
                    method: method.to_owned(),
                    then: Box::new(then),
                },
            )
        });
        Ok(())
    }

    /// Sends a request and waits for its answer. Dropped before it came, the
    /// answer is lost: use [`call_or`](Self::call_or) where that matters.
    ///
    /// # Errors
    ///
    /// See [`RpcError`].
    pub async fn call(&self, method: &str, params: &Value) -> Result<Value, RpcError> {
        self.call_or(method, params, drop).await
    }

    /// As [`call`](Self::call). When the caller is dropped before the answer came,
    /// `on_orphan` gets it: the native side has done what nobody waits for.
    ///
    /// # Errors
    ///
    /// See [`RpcError`].
    pub async fn call_or(
        &self,
        method: &str,
        params: &Value,
        on_orphan: impl FnOnce(Result<Value, RpcError>) + 'static,
    ) -> Result<Value, RpcError> {
        let (sender, answer) = oneshot::channel();
        self.send(method, params, move |result| {
            if let Err(orphan) = sender.send(result) {
                on_orphan(orphan);
            }
        })?;
        answer.await.unwrap_or_else(|_| Err(RpcError::lost()))
    }

    /// Sends a notification.
    ///
    /// # Errors
    ///
    /// `Connection` when it cannot be sent.
    pub fn notify(&self, method: &str, params: &Value) -> Result<(), RpcError> {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    fn write(&self, message: &Value) -> Result<(), RpcError> {
        let line = serde_json::to_vec(message)
            .map_err(|error| RpcError::Malformed(format!("request: {error}")))?;
        self.connection.send(line).map_err(RpcError::Connection)
    }

    fn answer(&self, id: &Id, result: Result<Value, RpcError>) -> bool {
        let Some(call) = id
            .number()
            .and_then(|id| self.calls.with(|calls| calls.pending.remove(&id)))
        else {
            return false;
        };
        // Outside the closure: the continuation may well send the next request.
        (call.then)(result);
        true
    }

    fn fail_all(&self, reason: &ConnectionError) {
        let mut calls: Vec<(u64, Pending)> =
            self.calls.with(|calls| calls.pending.drain().collect());
        calls.sort_by_key(|(id, _)| *id);
        for (_, call) in calls {
            (call.then)(Err(RpcError::Connection(reason.clone())));
        }
    }
}

/// A request of the peer, answered through its [`Responder`].
#[derive(Debug)]
pub struct Request {
    /// Its method.
    pub method: String,
    /// Its parameters; null when it has none.
    pub params: Value,
    /// The way back.
    pub responder: Responder,
}

impl Request {
    /// Answers that there is no such method (-32601).
    pub fn unknown(self) {
        let message = format!("Method not found: {}", self.method);
        self.responder.refuse(codes::METHOD_NOT_FOUND, &message);
    }
}

/// Answers one request of the peer. Dropped, it answers with an error (-32603).
#[derive(Debug)]
pub struct Responder {
    id: Option<Value>,
    rpc: Rpc,
}

impl Responder {
    /// Answers with a result.
    pub fn answer(mut self, result: &Value) {
        self.send("result", result);
    }

    /// Answers with an error of this code.
    pub fn refuse(mut self, code: i64, message: &str) {
        self.send("error", &json!({"code": code, "message": message}));
    }

    fn send(&mut self, member: &str, value: &Value) {
        let Some(id) = self.id.take() else { return };
        let open = &self.rpc.open_requests;
        open.set(open.get().saturating_sub(1));
        if let Err(error) = self
            .rpc
            .write(&json!({"jsonrpc": "2.0", "id": id, member: value}))
        {
            tracing::warn!("native connection: a request stays unanswered: {error}");
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.send(
            "error",
            &json!({"code": codes::INTERNAL_ERROR, "message": "not answered"}),
        );
    }
}

/// The [`Protocol`] of [`Rpc::protocol`].
struct Lines<P> {
    rpc: Rpc,
    peer: P,
}

impl<P: Peer> Protocol for Lines<P> {
    fn open(&self) -> LocalBoxFuture<'static, Result<(), String>> {
        self.peer.open()
    }

    fn line(&self, line: Vec<u8>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let (message, replaced) = match message::parse(&line) {
            Ok(parsed) => parsed,
            Err(head) => return self.peer.fault(&Fault::Noise(head)),
        };
        if replaced {
            self.peer.fault(&Fault::Utf8);
        }
        match message {
            Incoming::Notification { method, params } => self.peer.notification(&method, params),
            Incoming::Request { id, method, params } => self.request(id, method, params),
            Incoming::Answer { id, result } => {
                if !self.rpc.answer(&id, result) {
                    self.peer.fault(&Fault::UnknownAnswer(id.to_string()));
                }
            }
        }
    }

    fn oversize(&self, line: Oversize) {
        // An answer that is lost would leave its caller waiting for ever.
        let id = message::answered_id(&line.head, &line.tail);
        let method = id.and_then(|id| {
            self.rpc
                .calls
                .with(|calls| calls.pending.get(&id).map(|call| call.method.clone()))
        });
        self.peer.fault(&Fault::Oversize {
            bytes: line.bytes,
            limit: line.limit,
            call: method,
        });
        if let Some(id) = id {
            self.rpc.answer(
                &Id::from(id),
                Err(RpcError::Oversize {
                    bytes: line.bytes,
                    limit: line.limit,
                }),
            );
        }
    }

    fn closed(&self, reason: &ConnectionError) {
        self.rpc.fail_all(reason);
        self.peer.closed(reason);
    }

    fn pressure(&self) -> Option<LocalBoxFuture<'static, ()>> {
        self.peer.pressure()
    }
}

impl<P: Peer> Lines<P> {
    fn request(&self, id: Value, method: String, params: Value) {
        let open = &self.rpc.open_requests;
        let full = open.get() >= OPEN_REQUESTS;
        open.set(open.get() + 1);
        let responder = Responder {
            id: Some(id),
            rpc: self.rpc.clone(),
        };
        if full {
            self.peer.fault(&Fault::Flood(method));
            responder.refuse(codes::BUSY, "too many requests are open");
            return;
        }
        self.peer.request(Request {
            method,
            params,
            responder,
        });
    }
}

#[cfg(test)]
mod tests;
