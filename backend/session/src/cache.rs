//! A bounded map of values that are made on demand, each once, by the first caller. The least recently used value is
//! dropped first.
//!
//! Nothing is locked while a value is made: callers for the same value wait for that value alone, and callers for other
//! values proceed. Failures are not cached: waiting callers get the error, and later callers try again.

use anabranch_base::lock::lock;
use std::sync::{Arc, Mutex, OnceLock};

/// Values of type `V` by keys of type `K`; making a value may fail with an `E`.
pub(super) struct Cache<K, V, E> {
    /// Entries, the most recently used last.
    entries: Mutex<Vec<Entry<K, V, E>>>,
    capacity: usize,
}

struct Entry<K, V, E> {
    key: K,
    value: Slot<V, E>,
}

/// A value once it is made, or the reason of its failure. The caller that makes it keeps others waiting; if it panics,
/// the next of them makes it.
type Slot<V, E> = Arc<OnceLock<Result<Arc<V>, E>>>;

impl<K, V, E: Clone> Cache<K, V, E> {
    /// Creates a cache of at most `capacity` values, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: Mutex::default(), capacity: capacity.max(1) }
    }

    /// Returns the value whose key satisfies `is_it`, or else the result of `make`, cached under `key`.
    ///
    /// The result of `pause` is held while the value is awaited, and for the moment before it is made here. O(entries)
    /// comparisons, and no allocation if the value is there.
    ///
    /// # Errors
    /// If `make` fails, here or in the caller that was making the same value.
    pub(super) fn get_or_make<P>(
        &self,
        is_it: impl Fn(&K) -> bool,
        key: impl FnOnce() -> K,
        pause: impl FnOnce() -> P,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        let slot = self.slot(is_it, key);
        if let Some(known) = slot.get() {
            return known.clone();
        }
        let mut paused = Some(pause());
        let made = slot.get_or_init(|| {
            paused = None;
            make().map(Arc::new)
        });
        let made = made.clone();
        drop(paused);
        let mut entries = lock(&self.entries);
        if made.is_err() {
            entries.retain(|entry| !Arc::ptr_eq(&entry.value, &slot));
        }
        let gone = Self::trim(&mut entries, self.capacity);
        drop(entries);
        // Dropping a value may take a while, and nothing is locked meanwhile.
        drop(gone);
        made
    }

    /// Returns the slot of a value, which becomes the most recently used.
    fn slot(&self, is_it: impl Fn(&K) -> bool, key: impl FnOnce() -> K) -> Slot<V, E> {
        let mut entries = lock(&self.entries);
        match entries.iter().rposition(|entry| is_it(&entry.key)) {
            Some(at) => entries[at..].rotate_left(1),
            None => entries.push(Entry { key: key(), value: Slot::default() }),
        }
        Arc::clone(&entries[entries.len() - 1].value)
    }

    /// Drops the least recently used value that `may_go`, and returns it.
    pub(super) fn forget_one(&self, may_go: impl Fn(&Arc<V>) -> bool) -> Option<Arc<V>> {
        let mut entries = lock(&self.entries);
        let at = entries.iter().position(|entry| entry.made().is_some_and(&may_go))?;
        entries.remove(at).made().cloned()
    }

    /// Returns the number of values, including those that are being made.
    pub(super) fn len(&self) -> usize {
        lock(&self.entries).iter().filter(|entry| entry.is_wanted()).count()
    }

    /// Drops the longest unused values, first those that no caller holds. Values in the making stay, because callers
    /// may wait for them.
    fn trim(entries: &mut Vec<Entry<K, V, E>>, capacity: usize) -> Vec<Entry<K, V, E>> {
        entries.retain(Entry::is_wanted);
        let mut gone = Vec::new();
        while entries.len() > capacity {
            let idle = |entry: &Entry<K, V, E>| entry.made().is_some_and(|value| Arc::strong_count(value) == 1);
            let oldest =
                entries.iter().position(idle).or_else(|| entries.iter().position(|entry| entry.made().is_some()));
            let Some(oldest) = oldest else { break };
            gone.push(entries.remove(oldest));
        }
        gone
    }
}

impl<K, V, E> Entry<K, V, E> {
    fn made(&self) -> Option<&Arc<V>> {
        self.value.get()?.as_ref().ok()
    }

    /// Whether the value is made or being made; false after a panic in between.
    fn is_wanted(&self) -> bool {
        self.made().is_some() || Arc::strong_count(&self.value) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    type Numbers = Cache<u32, String, String>;

    fn get(cache: &Numbers, key: u32) -> Arc<String> {
        cache.get_or_make(|known| *known == key, || key, || (), || Ok(key.to_string())).expect("always made")
    }

    fn has(cache: &Numbers, key: u32) -> bool {
        cache.get_or_make(|known| *known == key, || key, || (), || Err("not there".into())).is_ok()
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let cache = Numbers::new(2);
        get(&cache, 1);
        get(&cache, 2);
        get(&cache, 1);
        get(&cache, 3);
        assert_eq!(cache.len(), 2);
        assert!(has(&cache, 1) && has(&cache, 3) && !has(&cache, 2));
        assert_eq!(cache.forget_one(|value| **value != "1").as_deref(), Some(&"3".to_owned()));
        assert!(cache.forget_one(|value| **value == "3").is_none());
        assert!(has(&cache, 1));
    }

    #[test]
    fn a_value_is_made_once_while_others_go_on() {
        let cache = Numbers::new(4);
        let made = AtomicUsize::new(0);
        let (begun, has_begun) = channel();
        let (go_on, may_go_on) = channel::<()>();
        thread::scope(|scope| {
            let cache = &cache;
            let made = &made;
            scope.spawn(move || {
                let slow = cache.get_or_make(
                    |key| *key == 1,
                    || 1,
                    || (),
                    || {
                        begun.send(()).expect("the test waits");
                        may_go_on.recv().expect("the test sends");
                        made.fetch_add(1, Ordering::Relaxed);
                        Ok("slow".into())
                    },
                );
                assert_eq!(*slow.expect("made"), "slow");
            });
            has_begun.recv().expect("it begins");
            // A caller for another value does not wait.
            assert_eq!(*get(cache, 2), "2");
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| (*get(cache, 1)).clone())).collect();
            go_on.send(()).expect("it waits");
            for thread in waiting {
                assert_eq!(thread.join().expect("no panic"), "slow");
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_failure_is_not_kept() {
        let cache = Numbers::new(4);
        let failed = cache.get_or_make(|key| *key == 1, || 1, || (), || Err("broken".to_owned()));
        assert_eq!(failed.expect_err("it fails"), "broken");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            cache.get_or_make(|key| *key == 1, || 1, || (), || panic!("a fault in the maker"))
        }));
        assert!(panicked.is_err() && cache.len() == 0);
        assert_eq!(*get(&cache, 1), "1");
    }
}
