//! A device's permanent identity, under which its measured costs are filed.
#![forbid(unsafe_code)]

/// Returns the key of `parts` under `family` (`cpu`, `gpu`): joined by ` | `, with normalised blanks.
///
/// The key holds what the costs depend on: model, size and driver, but not the device's number in the machine. Two
/// equal GPUs share a key, and thus their measurements. A new driver makes a new key, because it may compile the same
/// shader to different code. The text is for reading and comparing; it may hold any character.
pub(super) fn device_key(family: &str, parts: &[&str]) -> String {
    let normal = |part: &&str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    std::iter::once(family.to_owned()).chain(parts.iter().map(normal)).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::device_key;

    #[test]
    fn a_key_is_readable_and_ignores_stray_blanks() {
        assert_eq!(device_key("cpu", &["AMD  EPYC ", "2 cores"]), "cpu | AMD EPYC | 2 cores");
    }
}
