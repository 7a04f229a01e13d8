//! What tests synchronise with: each primitive is the standard library's, or the model checker's if it was made between [`checked`] and the end
//! of what that returns. So the executor is compiled once for both. Threads of the checker are all played by the thread that runs it.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvError, SendError};
use std::sync::{LockResult, PoisonError, mpsc};
use std::time::Duration;

std::thread_local! {
    static CHECKED: Cell<bool> = const { Cell::new(false) };
}

/// Until this is dropped, what the calling thread makes is the checker's.
pub(crate) struct Checked(());

/// From now on what the calling thread makes is the checker's.
pub(crate) fn checked() -> Checked {
    CHECKED.with(|checked| checked.set(true));
    Checked(())
}

impl Drop for Checked {
    fn drop(&mut self) {
        CHECKED.with(|checked| checked.set(false));
    }
}

fn is_checked() -> bool {
    CHECKED.with(Cell::get)
}

/// One of the standard library, or the checker's.
#[derive(Clone, Copy)]
enum Either<S, C> {
    Standard(S),
    Checked(C),
}

use Either::{Checked as ByChecker, Standard};

/// The same of either.
macro_rules! either {
    ($either:expr, $inner:ident => $result:expr) => {
        match $either {
            Standard($inner) => $result,
            ByChecker($inner) => $result,
        }
    };
}

/// Atomics with these operations.
macro_rules! atomic {
    ($name:ident of $value:ty: $($operation:ident($($argument:ident: $type:ty),*) -> $result:ty),*) => {
        pub(crate) struct $name(Either<std::sync::atomic::$name, shuttle::sync::atomic::$name>);

        #[allow(dead_code, reason = "each has all that any is asked for")]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(match is_checked() {
                    true => ByChecker(shuttle::sync::atomic::$name::new(value)),
                    false => Standard(std::sync::atomic::$name::new(value)),
                })
            }

            $(pub(crate) fn $operation(&self, $($argument: $type),*) -> $result {
                either!(&self.0, atomic => atomic.$operation($($argument),*))
            })*
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(<$value>::default())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

macro_rules! atomic_number {
    ($name:ident of $value:ty) => {
        atomic! { $name of $value:
            load(order: Ordering) -> $value,
            store(value: $value, order: Ordering) -> (),
            swap(value: $value, order: Ordering) -> $value,
            fetch_add(value: $value, order: Ordering) -> $value,
            fetch_sub(value: $value, order: Ordering) -> $value,
            fetch_min(value: $value, order: Ordering) -> $value,
            fetch_max(value: $value, order: Ordering) -> $value,
            compare_exchange(old: $value, new: $value, order: Ordering, failed: Ordering) -> Result<$value, $value>
        }
    };
}

atomic! { AtomicBool of bool:
    load(order: Ordering) -> bool,
    store(value: bool, order: Ordering) -> (),
    swap(value: bool, order: Ordering) -> bool,
    compare_exchange(old: bool, new: bool, order: Ordering, failed: Ordering) -> Result<bool, bool>
}
atomic_number!(AtomicU32 of u32);
atomic_number!(AtomicU64 of u64);
atomic_number!(AtomicUsize of usize);

pub(crate) struct Mutex<T>(Either<std::sync::Mutex<T>, shuttle::sync::Mutex<T>>);

pub(crate) struct MutexGuard<'m, T>(Either<std::sync::MutexGuard<'m, T>, shuttle::sync::MutexGuard<'m, T>>);

/// A result with what it holds made another, poisoned or not.
fn mapped<A, B>(result: LockResult<A>, map: impl FnOnce(A) -> B) -> LockResult<B> {
    match result {
        Ok(held) => Ok(map(held)),
        Err(poisoned) => Err(PoisonError::new(map(poisoned.into_inner()))),
    }
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(match is_checked() {
            true => ByChecker(shuttle::sync::Mutex::new(value)),
            false => Standard(std::sync::Mutex::new(value)),
        })
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match &self.0 {
            Standard(mutex) => mapped(mutex.lock(), |guard| MutexGuard(Standard(guard))),
            ByChecker(mutex) => mapped(mutex.lock(), |guard| MutexGuard(ByChecker(guard))),
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        either!(&self.0, guard => guard)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        either!(&mut self.0, guard => guard)
    }
}

