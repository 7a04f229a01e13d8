//! Work that ends early once nobody wants its result: lowering and planning, which have no run's options at hand.
//!
//! A caller says on its thread what ends the work, and the work looks between steps of at most one pass over its graph.
//! It then returns at once, with an error or with something unfinished: the caller asks [`is_due`] last, and uses
//! nothing of it if so.

use std::cell::RefCell;
use std::sync::Arc;

/// Tells whether the work is to end. Once it has said so, it always does.
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

thread_local! {
    static ASKED: RefCell<Vec<Interrupt>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work`, which `interrupt` ends early, as do those that are set already.
pub fn under<T>(interrupt: Option<Interrupt>, work: impl FnOnce() -> T) -> T {
    /// Forgets an interrupt, even if the work panics.
    struct Set;

    impl Drop for Set {
        fn drop(&mut self) {
            ASKED.with_borrow_mut(Vec::pop);
        }
    }

    let _set = interrupt.map(|interrupt| {
        for_this_thread(interrupt);
        Set
    });
    work()
}

/// Lets `interrupt` end all later work of this thread.
pub fn for_this_thread(interrupt: Interrupt) {
    ASKED.with_borrow_mut(|asked| asked.push(interrupt));
}

/// Whether the work of this thread is to end.
pub fn is_due() -> bool {
    ASKED.with_borrow(|asked| asked.iter().any(|interrupt| interrupt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[test]
    fn an_interrupt_counts_on_its_thread_while_its_work_lasts() {
        static OUTER: AtomicBool = AtomicBool::new(false);
        let outer: Interrupt = Arc::new(|| OUTER.load(Ordering::Relaxed));
        let due: Interrupt = Arc::new(|| true);
        assert!(!is_due());
        under(Some(outer), || {
            assert!(under(Some(Arc::clone(&due)), is_due));
            assert!(!is_due() && !under(None, is_due));
            let panicked = catch_unwind(|| under(Some(Arc::new(|| true)), || panic!("of the work")));
            assert!(panicked.is_err() && !is_due());
            OUTER.store(true, Ordering::Relaxed);
            assert!(is_due() && under(None, is_due));
            assert!(!thread::spawn(is_due).join().expect("it asks alone"));
        });
        assert!(!is_due());
    }
}
