//! What host, supervisor and reaper say to each other over Unix sockets.
//!
//! Supervisor and reaper say one byte when they are up. host → supervisor: one byte with one
//! descriptor, the socket of a new reaper. host → reaper: one [`Launch`] with three descriptors;
//! reaper → host: [`Report`]s of five bytes. Nothing else: the only command is end of file.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// `argv[0]` of the supervisor.
pub(super) const SUPERVISOR: &str = "harness-supervisor";
/// `argv[0]` of a reaper.
pub(super) const REAPER: &str = "harness-reaper";
/// Set in the environment of both, so that a binary whose `main` does not know them can never
/// start another pair.
pub(super) const MARKER: &str = "HARNESS_SUPERVISED";
/// What supervisor and reaper say when they are up.
pub(super) const READY: u8 = b'r';

/// Largest encoded [`Launch`]; arguments and environment together are bounded by the kernel to a
/// similar size.
const LAUNCH_BYTES: usize = 1024 * 1024;
/// Most descriptors in one message.
const FDS: usize = 3;

/// What to execute.
#[derive(Serialize, Deserialize)]
pub(super) struct Launch {
    /// Absolute path of the program.
    pub(super) program: String,
    /// Its arguments.
    pub(super) args: Vec<String>,
    /// Its whole environment. It travels here and not in the reaper's own environment, which
    /// others may read.
    pub(super) env: BTreeMap<String, String>,
    /// Absolute path where it starts.
    pub(super) cwd: String,
}

/// What a reaper tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The program runs.
    Started,
    /// It could not be executed: an operating system error number.
    Refused(i32),
    /// It ended: exit code, or 128 + signal. Descendants may live on.
    Exited(i32),
    /// No descendant is left.
    Reaped,
}

impl Report {
    /// Bytes of an encoded report.
    pub(super) const BYTES: usize = 5;

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let (tag, value) = match self {
            Self::Started => (b's', 0),
            Self::Refused(errno) => (b'f', errno),
            Self::Exited(code) => (b'x', code),
            Self::Reaped => (b'g', 0),
        };
        let [a, b, c, d] = value.to_le_bytes();
        [tag, a, b, c, d]
    }

    pub(super) fn decode([tag, a, b, c, d]: [u8; Self::BYTES]) -> Option<Self> {
        let value = i32::from_le_bytes([a, b, c, d]);
        match tag {
            b's' => Some(Self::Started),
            b'f' => Some(Self::Refused(value)),
            b'x' => Some(Self::Exited(value)),
            b'g' => Some(Self::Reaped),
            _ => None,
        }
    }
}

/// Sends bytes with descriptors; all of the bytes or an error.
pub(super) fn send_with_fds(
    socket: &UnixStream,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors in one message"));
    }
    let sent = loop {
        match sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    // The descriptors went with the first byte; a rest of the bytes follows alone.
    let mut stream = socket;
    stream.write_all(bytes.get(sent..).unwrap_or_default())
}

/// Receives exactly `bytes.len()` bytes and the descriptors sent with them. `None`: end of file.
pub(super) fn receive_with_fds(
    socket: &UnixStream,
    bytes: &mut [u8],
) -> io::Result<Option<Vec<OwnedFd>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(
            socket.as_fd(),
            &mut [IoSliceMut::new(bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?.bytes,
        }
    };
    if received == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    let mut stream = socket;
    stream.read_exact(bytes.get_mut(received..).unwrap_or_default())?;
    Ok(Some(fds))
}

/// Sends a launch with standard input, output and error.
pub(super) fn send_launch(
    socket: &UnixStream,
    launch: &Launch,
    stdio: [BorrowedFd<'_>; FDS],
) -> io::Result<()> {
    let body = serde_json::to_vec(launch)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    if body.len() > LAUNCH_BYTES {
        return Err(io::Error::other("arguments and environment are too large"));
    }
    send_with_fds(socket, &length.to_le_bytes(), &stdio)?;
    let mut stream = socket;
    stream.write_all(&body)
}

/// Receives a launch. `None`: the host went away.
pub(super) fn receive_launch(socket: &UnixStream) -> io::Result<Option<(Launch, [OwnedFd; FDS])>> {
    let mut length = [0; 4];
    let Some(fds) = receive_with_fds(socket, &mut length)? else {
        return Ok(None);
    };
    let fds = <[OwnedFd; FDS]>::try_from(fds)
        .map_err(|_| io::Error::other("a launch needs three descriptors"))?;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(io::Error::other)?;
    if length > LAUNCH_BYTES {
        return Err(io::Error::other("launch too large"));
    }
    let mut body = vec![0; length];
    let mut stream = socket;
    stream.read_exact(&mut body)?;
    Ok(Some((serde_json::from_slice(&body)?, fds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_wire() {
        for report in [
            Report::Started,
            Report::Refused(2),
            Report::Exited(137),
            Report::Exited(0),
            Report::Reaped,
        ] {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        assert_eq!(Report::decode(*b"?0000"), None);
    }

    #[test]
    fn a_launch_carries_three_descriptors() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let launch = Launch {
            program: "/bin/true".into(),
            args: vec!["x".repeat(100_000)],
            env: BTreeMap::from([("A".into(), "b".into())]),
            cwd: "/".into(),
        };
        let null = std::fs::File::open("/dev/null").unwrap();
        let sender = std::thread::spawn(move || {
            send_launch(&ours, &launch, [null.as_fd(), null.as_fd(), null.as_fd()]).unwrap();
        });
        let (got, _fds) = receive_launch(&theirs).unwrap().unwrap();
        sender.join().unwrap();
        assert_eq!(
            (
                got.program.as_str(),
                got.args[0].len(),
                got.env["A"].as_str()
            ),
            ("/bin/true", 100_000, "b")
        );
        assert!(
            receive_launch(&theirs).unwrap().is_none(),
            "the host went away"
        );
    }
}
