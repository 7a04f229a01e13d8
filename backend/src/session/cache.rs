//! A bounded map of values that are made on demand: each once, by whoever asks first, and the least recently used is forgotten first.
//!
//! Nothing is locked while a value is made: who asks for the same value waits for that one alone, and who asks for another goes on. A
//! value that could not be made is not kept: who waited for it gets the error, and who comes later tries again.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Values of type `V` by keys of type `K`; making one may fail with an `E`.
pub(super) struct Cache<K, V, E> {
    /// The most recently used last.
    entries: Mutex<Vec<Entry<K, V, E>>>,
    capacity: usize,
}

struct Entry<K, V, E> {
    key: K,
    making: Arc<Making<V, E>>,
}

/// A value that is being made, or was.
struct Making<V, E> {
    state: Mutex<State<V, E>>,
    ended: Condvar,
}

enum State<V, E> {
    Begun,
    Made(Arc<V>),
    Failed(E),
    /// Who made it panicked.
    Abandoned,
}

/// Ends the making of a value however its maker leaves.
struct Guard<'a, K, V, E> {
    cache: &'a Cache<K, V, E>,
    making: Arc<Making<V, E>>,
}

impl<K, V, E: Clone> Cache<K, V, E> {
    /// A cache that keeps at most `capacity` values, one at least.
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: Mutex::default(), capacity: capacity.max(1) }
    }

    /// The value whose key `is_it` knows, or else the one that `make` makes, kept under `key`. O(entries) comparisons, and no allocation
    /// where the value is there.
    ///
    /// # Errors
    /// If `make` fails, here or where the same value was being made.
    pub(super) fn get_or_make(
        &self,
        is_it: impl Fn(&K) -> bool,
        key: impl FnOnce() -> K,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        loop {
            let mut entries = lock(&self.entries);
            let Some(at) = entries.iter().rposition(|entry| is_it(&entry.key)) else {
                let state = Mutex::new(State::Begun);
                let making = Arc::new(Making { state, ended: Condvar::new() });
                entries.push(Entry { key: key(), making: Arc::clone(&making) });
                let gone = Self::trim(&mut entries, self.capacity);
                drop(entries);
                // To give a value back may take a while, too.
                drop(gone);
                return Guard { cache: self, making }.end(make());
            };
            entries[at..].rotate_left(1);
            let making = entries.last().map(|entry| Arc::clone(&entry.making));
            drop(entries);
            if let Some(ended) = making.and_then(|making| making.wait()) {
                return ended;
            }
        }
    }

    /// Forgets the least recently used value of those that `may_go`, and returns it.
    pub(super) fn forget_one(&self, may_go: impl Fn(&Arc<V>) -> bool) -> Option<Arc<V>> {
        let mut entries = lock(&self.entries);
        let made = |entry: &Entry<K, V, E>| match &*lock(&entry.making.state) {
            State::Made(value) if may_go(value) => Some(Arc::clone(value)),
            _ => None,
        };
        let (at, value) = entries.iter().enumerate().find_map(|(at, entry)| Some((at, made(entry)?)))?;
        entries.remove(at);
        Some(value)
    }

    /// How many values there are, with those that are being made.
    pub(super) fn len(&self) -> usize {
        lock(&self.entries).len()
    }

    /// Forgets what has gone unused longest. What is being made stays, since others may wait for it.
    fn trim(entries: &mut Vec<Entry<K, V, E>>, capacity: usize) -> Vec<Entry<K, V, E>> {
        let mut gone = Vec::new();
        while entries.len() > capacity {
            let made = |entry: &Entry<K, V, E>| matches!(*lock(&entry.making.state), State::Made(_));
            let Some(oldest) = entries.iter().position(made) else { break };
            gone.push(entries.remove(oldest));
        }
        gone
    }
}

impl<V, E: Clone> Making<V, E> {
    /// Waits until the value is made, or could not be; `None` if nobody makes it any more.
    fn wait(&self) -> Option<Result<Arc<V>, E>> {
        let mut state = lock(&self.state);
        loop {
            state = match &*state {
                State::Begun => self.ended.wait(state).unwrap_or_else(PoisonError::into_inner),
                State::Made(value) => return Some(Ok(Arc::clone(value))),
                State::Failed(error) => return Some(Err(error.clone())),
                State::Abandoned => return None,
            }
        }
    }
}

impl<K, V, E: Clone> Guard<'_, K, V, E> {
    fn end(self, made: Result<V, E>) -> Result<Arc<V>, E> {
        match made {
            Ok(value) => {
                let value = Arc::new(value);
                *lock(&self.making.state) = State::Made(Arc::clone(&value));
                Ok(value)
            }
            Err(error) => {
                *lock(&self.making.state) = State::Failed(error.clone());
                Err(error)
            }
        }
    }
}

impl<K, V, E> Drop for Guard<'_, K, V, E> {
    fn drop(&mut self) {
        let mut state = lock(&self.making.state);
        if matches!(*state, State::Begun) {
            *state = State::Abandoned;
        }
        let made = matches!(*state, State::Made(_));
        drop(state);
        if !made {
            lock(&self.cache.entries).retain(|entry| !Arc::ptr_eq(&entry.making, &self.making));
        }
        self.making.ended.notify_all();
    }
}

/// What a panicking thread left behind is whole: every update is one assignment, insertion or removal.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        cache.get_or_make(|known| *known == key, || key, || Ok(key.to_string())).expect("always made")
    }

    fn has(cache: &Numbers, key: u32) -> bool {
        cache.get_or_make(|known| *known == key, || key, || Err("not there".into())).is_ok()
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
            // Another value does not wait.
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
        let failed = cache.get_or_make(|key| *key == 1, || 1, || Err("broken".to_owned()));
        assert_eq!(failed.expect_err("it fails"), "broken");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            cache.get_or_make(|key| *key == 1, || 1, || panic!("a fault in the maker"))
        }));
        assert!(panicked.is_err() && cache.len() == 0);
        assert_eq!(*get(&cache, 1), "1");
    }
}
