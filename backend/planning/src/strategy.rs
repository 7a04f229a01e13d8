//! Names of placement strategies and of rules that order a device's ready nodes, as types.

use anabranch_placement_core::order as rules;
use anabranch_placement_core::place::{AUTO, EXACT, STRATEGIES, strategy_by_name};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

/// Name of [`Strategy::Split`].
const SPLIT: &str = "split";

/// Strategy that decides on which devices nodes run.
///
/// ```
/// # mod anabranch { pub use anabranch_planning::Strategy; }
/// use anabranch::Strategy;
/// assert_eq!("heft".parse(), Ok(Strategy::HEFT));
/// assert_eq!("gpu0".parse(), Ok(Strategy::Device("gpu0".into())));
/// assert_eq!("plans/edited.json".parse(), Ok(Strategy::PlanFile("plans/edited.json".into())));
/// assert!(Strategy::algorithms().any(|(name, _)| name == "mite"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// A placement algorithm, see [`Strategy::algorithm`].
    Algorithm(Algorithm),
    /// The algorithm `exact`, with a time limit: `exact:SECONDS`.
    Exact {
        /// Seconds after which its searches end.
        seconds: NonZeroU32,
    },
    /// Each part of a divided batch on its device: the default if a batch is divided.
    Split,
    /// All nodes on the device of this name if it has kernels for them, the rest on the host.
    Device(String),
    /// The placement of a plan file, which may have been edited.
    PlanFile(PathBuf),
}

/// Name of a known placement algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Algorithm(&'static str);

impl Strategy {
    /// Places each task where it finishes first, the most urgent task first (Topcuoglu 2002): the default.
    pub const HEFT: Self = Self::Algorithm(Algorithm("heft"));
    /// Runs all other algorithms, and a search from the best of them.
    pub const AUTO: Self = Self::Algorithm(Algorithm("auto"));
    /// Searches for a proven optimum, from the result of `auto` on.
    pub const EXACT: Self = Self::Algorithm(Algorithm("exact"));
    /// Places all nodes on the fastest CPU device.
    pub const CPU: Self = Self::Algorithm(Algorithm("cpu"));
    /// Places all nodes on the fastest GPU if it has kernels for them.
    pub const GPU: Self = Self::Algorithm(Algorithm("gpu"));

    /// Returns name and description of all algorithms.
    pub fn algorithms() -> impl Iterator<Item = (&'static str, &'static str)> {
        let searches = [
            (AUTO, "all of these, and a search from the best of them"),
            (EXACT, "auto, and then a search for a proven optimum; exact:SECONDS sets a time limit"),
        ];
        STRATEGIES.iter().copied().chain(searches)
    }

    /// Returns the algorithm of this name, if there is one: one of [`Strategy::algorithms`], or a variant of list
    /// schedulers such as `list:upward:eft:insertion`.
    pub fn algorithm(name: &str) -> Option<Self> {
        let found = strategy_by_name(name).map(|strategy| strategy.name());
        let found = found.filter(|&found| found == name || found.starts_with("list:"));
        found.map(|name| Self::Algorithm(Algorithm(name)))
    }

    /// Whether plans of this strategy may divide the rows of a batch. Plans of other strategies compute whole batches.
    pub fn may_divide(&self) -> bool {
        *self == Self::AUTO || matches!(self, Self::Split | Self::PlanFile(_))
    }
}

impl Algorithm {
    /// Returns the algorithm's name.
    pub fn name(self) -> &'static str {
        self.0
    }
}

impl Default for Strategy {
    fn default() -> Self {
        Self::HEFT
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Algorithm(algorithm) => f.write_str(algorithm.name()),
            Self::Exact { seconds } => write!(f, "{EXACT}:{seconds}"),
            Self::Split => f.write_str(SPLIT),
            Self::Device(name) => f.write_str(name),
            Self::PlanFile(path) => path.display().fmt(f),
        }
    }
}

impl FromStr for Strategy {
    type Err = Infallible;

    /// Parses a strategy: a text that ends in `.json` is a plan file, and the name of an algorithm is that algorithm.
    /// `exact:SECONDS` is `exact` with a time limit, and `split` the parts of a batch. Any other text is a device.
    ///
    /// Whether the device exists shows when a plan is made.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        if text.ends_with(".json") {
            return Ok(Self::PlanFile(text.into()));
        }
        if text == SPLIT {
            return Ok(Self::Split);
        }
        let seconds = text.strip_prefix(EXACT).and_then(|rest| rest.strip_prefix(':')?.parse().ok());
        let timed = seconds.map(|seconds| Self::Exact { seconds });
        Ok(Self::algorithm(text).or(timed).unwrap_or_else(|| Self::Device(text.to_owned())))
    }
}

/// Rule that selects among a device's ready nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Order {
    /// Longest path to the end first (path computation time; Laich 2017, section 5.3).
    #[default]
    Pct,
    /// Most work in successors first (maximum successor rank).
    Msr,
    /// First ready, first run.
    Fifo,
    /// Most freed memory and least new memory first, so that little is alive at a time.
    Frugal,
}

impl Order {
    /// All rules.
    pub const ALL: [Self; 4] = [Self::Pct, Self::Msr, Self::Fifo, Self::Frugal];

    /// Returns the rule for the simulation.
    pub(super) fn rule(self) -> Box<dyn rules::Order> {
        match self {
            Self::Pct => Box::new(rules::Pct),
            Self::Msr => Box::new(rules::Msr),
            Self::Fifo => Box::new(rules::Fifo),
            Self::Frugal => Box::new(rules::Frugal),
        }
    }
}

/// Formats the name used on the command line and in JSON.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|order| order.to_string() == text);
        let names = || Self::ALL.map(|order| order.to_string()).join(", ");
        found.ok_or_else(|| format!("there is no order `{text}`; the orders are {}", names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_placement_core::place::strategy_names;
    use rules::ORDERS;

    #[test]
    fn names_read_back() {
        for (name, _) in Strategy::algorithms() {
            assert!(strategy_by_name(name).is_some(), "{name}");
            assert_eq!(name.parse::<Strategy>().map(|strategy| strategy.to_string()), Ok(name.to_owned()));
            assert!(matches!(name.parse(), Ok(Strategy::Algorithm(_))), "{name}");
        }
        assert_eq!(Strategy::algorithms().count(), strategy_names().len());
        let variant = "list:est:path".parse::<Strategy>().map(|strategy| strategy.to_string());
        assert_eq!(variant.as_deref(), Ok("list:upward:est:insertion:path"));
        let timed = "exact:20".parse().expect("a strategy");
        assert!(matches!(timed, Strategy::Exact { seconds } if seconds.get() == 20));
        assert_eq!("exact:0".parse(), Ok(Strategy::Device("exact:0".into())));
        for constant in
            [Strategy::HEFT, Strategy::AUTO, Strategy::EXACT, Strategy::CPU, Strategy::GPU, Strategy::Split, timed]
        {
            assert_eq!(constant.to_string().parse(), Ok(constant));
        }
    }

    #[test]
    fn every_order_has_its_rule() {
        assert_eq!(Order::ALL.map(|order| order.to_string()), ORDERS);
        for order in Order::ALL {
            assert_eq!(order.rule().name(), order.to_string());
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        let error = "lifo".parse::<Order>().expect_err("there is none").to_string();
        assert!(error.contains("`lifo`") && error.contains("msr, fifo"), "{error}");
    }
}
