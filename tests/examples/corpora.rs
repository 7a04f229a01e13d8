//! Writes the seeds of the fuzzers: `cargo run -p anabranch-tests --example corpora -- fuzz/corpus`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = std::env::args().nth(1).unwrap_or_else(|| "fuzz/corpus".into());
    anabranch_tests::fuzz::write_corpora(Path::new(&root))
}
