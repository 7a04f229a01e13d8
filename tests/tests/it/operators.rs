//! The page of operators matches the code.

use anabranch_tests::operators::page;

#[test]
fn the_page_of_operators_is_not_stale() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operators.md");
    let written = std::fs::read_to_string(path).expect("the page is committed");
    let page = page();
    let differs = written.lines().zip(page.lines()).find(|(written, made)| written != made);
    assert!(written == page, "`cargo run -p anabranch-tests --example operators` writes it anew; first: {differs:?}");
    assert!(page.contains("| Conv | 1, 11, 22 |") && page.contains("| FusedMatMul |"), "the tables are empty");
}
