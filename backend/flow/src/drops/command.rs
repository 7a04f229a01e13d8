//! Shell command of an application: joins DALiuGE's fields, and fills in the paths of inputs and outputs.
//!
//! `%i0`, `%i1`, … are the paths of inputs in the order of the application's links. In a logical graph this is the
//! order of the nodes.
//!
//! `%i[X]` is the input whose id is `X`, or all inputs that are copies of the node with the key `X`. Several paths are
//! separated by blanks if the placeholder begins a word, and by commas within a word. `%o` stands for outputs in the
//! same forms (DALiuGE, `dlg/droputils.py` and `dlg/apps/bash_shell_app.py`).

use super::names::quoted;
use anabranch_base::quoted::Name;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Most bytes of a command: Linux takes an argument of 128 KiB with the zero at its end (`MAX_ARG_STRLEN`).
const MOST_BYTES: usize = (128 << 10) - 1;

/// A drop as commands name it, with its path. Data that are not kept have no path.
pub(super) struct Operand<'a> {
    pub(super) id: &'a str,
    pub(super) path: Option<PathBuf>,
}

/// Returns the command of an application's fields, with its arguments and redirections; `None` if it has no command.
pub(super) fn assembled(fields: &BTreeMap<String, String>) -> Option<String> {
    let said = |names: &[&str]| names.iter().filter_map(|name| fields.get(*name)).map(|text| text.trim()).find(is_said);
    // Graphs older than EAGLE-121 have the command in pieces.
    let pieces = || {
        let pieces: Vec<&str> = (1..=10).filter_map(|number| said(&[&format!("Arg{number:02}")])).collect();
        (!pieces.is_empty()).then(|| pieces.join(" "))
    };
    let mut command = said(&["command", "Command"]).map(str::to_owned).or_else(pieces)?;
    if let Some(arguments) = said(&["command_line_arguments", "Command Line Arguments"]) {
        command = format!("{command} {arguments}");
    }
    let input = said(&["input_redirection", "Input Redirection"]);
    let output = said(&["output_redirection", "Output Redirection"]);
    if input.is_some() || output.is_some() {
        let input = input.map(|path| format!(" < {path}")).unwrap_or_default();
        let output = output.map(|path| format!(" > {path}")).unwrap_or_default();
        command = format!("(\n{command}\n){input}{output}");
    }
    Some(command)
}

fn is_said(text: &&str) -> bool {
    !text.is_empty()
}

/// Returns a command with its placeholders replaced by paths. `O(length + placeholders × operands)`.
///
/// # Errors
/// If a placeholder names an operand that does not exist or has no path, or the command has more than [`MOST_BYTES`].
pub(super) fn expanded(command: &str, inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<String, String> {
    let mut text = String::with_capacity(command.len());
    let mut rest = command;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let (side, operands) = match rest.as_bytes().get(1) {
            Some(b'i') => ("input", inputs),
            Some(b'o') => ("output", outputs),
            _ => ("", &[][..]),
        };
        let Some((name, length)) = placeholder(rest).filter(|_| !side.is_empty()) else {
            text.push('%');
            rest = &rest[1..];
            continue;
        };
        let meant = match name {
            Named::Number(number) => operands.get(number..).unwrap_or_default().iter().take(1).collect(),
            Named::Id(id) => called(id, operands),
        };
        if meant.is_empty() {
            let told = Name(&rest[..length]);
            return Err(format!(
                "{told} refers to an {side} that does not exist ({side}s: {}); link one, or change the command",
                operands.len()
            ));
        }
        let begins_word = text.is_empty() || text.ends_with(char::is_whitespace);
        for (place, operand) in meant.iter().enumerate() {
            if place > 0 {
                text.push(if begins_word { ' ' } else { ',' });
            }
            match &operand.path {
                Some(path) => text.push_str(&quoted(path)),
                None => return Err(format!("{} is data without a path", Name(operand.id))),
            }
            refuse_long(&text)?;
        }
        rest = &rest[length..];
    }
    text.push_str(rest);
    refuse_long(&text)?;
    Ok(text)
}

