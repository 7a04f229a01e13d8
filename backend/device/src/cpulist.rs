//! Lists of processing units in Linux's format: `0-3,8,10-11`.
#![forbid(unsafe_code)]

/// Indices from here on are rejected, so that a damaged file cannot create a list of any length.
const INDEX_LIMIT: u32 = 1 << 16;

/// Parses a list into indices, ascending and without repeats; `None` if the text is not a list.
pub(crate) fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut indices = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().ok()?;
        let last: u32 = last.parse().ok()?;
        if first > last || last >= INDEX_LIMIT {
            return None;
        }
        indices.extend(first..=last);
    }
    indices.sort_unstable();
    indices.dedup();
    Some(indices)
}

/// Formats indices, in any order, as a list with joined runs: `0-3,8`.
pub fn format_list(indices: &[u32]) -> String {
    let mut sorted = indices.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|left, right| left + 1 == *right);
    let parts: Vec<String> = runs
        .map(|run| match run {
            [only] => only.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        let table: [(&str, &[u32], &str); 5] = [
            ("0-3,8\n", &[0, 1, 2, 3, 8], "0-3,8"),
            ("5", &[5], "5"),
            ("", &[], ""),
            ("8,0-1,1", &[0, 1, 8], "0-1,8"),
            ("0,1,2", &[0, 1, 2], "0-2"),
        ];
        for (text, indices, written) in table {
            assert_eq!(parse_list(text).as_deref(), Some(indices), "{text}");
            assert_eq!(format_list(indices), written);
        }
    }

    #[test]
    fn damaged_lists_are_refused() {
        for text in ["3-1", "a", "0-4294967295", "1-2-3", "-1", "0x3"] {
            assert_eq!(parse_list(text), None, "{text}");
        }
    }
}
