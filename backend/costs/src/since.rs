//! Additions to costs since they were read: only these are merged into costs that other processes have written
//! meanwhile.

use super::history::{Cold, History};
use super::link::LinkCosts;
use super::machine::{DeviceCosts, MachineCosts, NodeCosts, RunCosts, Slowdown};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Data that only grows.
pub(super) trait Since: Sized {
    /// Returns the additions since the state `before`, if there are any.
    fn since(&self, before: &Self) -> Option<Self>;
}

impl<K: Ord + Clone, V: Since + Clone> Since for BTreeMap<K, V> {
    fn since(&self, before: &Self) -> Option<Self> {
        let added = self.iter().filter_map(|(key, value)| {
            let added = match before.get(key) {
                Some(before) => value.since(before)?,
                None => value.clone(),
            };
            Some((key.clone(), added))
        });
        let added: Self = added.collect();
        (!added.is_empty()).then_some(added)
    }
}

impl<T: Since> Since for Box<T> {
    fn since(&self, before: &Self) -> Option<Self> {
        (**self).since(before).map(Box::new)
    }
}

/// Two pointers to one object are equal without a comparison.
impl<T: Since> Since for Arc<T> {
    fn since(&self, before: &Self) -> Option<Self> {
        if Arc::ptr_eq(self, before) { None } else { (**self).since(before).map(Arc::new) }
    }
}

impl Since for History {
    /// Returns the added samples. Added samples that are no longer among the recent ones are only counted, and assumed
    /// to be like the recent ones.
    fn since(&self, before: &Self) -> Option<Self> {
        let all = |history: &Self| history.count.saturating_add(history.faded);
        let added = all(self).saturating_sub(all(before));
        let cold = self.cold.since(&before.cold);
        if added == 0 && cold.is_none() {
            return None;
        }
        let newest = self.recent.len() - self.recent.len().min(usize::try_from(added).unwrap_or(usize::MAX));
        let mut new = Self { measured_at: self.measured_at, cold: cold.unwrap_or_default(), ..Self::default() };
        self.recent[newest..].iter().for_each(|time| new.sum(*time));
        new.recent = self.recent[newest..].to_vec();
        if new.count > 0 {
            new.count = added.min(self.count).max(new.count);
            new.faded = added - new.count;
            // The minimum may come from a sample that is no longer known, but it is the minimum of both histories in
            // any case.
            new.min = new.min.min(self.min);
        }
        Some(new)
    }
}

impl Since for Cold {
    fn since(&self, before: &Self) -> Option<Self> {
        let count = self.count.checked_sub(before.count).filter(|count| *count > 0)?;
        let sum = self.mean * self.count as f64 - before.mean * before.count as f64;
        let mean = (sum / count as f64).max(self.min);
        Some(Self { count, mean, min: self.min })
    }
}

impl Since for LinkCosts {
    /// Includes the affine law, whether or not it has changed.
    fn since(&self, before: &Self) -> Option<Self> {
        let added = |now: &BTreeMap<u64, History>, before| now.since(before).unwrap_or_default();
        let new = Self {
            sizes: added(&self.sizes, &before.sizes),
            streamed: added(&self.streamed, &before.streamed),
            reads: added(&self.reads, &before.reads),
            ..Self::affine(self.latency, self.rate)
        };
        (self != before).then_some(new)
    }
}

impl Since for NodeCosts {
    fn since(&self, before: &Self) -> Option<Self> {
        let versions = self.versions.since(&before.versions)?;
        Some(Self { versions, ..self.clone() })
    }
}

impl Since for DeviceCosts {
    fn since(&self, before: &Self) -> Option<Self> {
        let new = Self {
            rates: self.rates.filter(|rates| before.rates != Some(*rates)),
            nodes: self.nodes.since(&before.nodes).unwrap_or_default(),
            encode: self.encode.since(&before.encode).unwrap_or_default(),
            dispatch: self.dispatch.since(&before.dispatch).unwrap_or_default(),
            misses: self.misses.since(&before.misses).unwrap_or_default(),
        };
        (new != Self::default()).then_some(new)
    }
}

impl Since for RunCosts {
    fn since(&self, before: &Self) -> Option<Self> {
        let new = Self {
            start: self.start.since(&before.start).unwrap_or_default(),
            join: self.join.since(&before.join).unwrap_or_default(),
            finish: self.finish.since(&before.finish).unwrap_or_default(),
            wake: self.wake.since(&before.wake).unwrap_or_default(),
        };
        (new != Self::default()).then_some(new)
    }
}

impl Since for Slowdown {
    /// Returns the added ratios.
    fn since(&self, before: &Self) -> Option<Self> {
        let old = (0..=self.recent.len()).rev().find(|old| before.recent.ends_with(&self.recent[..*old]))?;
        (old < self.recent.len()).then(|| Self { recent: self.recent[old..].to_vec() })
    }
}

impl Since for u32 {
    fn since(&self, before: &Self) -> Option<Self> {
        (self != before).then_some(*self)
    }
}

impl Since for MachineCosts {
    fn since(&self, before: &Self) -> Option<Self> {
        let new = Self {
            devices: self.devices.since(&before.devices).unwrap_or_default(),
            links: self.links.since(&before.links).unwrap_or_default(),
            runs: self.runs.since(&before.runs).unwrap_or_default(),
            slowdowns: self.slowdowns.since(&before.slowdowns).unwrap_or_default(),
            calibrated: self.calibrated.since(&before.calibrated).unwrap_or_default(),
        };
        (!new.is_empty()).then_some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;

    fn add(history: &mut History, times: &[f64]) {
        for (at, nanoseconds) in times.iter().enumerate() {
            assert!(history.add(Sample { nanoseconds: *nanoseconds, cold: false, at: at as u64 }));
        }
    }

    #[test]
    fn what_was_added_merged_to_what_was_there_is_what_there_is() {
        for count in [1, 3, 16, 40] {
            let mut before = History::default();
            add(&mut before, &[100.0, 101.0, 99.0]);
            let mut after = before.clone();
            add(&mut after, &vec![100.5; count]);
            after.add(Sample { nanoseconds: 300.0, cold: true, at: 9 });
            let mut merged = before.clone();
            merged.merge(&after.since(&before).expect("more"));
            assert_eq!((merged.count, merged.recent.clone()), (after.count, after.recent.clone()));
            assert!((merged.mean - after.mean).abs() < 1e-9 * after.mean);
            assert_eq!((merged.cold, merged.is_sane()), (after.cold, true));
        }
    }

    #[test]
    fn the_least_is_kept_behind_many_others() {
        let mut before = History::default();
        add(&mut before, &[6.0; 3]);
        let mut after = before.clone();
        add(&mut after, &[5.0]);
        add(&mut after, &[6.1; 40]);
        let mut merged = before.clone();
        merged.merge(&after.since(&before).expect("more"));
        assert_eq!((merged.min, merged.is_sane()), (5.0, true));
    }

    #[test]
    fn nothing_new_is_nothing_and_a_change_of_the_machine_is_not_lost() {
        let mut before = History::default();
        add(&mut before, &[100.0; 5]);
        assert_eq!(before.since(&before), None);
        let mut after = before.clone();
        add(&mut after, &[500.0; 6]);
        assert!(after.faded > 0, "the machine has become slower");
        let new = after.since(&before).expect("more");
        assert_eq!((new.count + new.faded, new.recent), (6, vec![500.0; 6]));
    }
}