/// As [`crate::lock::lock`].
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Condvar(Either<std::sync::Condvar, shuttle::sync::Condvar>);

/// What a condition is given belongs to a mutex that was made before or after it.
const STRANGE: &str = "a condition and its mutex are made together";

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(match is_checked() {
            true => ByChecker(shuttle::sync::Condvar::new()),
            false => Standard(std::sync::Condvar::new()),
        })
    }

    pub(crate) fn wait<'m, T>(&self, guard: MutexGuard<'m, T>) -> LockResult<MutexGuard<'m, T>> {
        match (&self.0, guard.0) {
            (Standard(own), Standard(guard)) => mapped(own.wait(guard), |guard| MutexGuard(Standard(guard))),
            (ByChecker(own), ByChecker(guard)) => mapped(own.wait(guard), |guard| MutexGuard(ByChecker(guard))),
            _ => panic!("{STRANGE}"),
        }
    }

    /// The second says nothing.
    pub(crate) fn wait_timeout<'m, T>(
        &self,
        guard: MutexGuard<'m, T>,
        most: Duration,
    ) -> LockResult<(MutexGuard<'m, T>, ())> {
        match (&self.0, guard.0) {
            (Standard(own), Standard(guard)) => {
                mapped(own.wait_timeout(guard, most), |(guard, _)| (MutexGuard(Standard(guard)), ()))
            }
            (ByChecker(own), ByChecker(guard)) => {
                mapped(own.wait_timeout(guard, most), |(guard, _)| (MutexGuard(ByChecker(guard)), ()))
            }
            _ => panic!("{STRANGE}"),
        }
    }

    pub(crate) fn notify_one(&self) {
        either!(&self.0, own => own.notify_one());
    }
}

pub(crate) struct Sender<T>(Either<mpsc::Sender<T>, shuttle::sync::mpsc::Sender<T>>);

pub(crate) struct Receiver<T>(Either<mpsc::Receiver<T>, shuttle::sync::mpsc::Receiver<T>>);

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    if is_checked() {
        let (sender, receiver) = shuttle::sync::mpsc::channel();
        (Sender(ByChecker(sender)), Receiver(ByChecker(receiver)))
    } else {
        let (sender, receiver) = mpsc::channel();
        (Sender(Standard(sender)), Receiver(Standard(receiver)))
    }
}

impl<T> Sender<T> {
    pub(crate) fn send(&self, value: T) -> Result<(), SendError<T>> {
        either!(&self.0, sender => sender.send(value))
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Standard(sender) => Standard(sender.clone()),
            ByChecker(sender) => ByChecker(sender.clone()),
        })
    }
}

impl<T> Receiver<T> {
    pub(crate) fn recv(&self) -> Result<T, RecvError> {
        either!(&self.0, receiver => receiver.recv())
    }
}

impl<'r, T> IntoIterator for &'r Receiver<T> {
    type Item = T;
    type IntoIter = Box<dyn Iterator<Item = T> + 'r>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(std::iter::from_fn(|| self.recv().ok()))
    }
}

pub(crate) use thread::{JoinHandle, Thread, park, park_timeout, start_scoped};

/// As `std::thread`, as far as it is used.
pub(crate) mod thread {
    use super::*;

    pub(crate) struct Thread(Either<std::thread::Thread, shuttle::thread::Thread>);

    #[derive(PartialEq)]
    pub(crate) struct ThreadId(Result<std::thread::ThreadId, shuttle::thread::ThreadId>);

    impl Thread {
        pub(crate) fn id(&self) -> ThreadId {
            ThreadId(match &self.0 {
                Standard(thread) => Ok(thread.id()),
                ByChecker(thread) => Err(thread.id()),
            })
        }

