//! What holds beside the times of tasks and transfers: what sends cost, how transfers meet, what devices take from each other.

use crate::platform::DeviceId;

/// What sends and receives cost the devices at their ends, in operations (divided by the device's speed).
///
/// The default is nothing. In the thesis' evaluation a send takes 10 operations, and a receive takes no time but counts 10
/// operations in path computation times: [`SendCosts::THESIS`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SendCosts {
    /// Operations that a send takes on the sender.
    pub send_operations: f64,
    /// Operations that a receive counts in path computation times. It never takes time.
    pub receive_operations: f64,
}

impl SendCosts {
    /// The costs of the thesis' evaluation (Laich 2017, sections 2.4 and 2.5; the figures are those of its experiments).
    pub const THESIS: SendCosts = SendCosts { send_operations: 10.0, receive_operations: 10.0 };

    /// Whether both numbers are finite and not negative.
    pub(crate) fn is_valid(&self) -> bool {
        [self.send_operations, self.receive_operations].iter().all(|cost| cost.is_finite() && *cost >= 0.0)
    }
}

/// How transfers over the same link meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkContention {
    /// They do not: each takes as long as it would alone.
    #[default]
    None,
    /// One at a time from one device to another, in the order in which they become ready, then by priority, then by datum. A link is
    /// free again when a transfer has arrived, or before that by what [`Delays`] say.
    Serial,
    /// As [`Self::Serial`], but between CPU devices, which read each other's memory, transfers do not meet.
    SerialCopies,
}

/// How much of a transfer's time passes after it has left its link: the start of a queue or the waking of a thread at its end, which
/// several data wait for at the same time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Delays {
    /// Row by row; none where every transfer keeps its link until it has arrived.
    times: Vec<f64>,
    devices: usize,
}

impl Delays {
    /// Of `devices` devices: `time(from, to)` is the last part of each transfer between the two in which others may have the link, in
    /// the unit of the costs, finite and not negative; of a shorter transfer all of it. `O(devices²)`.
    pub fn from_fn(devices: usize, time: impl Fn(DeviceId, DeviceId) -> f64) -> Self {
        let ids = (0..devices as u32).map(DeviceId);
        let times = ids.clone().flat_map(|from| ids.clone().map(move |to| (from, to))).map(|(from, to)| time(from, to));
        Delays { times: times.collect(), devices }
    }

    /// The time between leaving the link from one device to another and arriving.
    pub fn time(&self, from: DeviceId, to: DeviceId) -> f64 {
        self.times.get(from.index() * self.devices + to.index()).copied().unwrap_or(0.0)
    }

    /// Whether these are for a platform of so many devices, each finite and not negative.
    pub(crate) fn is_valid(&self, devices: usize) -> bool {
        self.times.is_empty() || (self.devices == devices && self.times.iter().all(|t| t.is_finite() && *t >= 0.0))
    }
}

/// How many times as long each device takes while another is at work.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Slowdowns {
    /// Row by row; none where no device takes anything from another.
    factors: Vec<f64>,
    devices: usize,
}

impl Slowdowns {
    /// Of `devices` devices: `factor(a, b)` is how many times as long `a` takes while `b` is at work, at least 1; what a device does
    /// to itself does not count. What several devices add to its time adds up. `O(devices²)`.
    pub fn from_fn(devices: usize, factor: impl Fn(DeviceId, DeviceId) -> f64) -> Self {
        let ids = (0..devices as u32).map(DeviceId);
        let pairs = ids.clone().flat_map(|a| ids.clone().map(move |b| (a, b)));
        let factors: Vec<f64> = pairs.map(|(a, b)| if a == b { 1.0 } else { factor(a, b) }).collect();
        if factors.iter().all(|factor| *factor == 1.0) { Slowdowns::default() } else { Slowdowns { factors, devices } }
    }

    /// Whether no device takes anything from another.
    pub fn is_none(&self) -> bool {
        self.factors.is_empty()
    }

    /// How many times as long `a` takes while only `b` is at work beside it.
    pub fn factor(&self, a: DeviceId, b: DeviceId) -> f64 {
        self.factors.get(a.index() * self.devices + b.index()).copied().unwrap_or(1.0)
    }

    /// How many times as long `device` takes beside those of the others that are `busy`. `O(devices)`.
    pub fn beside(&self, device: DeviceId, busy: impl Fn(DeviceId) -> bool) -> f64 {
        let row = self.factors.iter().skip(device.index() * self.devices).take(self.devices);
        let others = row.enumerate().filter(|(other, _)| *other != device.index() && busy(DeviceId(*other as u32)));
        1.0 + others.map(|(_, factor)| factor - 1.0).sum::<f64>()
    }

    /// Whether these are for a platform of so many devices, each finite and at least 1.
    pub(crate) fn is_valid(&self, devices: usize) -> bool {
        self.is_none()
            || (self.devices == devices && self.factors.iter().all(|factor| factor.is_finite() && *factor >= 1.0))
    }
}

/// The rules of a [`Problem`](crate::problem::Problem): strategies, simulation and checker all go by them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rules {
    /// What sends and receives cost; nothing by default.
    pub send_costs: SendCosts,
    /// How transfers meet; not at all by default.
    pub contention: LinkContention,
    /// What of transfers' times keeps no link; nothing by default.
    pub delays: Delays,
    /// What devices take from each other; nothing by default.
    pub slowdowns: Slowdowns,
}

impl Rules {
    /// Those of the thesis' evaluation: 10 operations a send, no contention, no slowdowns.
    pub const THESIS: Rules = Rules {
        send_costs: SendCosts::THESIS,
        contention: LinkContention::None,
        delays: Delays { times: Vec::new(), devices: 0 },
        slowdowns: Slowdowns { factors: Vec::new(), devices: 0 },
    };

    /// The same with transfers that meet so.
    pub fn with_contention(self, contention: LinkContention) -> Self {
        Rules { contention, ..self }
    }

    /// The same with transfers that leave their links so long before they have arrived.
    pub fn with_delays(self, delays: Delays) -> Self {
        Rules { delays, ..self }
    }

    /// The same with sends of such costs.
    pub fn with_send_costs(self, send_costs: SendCosts) -> Self {
        Rules { send_costs, ..self }
    }

    /// The same with devices that take so much from each other.
    pub fn with_slowdowns(self, slowdowns: Slowdowns) -> Self {
        Rules { slowdowns, ..self }
    }
}
