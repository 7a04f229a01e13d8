//! Searches for sizes of open dimensions with which a model runs, from one attempt to the next that gets further.
//!
//! All open dimensions begin at 1. The first node that the sizes do not suit suggests what to try: shapes and numbers
//! from its error, and sizes of its constants. Then come usual sizes, first of one dimension, then of several.
//!
//! The search continues from the first attempt that reaches a later node, or else from one that the same node rejects
//! for another reason. Then it varies working sizes, one dimension at a time, to find sizes that fail. Attempts and
//! time are bounded; a single attempt is not interrupted.

use super::attempt::{Attempt, Elements, Outcome, hopeless, is_small};
use super::candidates::{Candidates, LADDER, input_in};
use anabranch::session::{Inputs, Session, SessionError};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// Most attempts, and most time after the first of them, for the search.
const MOST: (usize, Duration) = (600, Duration::from_secs(8));

/// Most attempts and time for varying sizes that work.
const MOST_VARIED: (usize, Duration) = (100, Duration::from_secs(3));

/// Most dimensions tried for an input that does not declare their number.
const MOST_RANK: usize = 4;

/// Most failed attempts that are reported.
const MOST_TOLD: usize = 4;

/// Sizes of all dimensions: a node that refuses all three refuses any size.
const UNLIKE: [usize; 3] = [1, 8, 224];

/// The result of a search.
pub(super) struct Found {
    /// The attempt that gets furthest.
    pub(super) best: Outcome,
    /// Earlier attempts that each failed at another node, with the reasons.
    pub(super) failed: Vec<(Attempt, String)>,
    /// Other sizes of each dimension, while other dimensions are as in the best attempt.
    pub(super) varied: BTreeMap<String, Varied>,
    pub(super) attempts: usize,
}

/// Sizes of one dimension that work or fail.
#[derive(Clone, Debug, Default)]
pub(super) struct Varied {
    pub(super) works: BTreeSet<usize>,
    /// Sizes that fail, with the first reason.
    pub(super) fails: BTreeMap<usize, String>,
}

/// A search in progress.
struct Search<'s> {
    session: &'s Session,
    given: &'s Inputs,
    seed: u64,
    /// Fingerprints of the attempts so far: the sizes themselves would take much memory.
    seen: BTreeSet<u64>,
    /// Attempts that only showed which nodes are hopeless: the bound counts them.
    checks: usize,
    failed: Vec<(Attempt, String)>,
    /// Nodes with reasons from which the search continued.
    reasons: BTreeSet<String>,
    begun: Instant,
}

impl Found {
    /// Searches for the sizes of the dimensions that neither the model nor the given inputs determine.
    ///
    /// # Errors
    /// If the given sizes contradict each other or the model.
    pub(super) fn search(session: &Session, given: &Inputs, seed: u64) -> Result<Self, SessionError> {
        let (seen, checks, failed, reasons) = Default::default();
        let mut search = Search { session, given, seed, seen, checks, failed, reasons, begun: Instant::now() };
        let mut best: Option<Outcome> = None;
        for first in beginnings(session, given)? {
            let reached = search.climb(first);
            let is_further = best.as_ref().is_none_or(|best| reached.reached > best.reached);
            best = if is_further { Some(reached) } else { best };
            if best.as_ref().is_some_and(Outcome::passes) {
                break;
            }
        }
        // There is always a first attempt.
        let best = best.unwrap_or_else(|| Outcome::of(session, given, seed, Attempt::default()));
        let varied = if best.passes() { search.vary(&best) } else { BTreeMap::new() };
        let attempts = search.seen.len();
        Ok(Self { best, failed: search.failed, varied, attempts })
    }
}

/// Returns the first attempts, with all open dimensions of size 1. If some input does not declare its number of
/// dimensions, there is one attempt for each number.
fn beginnings(session: &Session, given: &Inputs) -> Result<Vec<Attempt>, SessionError> {
    let (open, unranked) = (session.open_dims(given)?, session.unranked(given)?);
    let most = if unranked.is_empty() { 1 } else { MOST_RANK };
    let of_rank = |rank: usize| {
        let places = unranked.iter().flat_map(|name| (0..rank).map(move |axis| format!("{name}[{axis}]")));
        let sizes = open.iter().cloned().chain(places).map(|name| (name, 1)).collect();
        Attempt { sizes, ..Attempt::default() }
    };
    Ok((1..=most).map(of_rank).collect())
}

