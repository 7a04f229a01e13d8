//! Streams of data sets through a chain of stages: which processors run which stages, so that results leave often (the *period*) and
//! each takes little time (the *latency*), after Benoit and Robert, *Mapping skeleton workflows onto heterogeneous platforms*, 2007.
//!
//! A chain of `n` stages is cut into intervals of consecutive stages. Each interval has processors of its own, which share it in one
//! of three ways: one processor runs it alone; several run it *replicated*, taking the data sets in turn; or several run it
//! *data-parallel*, each a part of every data set. With `q` replicas in interval `j`, `c_j` the time of its slowest replica, and `t_j` the
//! time of the slowest transfer from its processors to the next interval's,
//!
//! * the period is `max (t_{j−1} + c_j + t_j) / q_j` where a processor receives, computes or sends at any time
//!   ([`Communication::OnePort`], the paper's model), and `max (t_{j−1}, c_j, t_j) / q_j` where it does all three at a time
//!   ([`Communication::Overlapped`]);
//! * the latency is `t_0 + Σ (c_j + t_j)`.
//!
//! A data-parallel group takes the inverse of the sum of its rates; with a share `f_s` of stage `s` that it does not divide
//! ([`Stage::serial`]; Amdahl, *Validity of the single processor approach*, 1967), on equal processors `Σ t_s (f_s + (1 − f_s) / p)`. Its
//! processors get and give their parts one after the other, or a datum as one where they share a memory ([`Processors::with_team`]).
//!
//! [`evaluate()`] computes both and [`mod@check`] plays mappings out, data set by data set. For mappings whose intervals are joined by
//! transfers of one duration both say the same period; where replicas hang on different links, or the slow replicas of several intervals never
//! meet in one data set, the formula is an upper bound.
//!
//! The way through the module: a [`Problem`] is [`Stages`] on [`Processors`] under [`Rules`]; [`choose()`] gives a mapping for a [`Goal`] in
//! some milliseconds, with a bound; [`front()`] gives the mappings that none beats in both; [`exact`] proves the best; [`heuristics()`] are the
//! paper's, for comparison in its [`experiment`]s; [`mod@cut`] makes a chain of a graph, and [`document`] reads one from a file.
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
//! # Where the slides are wrong or silent
//!
//! * The recurrence for the latency under a period divides by `(j − i) s_i` where `P_i … P_j` are `j − i + 1` processors; its initialisation divides
//!   by zero at `i = j`, which another line saves. [`equal`] has it mended, and enumeration agrees with it.
//! * Of three replicas the third takes data sets 3, 6, 9, not "3, 5, 9" (*Replication*).
//! * With communication, replication has no formula. Several senders and receivers on different links can be slower than each of them
//!   alone, so that the mean over processors is no period that can be kept; the greatest transfer of all pairs gives one that can.
//! * *Fixed intervals of length L* (H1 to H5) leave `L` open; here it is the number of stages over that of processors, rounded up.
//!   That leaves processors idle: 50 stages on 40 processors make 25 intervals.
//! * H7 does not say which of several processors takes an interval; here it is the slowest that reaches as far.

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
