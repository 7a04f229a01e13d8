//! Messages between processes over a socket to each peer: a header of fixed length, followed by the content.
//!
//! Deadlocks are impossible. A process reads each peer on a thread of its own. In a process that does not lead, this
//! thread writes nothing: it only puts operands into their slots. Every message to such a process is therefore read,
//! even if its other threads wait.
//!
//! The leader's reading threads write only to processes that do not lead. They make progress, so every message to the
//! leader is read, too. A process that has failed stops reading, and a write to it fails at once. Hence no thread waits
//! forever, although a thread does wait while a socket is full.
//!
//! The number of messages sent but not yet read is bounded as operands are: by edges times iterations in flight.

use super::super::report::Sent;
use super::socket::UnixStream;
use anabranch_base::lock::lock;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;
use std::time::Duration;

/// Bytes of a header.
const HEAD: usize = 25;

/// Most bytes of a message's content.
pub(super) const MOST_BYTES: usize = 1 << 30;

/// Time between two checks whether a thread at a socket should go on waiting.
const LOOK: Duration = Duration::from_millis(50);

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An operand for a port of a node.
    Operand,
    /// No operand will come to a port of a node.
    Dropped,
    /// An iteration begins in a slot.
    Begin,
    /// All sinks of a process are done in a slot.
    Finished,
    /// A source had no item for an iteration.
    Ended,
    /// A task with its operands, for the worker whose number replaces the port.
    Task,
    /// Outcome of a task.
    Ran,
    /// A [`Control`](super::Control) message as JSON, before or after the run.
    Control,
}

const KINDS: [Kind; 8] =
    [Kind::Operand, Kind::Dropped, Kind::Begin, Kind::Finished, Kind::Ended, Kind::Task, Kind::Ran, Kind::Control];

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) node: u32,
    pub(super) port: u32,
    pub(super) slot: u32,
    pub(super) iteration: u64,
}

impl Head {
    /// Returns the header of a message that concerns no node.
    pub(super) fn of(kind: Kind, slot: u32, iteration: u64) -> Self {
        Head { kind, node: 0, port: 0, slot, iteration }
    }

    /// Returns the beginning of a message, to which its content is appended.
    pub(super) fn frame(self) -> Vec<u8> {
        let mut frame = vec![self.kind as u8];
        [self.node, self.port, self.slot].iter().for_each(|word| frame.extend(word.to_le_bytes()));
        frame.extend(self.iteration.to_le_bytes());
        frame.extend([0; 4]);
        frame
    }
}

/// Number of bytes after the header of a message.
pub(super) fn content_of(frame: &[u8]) -> usize {
    frame.len() - HEAD
}

/// Sockets of a process.
pub(super) struct Post {
    /// Connection to each machine.
    lines: Vec<Option<Line>>,
}

struct Line {
    stream: UnixStream,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sent: Sent,
    /// Whether a message was left incomplete.
    is_torn: bool,
}

impl Post {
    pub(super) fn new(streams: Vec<Option<UnixStream>>) -> io::Result<Self> {
        let line = |stream: UnixStream| {
            stream.set_read_timeout(Some(LOOK))?;
            stream.set_write_timeout(Some(LOOK))?;
            Ok(Line { stream, state: Mutex::default() })
        };
        let lines = streams.into_iter().map(|stream| stream.map(line).transpose());
        Ok(Post { lines: lines.collect::<io::Result<_>>()? })
    }

    /// Numbers of the other machines.
    pub(super) fn peers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.lines).filter_map(|(peer, line)| line.as_ref().map(|_| peer))
    }

    /// Sends a message. `operands` is the number of bytes if it holds operands.
    ///
    /// A message to a peer that has gone is lost: the thread that reads from that peer sees that. While the socket is
    /// full, `stop` decides whether to give up.
    pub(super) fn send(
        &self,
        to: u32,
        mut frame: Vec<u8>,
        operands: Option<u64>,
        stop: impl Fn() -> bool,
    ) -> io::Result<()> {
        let Some(Some(line)) = self.lines.get(to as usize) else { return Ok(()) };
        let length = (content_of(&frame) as u32).to_le_bytes();
        frame[HEAD - 4..HEAD].copy_from_slice(&length);
        let mut state = lock(&line.state);
        let mut rest = &frame[..];
        while !rest.is_empty() && !state.is_torn {
            match (&line.stream).write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_wait(&error) && !stop() => {}
                Err(error) => {
                    state.is_torn = true;
                    if !is_gone(&error) && !is_wait(&error) {
                        return Err(error);
                    }
                }
            }
        }
        if !state.is_torn {
            state.sent.all.add(frame.len() as u64);
            operands.into_iter().for_each(|bytes| state.sent.operands.add(bytes));
        }
        Ok(())
    }

    /// Traffic to all peers so far.
    pub(super) fn sent(&self) -> Sent {
        let mut all = Sent::default();
        self.lines.iter().flatten().for_each(|line| all.join(lock(&line.state).sent));
        all
    }

    /// Returns a peer's messages. While there are none, `stop` decides whether to give up.
    pub(super) fn listen<'a>(&'a self, peer: u32, stop: &'a dyn Fn() -> bool) -> Option<Ear<'a>> {
        let line = self.lines.get(peer as usize)?.as_ref()?;
        Some(Ear(BufReader::with_capacity(1 << 16, Patient { stream: &line.stream, stop })))
    }

    /// Returns the next message of a peer, without reading beyond it.
    pub(super) fn hear_one(
        &self,
        peer: u32,
        stop: &dyn Fn() -> bool,
        content: &mut Vec<u8>,
    ) -> io::Result<Option<Head>> {
        let Some(Some(line)) = self.lines.get(peer as usize) else { return Ok(None) };
        next(&mut Patient { stream: &line.stream, stop }, content)
    }

    /// Stops reading from all peers: their writes fail at once.
    pub(super) fn deafen(&self) {
        self.lines.iter().flatten().for_each(|line| drop(line.stream.shutdown(Shutdown::Read)));
    }

    /// Closes all connections: threads that wait at a socket, here or at a peer, see its end.
    pub(super) fn hang_up(&self) {
        self.lines.iter().flatten().for_each(|line| drop(line.stream.shutdown(Shutdown::Both)));
    }
}