impl Search<'_> {
    /// Goes from one attempt to the next that gets further, and returns the last.
    fn climb(&mut self, first: Attempt) -> Outcome {
        let mut best = Outcome::of(self.session, self.given, self.seed, first);
        if !best.passes() && !best.attempt.sizes.is_empty() {
            let hopeless = hopeless(self.session, self.given, self.seed, &best.attempt, &UNLIKE);
            self.checks += UNLIKE.len();
            best = best.past(self.session, hopeless);
        }
        self.note(&best);
        self.reasons.extend(best.reason(self.session));
        let mut first: Option<Outcome> = None;
        while let Some(next) = self.step(&best) {
            let is_aside = next.reached == best.reached;
            let before = std::mem::replace(&mut best, next);
            first = if is_aside { first.or(Some(before)) } else { None };
        }
        // The first attempt that ends at a node has no superfluous sizes.
        first.unwrap_or(best)
    }

    /// Returns an attempt that gets further, otherwise one that the same node rejects for a new reason.
    fn step(&mut self, best: &Outcome) -> Option<Outcome> {
        if best.passes() {
            return None;
        }
        let candidates = Candidates::of(self.session, self.given, best)?;
        let mut aside = None;
        for attempt in candidates.attempts(best) {
            if self.seen.len() + self.checks >= MOST.0 || self.begun.elapsed() >= MOST.1 {
                break;
            }
            match self.tried(attempt) {
                Some(outcome) if outcome.reached > best.reached => return Some(outcome),
                // The node accepts an input that it rejected before.
                Some(outcome) if is_later(self.session, best, &outcome) && self.is_news(&outcome) => {
                    aside = Some(outcome);
                    break;
                }
                Some(outcome) if aside.is_none() && outcome.reached == best.reached && self.is_news(&outcome) => {
                    aside = Some(outcome);
                }
                _ => {}
            }
        }
        let aside = aside?;
        self.reasons.extend(aside.reason(self.session));
        Some(aside)
    }

    /// Whether a node rejects an attempt for a reason from which the search has not continued yet.
    fn is_news(&self, outcome: &Outcome) -> bool {
        outcome.reason(self.session).is_some_and(|reason| !self.reasons.contains(&reason))
    }

    /// Tries an attempt that was not tried before.
    fn tried(&mut self, attempt: Attempt) -> Option<Outcome> {
        if self.seen.contains(&fingerprint(&attempt)) || !is_small(self.session, self.given, &attempt) {
            return None;
        }
        let outcome = Outcome::of(self.session, self.given, self.seed, attempt);
        self.note(&outcome);
        Some(outcome)
    }

    fn note(&mut self, outcome: &Outcome) {
        self.seen.insert(fingerprint(&outcome.attempt));
        if let Some(obstacle) = outcome.unsuited(self.session).filter(|_| self.failed.len() < MOST_TOLD) {
            let node = format!("node `{}` ({}): ", obstacle.node, obstacle.operator);
            if !self.failed.iter().any(|(_, told)| told.starts_with(&node)) {
                self.failed.push((outcome.attempt.clone(), node + &obstacle.reason));
            }
        }
    }

    /// Tries the usual sizes of each dimension next to those that work.
    fn vary(&mut self, best: &Outcome) -> BTreeMap<String, Varied> {
        let begun = Instant::now();
        let mut varied: BTreeMap<String, Varied> = BTreeMap::new();
        let mut tried = 0;
        for (name, found) in &best.attempt.sizes {
            let own = varied.entry(name.clone()).or_default();
            own.works.insert(*found);
            for size in LADDER.into_iter().filter(|size| size != found) {
                if tried >= MOST_VARIED.0 || begun.elapsed() >= MOST_VARIED.1 {
                    break;
                }
                let mut attempt = best.attempt.clone();
                attempt.sizes.insert(name.clone(), size);
                if !is_small(self.session, self.given, &attempt) {
                    continue;
                }
                tried += 1;
                let outcome = Outcome::of(self.session, self.given, self.seed, attempt);
                match outcome.unsuited(self.session) {
                    None if outcome.passes() => {
                        own.works.insert(size);
                    }
                    Some(obstacle) => {
                        let reason = format!("node `{}` ({}): {}", obstacle.node, obstacle.operator, obstacle.reason);
                        own.fails.insert(size, reason);
                    }
                    None => {}
                }
            }
        }
        varied
    }
}

/// Whether a node rejects a later one of its inputs than before.
fn is_later(session: &Session, before: &Outcome, outcome: &Outcome) -> bool {
    let input = |outcome: &Outcome| outcome.unsuited(session).and_then(|obstacle| input_in(&obstacle.reason));
    outcome.reached == before.reached && input(before).zip(input(outcome)).is_some_and(|(one, other)| other > one)
}

/// Returns a number that identifies an attempt. If two attempts share a number, which happens once in 10^14 searches,
/// the second is not tried.
fn fingerprint(attempt: &Attempt) -> u64 {
    let mut hasher = DefaultHasher::new();
    attempt.hash(&mut hasher);
    hasher.finish()
}

/// Returns sizes and elements of an attempt in words.
pub(super) fn in_words(attempt: &Attempt) -> String {
    let sizes = attempt.sizes.iter().map(|(name, size)| format!("{name}={size}"));
    let elements =
        attempt.elements.iter().map(|(name, elements): (&String, &Elements)| format!("{name}: {}", elements.about()));
    sizes.chain(elements).collect::<Vec<_>>().join(", ")
}