fn refuse_long(command: &str) -> Result<(), String> {
    match command.len() > MOST_BYTES {
        true => Err(format!("it is longer than the limit of {MOST_BYTES} bytes; gather in steps")),
        false => Ok(()),
    }
}

enum Named<'a> {
    Number(usize),
    Id(&'a str),
}

/// Returns the operand named after `%i` or `%o`, and the length of the whole placeholder in bytes.
fn placeholder(text: &str) -> Option<(Named<'_>, usize)> {
    let name = text.get(2..)?;
    if let Some(name) = name.strip_prefix('[') {
        let end = name.find(']')?;
        return Some((Named::Id(&name[..end]), end + 4));
    }
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    Some((Named::Number(name[..digits].parse().ok()?), digits + 2))
}

/// Returns the operand of this id, or all operands whose node has this key.
fn called<'a, 'o>(name: &str, operands: &'a [Operand<'o>]) -> Vec<&'a Operand<'o>> {
    match operands.iter().find(|operand| operand.id == name) {
        Some(operand) => vec![operand],
        None => {
            let is_copy = |id: &str| id.rsplit_once('_').is_some_and(|(key, _)| key == name);
            operands.iter().filter(|operand| is_copy(operand.id)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_paths() {
        let operand = |id, path: &str| Operand { id, path: (!path.is_empty()).then(|| path.into()) };
        let inputs = [operand("-2_0-0", "a"), operand("-2_0-1", "b c"), operand("x", "-d"), operand("null", "")];
        let outputs: Vec<_> = (0..11).map(|_| operand("o", "out")).collect();
        let expand = |command: &str| expanded(command, &inputs, &outputs);
        for (command, expected) in [
            ("cat %i0 %i1 > %o10", "cat a 'b c' > out"),
            ("cat %i[-2] --in=%i[-2]", "cat a 'b c' --in=a,'b c'"),
            ("rm %i[x]", "rm ./-d"),
            ("printf '%s\\n%%\\t%i' 100%", "printf '%s\\n%%\\t%i' 100%"),
            ("%i2%i2 ä%", "./-d./-d ä%"),
            ("date +%i[", "date +%i["),
        ] {
            assert_eq!(expand(command).as_deref(), Ok(expected));
        }
        for (command, part) in [
            ("%i4", "`%i4` refers to an input that does not exist (inputs: 4)"),
            ("%o[y]", "(outputs: 11)"),
            ("%i[null]", "without a path"),
            ("%i3", "`null`"),
        ] {
            assert!(expand(command).unwrap_err().contains(part), "{command}");
        }
    }

    #[test]
    fn commands_are_as_long_as_the_system_takes_them() {
        let inputs = [Operand { id: "x", path: Some("p".repeat(MOST_BYTES / 2).into()) }];
        assert_eq!(expanded("%i0%i0.", &inputs, &[]).map(|text| text.len()), Ok(MOST_BYTES));
        for command in ["%i0%i0..", "%i0 %i0 %i0"] {
            assert!(expanded(command, &inputs, &[]).unwrap_err().contains("gather in steps"));
        }
    }

    #[test]
    fn fields_make_a_command() {
        let command = |fields: &[(&str, &str)]| {
            assembled(&fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        assert_eq!(command(&[("command", " wc ")]).as_deref(), Some("wc"));
        assert_eq!(
            command(&[("Arg01", "cat"), ("Arg02", "%i0 > %o0"), ("Arg03", "")]).as_deref(),
            Some("cat %i0 > %o0")
        );
        let redirected = [
            ("command", "sort"),
            ("command_line_arguments", "-n"),
            ("input_redirection", "%i0"),
            ("output_redirection", "%o0"),
        ];
        assert_eq!(command(&redirected).as_deref(), Some("(\nsort -n\n) < %i0 > %o0"));
        assert_eq!(command(&[("command", "")]), None);
    }
}
