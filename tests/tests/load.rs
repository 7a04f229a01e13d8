//! Runs of mixed models and shapes by eight threads on shared sessions are all right, and leave no threads, files or
//! memory behind. The test is a separate executable because it counts the threads, files and memory of the whole
//! process.

use anabranch_tests::load::load;

#[test]
fn mixed_runs_by_eight_threads_are_right_and_leave_nothing_behind() {
    let report = load(3000, 8);
    assert_eq!((report.right, &report.wrong[..]), (3000, &[][..]));
    let warm = report.held[report.held.len() / 2].1;
    let last = report.held[report.held.len() - 1].1;
    assert!(last.threads <= warm.threads && last.files <= warm.files, "{warm:?}, then {last:?}");
    // No more than the system's rounding: half a kilobyte per run would be 750.
    assert!(last.resident <= warm.resident + 4096, "{:?}", report.held);
}
