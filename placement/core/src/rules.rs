//! Rules beyond the times of tasks and transfers: costs of sends, contention of links, and slowdowns between devices.

use crate::platform::DeviceId;

/// Costs of sends and receives on the devices at their ends, in operations (divided by the device's speed).
///
/// The default is zero. In the thesis' evaluation a send takes 10 operations. A receive takes no time there, but counts
/// 10 operations in path computation times: [`SendCosts::THESIS`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SendCosts {
    /// Operations of a send on the sender.
    pub send_operations: f64,
    /// Operations of a receive in path computation times. A receive never takes time.
    pub receive_operations: f64,
}

impl SendCosts {
    /// Costs of the thesis' evaluation (Laich 2017, sections 2.4 and 2.5; the figures are those of its experiments).
    pub const THESIS: SendCosts = SendCosts { send_operations: 10.0, receive_operations: 10.0 };

    /// Whether both numbers are finite and not negative.
    pub(crate) fn is_valid(&self) -> bool {
        [self.send_operations, self.receive_operations].iter().all(|cost| cost.is_finite() && *cost >= 0.0)
    }
}

/// Contention of transfers over one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkContention {
    /// No contention: each transfer takes as long as it would alone.
    #[default]
    None,
    /// One transfer at a time per direction, in the order in which transfers become ready, then by priority, then by
    /// datum. A link is free again when a transfer has arrived, or earlier by the time in [`Delays`]. If the platform
    /// has a [`Network`](crate::network::Network), its links carry one transfer at a time instead.
    Serial,
    /// As [`Self::Serial`], but without contention between CPU devices, which read each other's memory.
    SerialCopies,
}

/// Part of each transfer's time that passes after it has left its link. It is the start of a queue or the waking of a
/// thread at the receiver, which several data can share.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Delays {
    /// Times by sender, then receiver; empty if every transfer occupies its link until it has arrived.
    times: Vec<f64>,
    devices: usize,
}

impl Delays {
    /// Creates the delays of `devices` devices.
    ///
    /// `time(from, to)` is the last part of each transfer between the two devices, in which other transfers may use the
    /// link. It is in the unit of the costs, finite and not negative. If a transfer is shorter, the delay covers all of
    /// it. `O(devices²)`.
    pub fn from_fn(devices: usize, time: impl Fn(DeviceId, DeviceId) -> f64) -> Self {
        let ids = (0..devices as u32).map(DeviceId);
        let times = ids.clone().flat_map(|from| ids.clone().map(move |to| (from, to))).map(|(from, to)| time(from, to));
        Delays { times: times.collect(), devices }
    }

    /// Returns the time between leaving the link from one device to another and arriving.
    pub fn time(&self, from: DeviceId, to: DeviceId) -> f64 {
        self.times.get(from.index() * self.devices + to.index()).copied().unwrap_or(0.0)
    }

    /// Whether the delays are for a platform of `devices` devices, each finite and not negative.
    pub(crate) fn is_valid(&self, devices: usize) -> bool {
        self.times.is_empty() || (self.devices == devices && self.times.iter().all(|t| t.is_finite() && *t >= 0.0))
    }
}

/// Factors by which devices slow each other down while both are busy.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Slowdowns {
    /// Factors by slowed device, then busy device; empty if no device slows another down.
    factors: Vec<f64>,
    devices: usize,
}

impl Slowdowns {
    /// Creates the slowdowns of `devices` devices.
    ///
    /// `factor(a, b)`, at least 1, multiplies the time of `a` while `b` is busy; the factor of a device with itself is
    /// ignored. Extra times from several devices add up. `O(devices²)`.
    pub fn from_fn(devices: usize, factor: impl Fn(DeviceId, DeviceId) -> f64) -> Self {
        let ids = (0..devices as u32).map(DeviceId);
        let pairs = ids.clone().flat_map(|a| ids.clone().map(move |b| (a, b)));
        let factors: Vec<f64> = pairs.map(|(a, b)| if a == b { 1.0 } else { factor(a, b) }).collect();
        if factors.iter().all(|factor| *factor == 1.0) { Slowdowns::default() } else { Slowdowns { factors, devices } }
    }

    /// Whether no device slows another down.
    pub fn is_none(&self) -> bool {
        self.factors.is_empty()
    }

    /// Returns the factor on the time of `a` while only `b` is busy.
    pub fn factor(&self, a: DeviceId, b: DeviceId) -> f64 {
        self.factors.get(a.index() * self.devices + b.index()).copied().unwrap_or(1.0)
    }

    /// Returns the factor on the time of `device` while the devices that satisfy `busy` are busy. `O(devices)`.
    pub fn beside(&self, device: DeviceId, busy: impl Fn(DeviceId) -> bool) -> f64 {
        let row = self.factors.iter().skip(device.index() * self.devices).take(self.devices);
        let others = row.enumerate().filter(|(other, _)| *other != device.index() && busy(DeviceId(*other as u32)));
        1.0 + others.map(|(_, factor)| factor - 1.0).sum::<f64>()
    }

    /// Whether the slowdowns are for a platform of `devices` devices, each finite and at least 1.
    pub(crate) fn is_valid(&self, devices: usize) -> bool {
        self.is_none()
            || (self.devices == devices && self.factors.iter().all(|factor| factor.is_finite() && *factor >= 1.0))
    }
}

/// Rules of a [`Problem`](crate::problem::Problem), which strategies, simulation and checker all follow.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rules {
    /// Costs of sends and receives (default: zero).
    pub send_costs: SendCosts,
    /// Contention of links (default: none).
    pub contention: LinkContention,
    /// Part of a transfer's time that does not occupy its link (default: zero).
    pub delays: Delays,
    /// Slowdowns between devices (default: none).
    pub slowdowns: Slowdowns,
}

impl Rules {
    /// Rules of the thesis' evaluation: 10 operations per send, no contention, no slowdowns.
    pub const THESIS: Rules = Rules {
        send_costs: SendCosts::THESIS,
        contention: LinkContention::None,
        delays: Delays { times: Vec::new(), devices: 0 },
        slowdowns: Slowdowns { factors: Vec::new(), devices: 0 },
    };

    /// Sets the contention of links (default: none).
    pub fn with_contention(self, contention: LinkContention) -> Self {
        Rules { contention, ..self }
    }

    /// Sets the time between leaving a link and arriving (default: zero).
    pub fn with_delays(self, delays: Delays) -> Self {
        Rules { delays, ..self }
    }

    /// Sets the costs of sends and receives (default: zero).
    pub fn with_send_costs(self, send_costs: SendCosts) -> Self {
        Rules { send_costs, ..self }
    }

    /// Sets the slowdowns between devices (default: none).
    pub fn with_slowdowns(self, slowdowns: Slowdowns) -> Self {
        Rules { slowdowns, ..self }
    }
}
