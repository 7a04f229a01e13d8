//! Early end of work whose caller was cancelled: lowering and planning, which do not know the options of a run.
//!
//! A caller says on its thread what ends the work, and the work looks between steps of at most one pass over its graph.
//! It then returns at once, with an error or with something unfinished: the caller asks [`is_due`] last, and uses
//! nothing of it if so.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;

/// Tells whether the work is to end. Once it has said so, it always does.
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

thread_local! {
    static ASKED: RefCell<Vec<Interrupt>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work`, which `interrupt` ends early, as do those that are set already.
pub fn under<T>(interrupt: Option<Interrupt>, work: impl FnOnce() -> T) -> T {
    /// Number of interrupts that the thread had before the work.
    struct Depth(usize);

    impl Drop for Depth {
        /// Forgets the work's interrupts, those that it set itself too, even if it panics.
        fn drop(&mut self) {
            ASKED.with_borrow_mut(|asked| asked.truncate(self.0));
        }
    }

    let _depth = Depth(ASKED.with_borrow(Vec::len));
    interrupt.into_iter().for_each(for_this_thread);
    work()
}

/// Lets `interrupt` end all work of this thread from now on. Within [`under`], it counts until that returns.
pub fn for_this_thread(interrupt: Interrupt) {
    ASKED.with_borrow_mut(|asked| asked.push(interrupt));
}

/// Whether the work of this thread is to end.
pub fn is_due() -> bool {
    /// The interrupts while they are asked: one may itself run work that looks, and must not be asked by that.
    struct Asked(Vec<Interrupt>);

    impl Drop for Asked {
        /// Sets them again, even if one panics.
        fn drop(&mut self) {
            ASKED.set(mem::take(&mut self.0));
        }
    }

    let asked = Asked(ASKED.take());
    asked.0.iter().any(|interrupt| interrupt())
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
            under(None, || for_this_thread(Arc::clone(&due)));
            under(Some(Arc::new(|| false)), || for_this_thread(due));
            assert!(!is_due());
            assert!(under(Some(Arc::new(|| under(Some(Arc::new(|| true)), is_due))), is_due));
            OUTER.store(true, Ordering::Relaxed);
            assert!(is_due() && under(None, is_due));
            assert!(!thread::spawn(is_due).join().expect("it asks alone"));
        });
        assert!(!is_due());
    }
}
