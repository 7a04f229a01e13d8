//! The command line of this process, for the heads of pages.

use std::ffi::OsString;

/// Returns the command that started this process, in a form that can be typed again.
pub fn typed() -> String {
    command(std::env::args_os())
}

/// Returns a command in a form that can be typed again: the program by its name alone, arguments quoted if a shell
/// would change them.
fn command(arguments: impl Iterator<Item = OsString>) -> String {
    let mut arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let program = arguments.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_./:=,+@%".contains(c));
    let quoted = |text: String| if plain(&text) { text } else { format!("'{}'", text.replace('\'', r"'\''")) };
    std::iter::once(name).chain(arguments.map(quoted)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_typed_again() {
        let arguments = ["/usr/bin/anabranch", "run", "a b.onnx", "--pin", "*=gpu0", "it's"].map(OsString::from);
        assert_eq!(command(arguments.into_iter()), r"anabranch run 'a b.onnx' --pin '*=gpu0' 'it'\''s'");
    }
}
