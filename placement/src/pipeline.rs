//! Mappings of a chain of stages to processors, for inputs that stream through the chain.
//!
//! A good mapping has a short *period* (time between two results) and a short *latency* (time of one input through the
//! chain). The model is that of Benoit and Robert, *Mapping skeleton workflows onto heterogeneous platforms*, 2007. The
//! paper and our messages call the inputs data sets.
//!
//! A chain of `n` stages is cut into intervals of consecutive stages. Each interval has processors of its own, which
//! share it in one of three ways. One processor runs it alone; several run it *replicated*, taking the inputs in turn;
//! or several run it *data-parallel*, each a part of every input. Interval `j` has `q_j` replicas. Let `c_j` be the
//! time of its slowest replica, and `t_j` the time of the slowest transfer from its processors to those of the next
//! interval. Then
//!
//! * the period is the maximum over `j` of the cycle of interval `j`. The cycle is `(t_{j−1} + c_j + t_j) / q_j` if a
//!   processor receives, computes or sends at any time ([`Communication::OnePort`], the paper's model). It is
//!   `max (t_{j−1}, c_j, t_j) / q_j` if a processor does all three at once ([`Communication::Overlapped`]);
//! * the latency is `t_0 + Σ (c_j + t_j)`.
//!
//! The time of a data-parallel group is the inverse of the sum of its rates. If the group does not divide a share `f_s`
//! of stage `s` ([`Stage::serial`]), the time on equal processors is `Σ t_s (f_s + (1 − f_s) / p)` (Amdahl, *Validity
//! of the single processor approach*, 1967). Its processors receive and send their parts one after the other. If they
//! share a memory, the datum is transferred as a whole ([`Processors::with_team`]).
//!
//! [`evaluate()`] computes both by formula, and [`mod@check`] simulates a mapping input by input. If all transfers
//! between intervals take the same time, both find the same period. The formula is an upper bound in two cases: if
//! replicas use links of different speeds, and if the slow replicas of several intervals never meet in one input.
//!
//! Parts of the module: a [`Problem`] is [`Stages`] on [`Processors`] under [`Rules`]. [`choose()`] returns a mapping
//! for a [`Goal`] within some milliseconds, with a bound. [`front()`] returns the Pareto front of period and latency,
//! and [`exact`] proves an optimum. [`heuristics()`] are the heuristics of the paper, for comparison in its
//! [`experiment`]s. [`mod@cut`] makes a chain of a graph, and [`document`] reads a chain from a file.
//!
//! ```
//! use anabranch_placement::pipeline::{Goal, Link, Problem, Processors, Rules, Stage, Stages, choose};
//!
//! // Four stages on a fast and three slow processors, no communication: slide 19 of the paper, with replication.
//! let stages = [14.0, 4.0, 2.0, 4.0].map(|work| Stage::of_work("stage", work, &[2.0, 1.0, 1.0, 1.0]));
//! let processors = Processors::uniform(["P1", "P2", "P3", "P4"].map(String::from).into(), Link::FREE);
//! let problem = Problem::new(Stages::new(stages.into(), vec![0; 5]), processors, Rules::default())?;
//! let chosen = choose(&problem, Goal::Period)?;
//! assert_eq!((chosen.performance.period, chosen.performance.latency, chosen.proven), (5.0, 19.0, true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Errors and gaps in the slides
//!
//! * The recurrence for the latency under a period divides by `(j − i) s_i`, although `P_i … P_j` are `j − i + 1`
//!   processors. Its initialisation divides by zero at `i = j`, which another line prevents. [`equal`] corrects it, and
//!   enumeration agrees with [`equal`].
//! * The third of three replicas takes inputs 3, 6, 9, not "3, 5, 9" (*Replication*).
//! * There is no formula for replication with communication. Several senders and receivers on different links can be
//!   slower than each of them alone, so that the mean over processors is not a feasible period. The slowest transfer of
//!   all pairs gives a feasible period.
//! * *Fixed intervals of length L* (H1 to H5) leaves `L` open. Here it is the number of stages divided by the number of
//!   processors, rounded up. This length leaves processors idle: 50 stages on 40 processors make 25 intervals.
//! * H7 does not say which of several processors takes an interval. Here the slowest processor that reaches as far
//!   takes it.

mod bound;
mod classes;
mod coarse;
mod estimate;
mod evaluate;
mod front;
mod goal;
mod greedy;
mod groups;
mod heuristics;
mod improve;
mod longest;
mod mapping;
mod one_to_one;
mod problem;
mod processors;
mod splitting;
mod stages;
mod weights;

pub mod check;
pub mod choose;
pub mod cut;
pub mod document;
pub mod equal;
pub mod exact;
pub mod experiment;

pub use bound::lower_bound;
pub use choose::{ChooseError, ChooseOptions, Chosen, choose, choose_with};
pub use evaluate::{Performance, evaluate};
pub use front::{best_of, front};
pub use goal::Goal;
pub use heuristics::{HEURISTICS, heuristics};
pub use mapping::{Interval, Mapping, MappingError, Sharing};
pub use problem::{Communication, MAX_PROCESSORS, MAX_STAGES, Parallel, Problem, ProblemError, Rules};
pub use processors::{Link, Port, Processors};
pub use stages::{Stage, StageKind, Stages};