        pub(crate) fn unpark(&self) {
            either!(&self.0, thread => thread.unpark());
        }
    }

    impl fmt::Debug for Thread {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Thread")
        }
    }

    pub(crate) fn current() -> Thread {
        Thread(match is_checked() {
            true => ByChecker(shuttle::thread::current()),
            false => Standard(std::thread::current()),
        })
    }

    pub(crate) fn park() {
        if is_checked() { shuttle::thread::park() } else { std::thread::park() }
    }

    /// To the checker, a sleep that the clock ends soon may end at any time. One of seconds counts as one that no clock ends, so that the checker
    /// finds the wake-ups that are lost.
    pub(crate) fn park_timeout(most: Duration) {
        match is_checked() {
            false => std::thread::park_timeout(most),
            true if most < Duration::from_secs(1) => shuttle::thread::yield_now(),
            true => shuttle::thread::park(),
        }
    }

    pub(crate) struct JoinHandle<T>(Either<std::thread::JoinHandle<T>, shuttle::thread::JoinHandle<T>>);

    impl<T> JoinHandle<T> {
        pub(crate) fn join(self) -> std::thread::Result<T> {
            either!(self.0, handle => handle.join())
        }

        pub(crate) fn thread(&self) -> Thread {
            Thread(match &self.0 {
                Standard(handle) => Standard(handle.thread().clone()),
                ByChecker(handle) => ByChecker(handle.thread().clone()),
            })
        }
    }

    #[derive(Default)]
    pub(crate) struct Builder(String);

    impl Builder {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn name(self, name: String) -> Self {
            Self(name)
        }

        pub(crate) fn spawn<T: Send + 'static>(
            self,
            work: impl FnOnce() -> T + Send + 'static,
        ) -> io::Result<JoinHandle<T>> {
            Ok(JoinHandle(match is_checked() {
                true => ByChecker(shuttle::thread::Builder::new().name(self.0).spawn(work)?),
                false => Standard(std::thread::Builder::new().name(self.0).spawn(work)?),
            }))
        }
    }

    /// A scope of threads, which end within it.
    #[derive(Clone, Copy)]
    pub(crate) struct Scope<'scope, 'env: 'scope>(
        Either<&'scope std::thread::Scope<'scope, 'env>, &'scope shuttle::thread::Scope<'scope, 'env>>,
    );

    pub(crate) fn scope<'env, T>(work: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> T) -> T {
        match is_checked() {
            true => shuttle::thread::scope(|scope| work(Scope(ByChecker(scope)))),
            false => std::thread::scope(|scope| work(Scope(Standard(scope)))),
        }
    }

    /// Starts a named thread that ends within the scope.
    pub(crate) fn start_scoped<'scope>(
        scope: Scope<'scope, '_>,
        name: String,
        work: impl FnOnce() + Send + 'scope,
    ) -> io::Result<()> {
        match scope.0 {
            Standard(scope) => std::thread::Builder::new().name(name).spawn_scoped(scope, work).map(drop),
            ByChecker(scope) => {
                scope.spawn(work);
                Ok(())
            }
        }
    }
}

/// A value of each thread.
pub(crate) struct LocalKey<T: 'static> {
    pub(crate) standard: &'static std::thread::LocalKey<T>,
    pub(crate) checked: &'static shuttle::thread::LocalKey<T>,
}

impl<T: 'static> LocalKey<T> {
    pub(crate) fn with<R>(&'static self, work: impl FnOnce(&T) -> R) -> R {
        if is_checked() { self.checked.with(work) } else { self.standard.with(work) }
    }
}

macro_rules! of_each_thread {
    (static $name:ident: $type:ty = const { $value:expr };) => {
        static $name: $crate::sync::LocalKey<$type> = {
            std::thread_local! { static STANDARD: $type = const { $value }; }
            shuttle::thread_local! { static CHECKED: $type = const { $value }; }
            $crate::sync::LocalKey { standard: &STANDARD, checked: &CHECKED }
        };
    };
}

pub(crate) use of_each_thread as thread_local;
