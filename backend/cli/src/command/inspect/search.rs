//! Looks for sizes of open dimensions with which a model runs: from one attempt to the next that gets further.
//!
//! All open dimensions begin at 1. The first node that the sizes do not suit says what to try: shapes and numbers that its refusal names, sizes of
//! its constants, then usual sizes, first of one dimension, then of several. The search goes on from the first attempt that reaches a later node,
//! or else from one that the same node refuses for another reason. Then it varies what works, one dimension at a time, to tell which sizes fail.
//! Attempts and time are bounded; one attempt is not interrupted.

use super::attempt::{Attempt, Elements, Outcome, hopeless, is_small};
use super::candidates::{Candidates, LADDER, input_in};
use anabranch::session::{Inputs, Session, SessionError};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// Attempts, and time after the first of them, until the search is given up …
const MOST: (usize, Duration) = (600, Duration::from_secs(8));

/// … and until no more sizes are tried beside those that work.
const MOST_VARIED: (usize, Duration) = (100, Duration::from_secs(3));

/// Dimensions of an input that does not say how many it has.
const MOST_RANK: usize = 4;

/// Failed attempts that are told.
const MOST_TOLD: usize = 4;

/// Sizes of all dimensions that show which nodes refuse whatever they are given.
const UNLIKE: [usize; 3] = [1, 8, 224];

/// The result of a search.
pub(super) struct Found {
    /// The attempt that gets furthest.
    pub(super) best: Outcome,
    /// Earlier attempts that failed at a node of their own, with the reason.
    pub(super) failed: Vec<(Attempt, String)>,
    /// Other sizes of each dimension, the others being as in the best attempt.
    pub(super) varied: BTreeMap<String, Varied>,
    pub(super) attempts: usize,
}

/// Sizes of one dimension.
#[derive(Clone, Debug, Default)]
pub(super) struct Varied {
    pub(super) works: BTreeSet<usize>,
    /// With the first reason.
    pub(super) fails: BTreeMap<usize, String>,
}

/// A search under way.
struct Search<'s> {
    session: &'s Session,
    given: &'s Inputs,
    seed: u64,
    /// Fingerprints of the attempts so far: sizes of many dimensions take much memory.
    seen: BTreeSet<u64>,
    /// Attempts that only showed which nodes are hopeless: the bound counts them.
    checks: usize,
    failed: Vec<(Attempt, String)>,
    /// Nodes with reasons that attempts were gone on from.
    reasons: BTreeSet<String>,
    begun: Instant,
}

impl Found {
    /// Searches for the sizes of the dimensions that neither the model nor the given inputs tell.
    ///
    /// # Errors
    /// If the sizes that are given contradict each other or the model.
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
        // There is always a first.
        let best = best.unwrap_or_else(|| Outcome::of(session, given, seed, Attempt::default()));
        let varied = if best.passes() { search.vary(&best) } else { BTreeMap::new() };
        let attempts = search.seen.len();
        Ok(Self { best, failed: search.failed, varied, attempts })
    }
}

/// All open dimensions of size 1: with each number of dimensions in turn where some input does not say how many it has.
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
    /// From one attempt to the next that gets further, to the last of them.
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
        // The first of the attempts that end at one node has no useless sizes.
        first.unwrap_or(best)
    }

    /// An attempt that gets further, or else one that the same node refuses for a reason of its own, as often as there are new reasons.
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
                // The node takes what it refused before.
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

    /// Whether a node refuses an attempt for a reason that was not gone on from.
    fn is_news(&self, outcome: &Outcome) -> bool {
        outcome.reason(self.session).is_some_and(|reason| !self.reasons.contains(&reason))
    }

    /// Tries what was not tried before.
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

    /// The usual sizes of each dimension, beside what works.
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

/// Whether a node refuses a later one of its inputs than before.
fn is_later(session: &Session, before: &Outcome, outcome: &Outcome) -> bool {
    let input = |outcome: &Outcome| outcome.unsuited(session).and_then(|obstacle| input_in(&obstacle.reason));
    outcome.reached == before.reached && input(before).zip(input(outcome)).is_some_and(|(one, other)| other > one)
}

/// A number that tells attempts apart. If two have one, which happens once in 10^14 searches, the second is not tried.
fn fingerprint(attempt: &Attempt) -> u64 {
    let mut hasher = DefaultHasher::new();
    attempt.hash(&mut hasher);
    hasher.finish()
}

/// Sizes and elements of an attempt in words.
pub(super) fn in_words(attempt: &Attempt) -> String {
    let sizes = attempt.sizes.iter().map(|(name, size)| format!("{name}={size}"));
    let elements =
        attempt.elements.iter().map(|(name, elements): (&String, &Elements)| format!("{name}: {}", elements.about()));
    sizes.chain(elements).collect::<Vec<_>>().join(", ")
}
