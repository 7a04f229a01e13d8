//! Files with arbitrary bytes are read or rejected: damaged copies of sound files, for a second per kind.

use anabranch_tests::fuzz::targets;
use arbtest::arbitrary::{Result, Unstructured};

/// Words that change the meaning of a text.
const WORDS: [&[u8]; 12] =
    [b"0", b"-1", b"1e999", b"18446744073709551615", b"null", b"[", b"{", b"\"", b"\\u0000", b",", b"\xff", b"\n"];

/// Returns a seed with some bytes changed, cut out, repeated or replaced by a word.
fn damaged(u: &mut Unstructured<'_>, seeds: &[Vec<u8>]) -> Result<Vec<u8>> {
    let mut bytes = u.choose(seeds)?.clone();
    for _ in 0..u.int_in_range(1..=6)? {
        let at = u.choose_index(bytes.len().max(1))?;
        let end = (at + u.int_in_range(0..=16usize)?).min(bytes.len());
        match u.int_in_range(0..=4)? {
            _ if bytes.is_empty() => return Ok(bytes),
            0 => bytes[at] ^= u.int_in_range(1..=255u8)?,
            1 => drop(bytes.drain(at..end)),
            2 => bytes.extend_from_within(at..end),
            3 => bytes.truncate(at),
            _ => drop(bytes.splice(at..end, u.choose(&WORDS)?.iter().copied())),
        }
    }
    Ok(bytes)
}

#[test]
fn damaged_files_of_every_kind_are_read_or_refused() {
    // Time and target, for longer searches: `ANABRANCH_FUZZ_MS=60000 ANABRANCH_FUZZ_TARGET=onnx`.
    let budget = std::env::var("ANABRANCH_FUZZ_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(800);
    let only = std::env::var("ANABRANCH_FUZZ_TARGET").ok();
    for target in targets().filter(|target| only.as_deref().is_none_or(|only| only == target.name)) {
        let seeds = (target.seeds)();
        seeds.iter().for_each(|seed| (target.run)(seed));
        let mut files = 0u64;
        arbtest::arbtest(|u| {
            (target.run)(&damaged(u, &seeds)?);
            files += 1;
            Ok(())
        })
        .budget_ms(budget);
        println!("{}: {files} files", target.name);
        assert!(files > 0, "{}", target.name);
    }
}