impl Sent {
    pub(super) fn join(&mut self, other: Self) {
        self.operands.join(other.operands);
        self.all.join(other.all);
    }
}

/// Messages from one peer.
pub(super) struct Ear<'a>(BufReader<Patient<'a>>);

impl Ear<'_> {
    /// Returns the next message, with its content in `content`; `None` at the end. Takes no more memory than bytes have
    /// come.
    pub(super) fn next(&mut self, content: &mut Vec<u8>) -> io::Result<Option<Head>> {
        next(&mut self.0, content)
    }
}

fn next(from: &mut impl Read, content: &mut Vec<u8>) -> io::Result<Option<Head>> {
    let mut head = [0; HEAD];
    match from.read(&mut head[..1]) {
        Ok(0) => return Ok(None),
        Ok(_) => from.read_exact(&mut head[1..])?,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
        Err(error) => return Err(error),
    }
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = word(HEAD - 4) as usize;
    let kind = KINDS.get(usize::from(head[0])).filter(|_| length <= MOST_BYTES);
    let Some(kind) = kind else { return Err(io::Error::other("it sent data that are not a message of a flow")) };
    content.clear();
    if from.take(length as u64).read_to_end(content)? < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let iteration = u64::from(word(13)) | u64::from(word(17)) << 32;
    Ok(Some(Head { kind: *kind, node: word(1), port: word(5), slot: word(9), iteration }))
}

/// A socket that is read until `stop` returns true.
struct Patient<'a> {
    stream: &'a UnixStream,
    stop: &'a dyn Fn() -> bool,
}

impl Read for Patient<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(bytes) {
                Err(error) if is_wait(&error) => {
                    if (self.stop)() {
                        return Err(io::Error::other("the wait for it was cancelled"));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

/// Whether a peer has gone, even within a message.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
}

fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::super::super::report::Traffic;
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_sent() {
        let (here, there) = UnixStream::pair().expect("sockets");
        let posts =
            [vec![None, Some(here)], vec![Some(there), None]].map(|streams| Post::new(streams).expect("sockets"));
        let head = Head { kind: Kind::Operand, node: 7, port: 1, slot: 3, iteration: 1 << 40 };
        let mut frame = head.frame();
        frame.extend(b"operand");
        posts[0].send(1, frame, Some(7), || true).expect("room");
        posts[0].hang_up();
        let (mut ear, mut content) = (posts[1].listen(0, &|| true).expect("a peer"), Vec::new());
        assert_eq!(ear.next(&mut content).expect("a message"), Some(head));
        assert_eq!(content, b"operand");
        assert_eq!(ear.next(&mut content).expect("the end"), None);
        let sent = Sent { operands: Traffic { messages: 1, bytes: 7 }, all: Traffic { messages: 1, bytes: 32 } };
        assert_eq!((posts[0].sent(), posts[1].sent()), (sent, Sent::default()));
    }

    #[test]
    fn who_hears_nobody_is_heard_and_lets_nobody_wait() {
        let (here, there) = UnixStream::pair().expect("sockets");
        let posts =
            [vec![None, Some(here)], vec![Some(there), None]].map(|streams| Post::new(streams).expect("sockets"));
        posts[1].deafen();
        let head = Head::of(Kind::Begin, 0, 0);
        let mut long = head.frame();
        long.resize(1 << 24, 0);
        posts[0].send(1, long, None, || false).expect("no failure");
        posts[1].send(0, head.frame(), None, || false).expect("room");
        let mut content = Vec::new();
        assert_eq!(posts[0].hear_one(1, &|| true, &mut content).expect("a message"), Some(head));
        assert_eq!(posts[1].hear_one(0, &|| true, &mut content).expect("the end"), None);
        assert_eq!(posts[0].sent(), Sent::default());
    }

    #[test]
    fn what_is_no_message_is_refused_without_taking_memory_for_it() {
        let mut content = Vec::new();
        let mut whole = Head::of(Kind::Begin, 0, 0).frame();
        for (at, byte) in [(0, KINDS.len() as u8), (HEAD - 1, 0x80), (HEAD - 1, 0x3f)] {
            let mut frame = whole.clone();
            frame[at] = byte;
            assert!(next(&mut &frame[..], &mut content).is_err());
            assert!(content.capacity() < 1 << 16, "{}", content.capacity());
        }
        whole.truncate(9);
        assert!(next(&mut &whole[..], &mut content).is_err());
    }
}
