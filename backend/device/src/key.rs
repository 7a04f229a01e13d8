//! A device's identity over time: what its measured costs are filed under.
#![forbid(unsafe_code)]

/// The key made of `parts` under `family` (`cpu`, `gpu`): joined by ` | `, blanks normalised.
///
/// It tells what makes two devices alike for the cost store: model, size and driver, but not the device's number in the
/// machine. Two equal GPUs share a key and so share their measurements. A new driver makes a new key, since it may compile the
/// same shader to something else. The text is for reading and comparing; it may hold any character.
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
