//! Writes `docs/operators.md`.
//!
//!     cargo run -p anabranch-tests --example operators

use std::path::Path;

fn main() -> std::io::Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operators.md");
    std::fs::write(page, anabranch_tests::operators::page())
}
