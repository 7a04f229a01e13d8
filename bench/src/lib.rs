//! Benchmarks of Anabranch, one question each; `bench/README.md` says how to run them and what was measured.
