//! Sockets between the processes of a run: made in one process, and handed over to the others.

use super::socket::UnixStream;
#[cfg(target_os = "linux")]
use rustix::io::{IoSlice, IoSliceMut};
#[cfg(target_os = "linux")]
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io;
#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;

/// Most machines that can be processes: each has a socket to each other, and systems usually allow 1024 open files per
/// process.
const MOST: usize = 32;

/// One process's end of a run whose machines are processes: its machine number, and a socket to each other machine.
///
/// Sockets are made in pairs and have no names, so that no other process can open them and they leave no files behind.
/// A process can hand them over, and take them over, on Linux alone.
///
/// ```
/// # mod anabranch { pub use anabranch_flow as flow; }
/// use anabranch::flow::{WorkerConfig, Flow, FlowOptions, Peers, Scheduler};
///
/// let run = |peers: Peers| {
///     let mut flow = Flow::new();
///     let numbers = flow.source("numbers", 0..4u64).machine(0).travels();
///     let squares = flow.node("squares", &numbers, |n| n * n).machine(1).travels();
///     let kept = flow.collect("kept", &squares).machine(0);
///     let options = FlowOptions::default().with_workers(WorkerConfig::machines(2, 1)?).with_scheduler(Scheduler::Local);
///     flow.run_among(&options, peers).map(|report| (kept.take(), report))
/// };
/// // Here the processes are two threads: `hand_over` and `take_over` bring the second's end to another process.
/// let [first, second] = Peers::pairs(2)?.try_into().expect("two");
/// let other = std::thread::spawn(move || run(second));
/// let (kept, report) = run(first)?;
/// assert_eq!((kept, report.sent.map(|sent| sent.operands)), (vec![0, 1, 4, 9], Some(report.traffic)));
/// assert!(other.join().is_ok_and(|ended| ended.is_ok()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Peers {
    pub(super) machine: u32,
    /// Socket to each machine; `None` for this machine.
    pub(crate) streams: Vec<Option<UnixStream>>,
}

impl Peers {
    /// Returns the ends of `machines` machines, each of which has a socket to each other.
    ///
    /// # Errors
    /// If there are none, or more than 32, or the system has no more sockets. Outside Linux, if there are two or more.
    pub fn pairs(machines: u32) -> io::Result<Vec<Self>> {
        let count = machines as usize;
        if !(1..=MOST).contains(&count) {
            return Err(refused(format!("{machines} machines cannot be processes; use 1 to {MOST}")));
        }
        let lone = |machine| Peers { machine, streams: (0..count).map(|_| None).collect() };
        let mut all: Vec<Peers> = (0..machines).map(lone).collect();
        for (one, other) in (0..count).flat_map(|one| (0..one).map(move |other| (one, other))) {
            let (here, there) = UnixStream::pair()?;
            (all[one].streams[other], all[other].streams[one]) = (Some(here), Some(there));
        }
        Ok(all)
    }

    /// Returns the number of this process's machine.
    pub fn machine(&self) -> u32 {
        self.machine
    }
}

#[cfg(target_os = "linux")]
impl Peers {
    /// Sends this end to the process at the other end of a socket, which takes it over.
    ///
    /// # Errors
    /// The system's error for the socket.
    pub fn hand_over(self, to: &UnixStream) -> io::Result<()> {
        let said = [self.machine.to_le_bytes(), (self.streams.len() as u32).to_le_bytes()].concat();
        let sockets: Vec<_> = self.streams.iter().flatten().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&sockets));
        }
        match sendmsg(to, &[IoSlice::new(&said)], &mut control, SendFlags::NOSIGNAL)? {
            8 => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Receives an end that another process has sent.
    ///
    /// # Errors
    /// If the socket does not deliver such an end.
    pub fn take_over(from: &UnixStream) -> io::Result<Self> {
        let (mut said, mut space) = ([0; 8], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))]);
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(from, &mut [IoSliceMut::new(&mut said)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let rights = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let mut sockets = rights.flatten().map(UnixStream::from).collect::<Vec<_>>().into_iter();
        let [m0, m1, m2, m3, count @ ..] = said;
        let (machine, count) = (u32::from_le_bytes([m0, m1, m2, m3]), u32::from_le_bytes(count) as usize);
        if got.bytes != 8 || !(1..=MOST).contains(&count) || machine as usize >= count || sockets.len() != count - 1 {
            return Err(refused("no sockets of a flow were passed to this process".to_owned()));
        }
        let streams = (0..count).map(|peer| if peer == machine as usize { None } else { sockets.next() }).collect();
        Ok(Peers { machine, streams })
    }
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
