//! Comparison of outputs with expected outputs.

use super::args::parse_tolerance;
use super::inputs::{Given, taken};
use super::open::Opened;
use super::{CliError, lossy};
use anabranch::compare::{Difference, Tolerance, Top1, Worst};
use anabranch::session::{Inputs, Outputs, Session, ValueInfo};
use anabranch::{Kind, Part};
use anabranch_kernels::{Tensor, TensorSpec};
use anabranch_report::tensors::{self, Label, Role};
use clap::Args;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// Default relative tolerance.
const RTOL: f64 = 1e-3;

/// Options of the expected outputs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Files")]
pub(super) struct ExpectArgs {
    /// Compare the outputs; exit code 3 if one differs
    ///
    /// Give a file (.npz, .safetensors, .npy or .pb), or a folder with output_0.pb and so on. In archives, a prefix
    /// `out__` is ignored, and members `in__…` are skipped.
    #[arg(long, value_name = "FILE|FOLDER")]
    expect: Option<PathBuf>,
    /// Allow this difference relative to the element
    ///
    /// The default is 0.001, and 1/64 for bf16 outputs.
    #[arg(long, value_name = "PART", value_parser = parse_tolerance, hide_short_help = true)]
    rtol: Option<f64>,
    /// Allow this absolute difference in addition
    #[arg(long, value_name = "DIFFERENCE", value_parser = parse_tolerance, default_value = "0.00001", hide_short_help = true)]
    atol: f64,
}

/// Expected outputs from one file.
pub(super) struct Expected {
    file: PathBuf,
    outputs: BTreeMap<String, Tensor>,
    /// Inputs of these outputs, if they differ from those of the command line.
    inputs: Option<Inputs>,
}

/// Result of comparing one output.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Verdict {
    file: String,
    output: String,
    /// Description of the difference, if there is one.
    difference: Option<String>,
    /// Tolerance in use, relative to the expected element; null if elements have to be equal.
    rtol: Option<f64>,
    atol: Option<f64>,
    /// Figures of the difference, if type and shape match.
    figures: Option<Difference>,
}

/// Results of comparing all outputs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Verdicts {
    outputs: Vec<Verdict>,
}

impl ExpectArgs {
    /// Whether a file is named.
    pub(super) fn is_asked(&self) -> bool {
        self.expect.is_some()
    }

    /// Reads the expected outputs: the named file, else each data set of the model's folder. Nothing runs before.
    pub(super) fn read(&self, opened: &Opened) -> Result<Vec<Expected>, CliError> {
        if let Some(file) = &self.expect {
            return Ok(vec![Expected::read(&opened.session, file, None)?]);
        }
        let with_outputs = opened.sets.iter().enumerate().filter(|(_, set)| set.join("output_0.pb").exists());
        let expected = |(at, set): (usize, &PathBuf)| {
            let inputs = match at {
                0 => None,
                _ => Some(super::inputs::read_file(None, set, &opened.session, Given::default())?.inputs),
            };
            Expected::read(&opened.session, set, inputs)
        };
        with_outputs.map(expected).collect()
    }

    /// Compares the outputs of the run that was made, and of one more run for each further data set.
    pub(super) fn compare(
        &self,
        session: &Session,
        expected: &[Expected],
        outputs: &Outputs,
    ) -> Result<Option<Verdicts>, CliError> {
        let mut verdicts = Vec::new();
        for Expected { file, outputs: wanted, inputs } in expected {
            let own = inputs.as_ref().map(|inputs| session.run(inputs)).transpose()?;
            let made = own.as_ref().unwrap_or(outputs);
            let found: BTreeMap<&str, &Tensor> = made.iter().collect();
            for (name, tensor) in wanted {
                let verdict = match found.get(name.as_str()) {
                    Some(found) => self.verdict(lossy(file), name, found, tensor),
                    None => Verdict::of(lossy(file), name.clone(), None, Err("the model did not produce it".into())),
                };
                verdicts.push(verdict);
            }
            // If an output is expected in parts, a part that is not expected is an error.
            let is_expected = |name: &str| {
                let own = session.output_info(name).filter(|own| !own.kind().is_tensor());
                own.is_some_and(|own| wanted.keys().any(|other| session.output_info(other) == Some(own)))
            };
            let beyond = found.keys().filter(|name| !wanted.contains_key(**name) && is_expected(name));
            verdicts.extend(beyond.map(|name| {
                Verdict::of(
                    lossy(file),
                    (*name).to_owned(),
                    None,
                    Err("the model produced it, but the file does not expect it".into()),
                )
            }));
        }
        Ok((!expected.is_empty()).then_some(Verdicts { outputs: verdicts }))
    }

    fn verdict(&self, file: String, name: &str, found: &Tensor, expected: &Tensor) -> Verdict {
        let tolerance = self.tolerance(found, expected);
        let is_mark = Part::of(name).is_some_and(|(_, part)| part.is_mark())
            && found.bytes().is_empty()
            && expected.bytes().is_empty();
        let compared = Difference::between(if is_mark { expected } else { found }, expected, tolerance);
        let admitted = Some(tolerance).filter(|_| expected.dtype().is_float());
        Verdict::of(file, name.to_owned(), admitted, compared)
    }

    /// Returns the given tolerance, or a default that allows for rounding to the narrower type.
    fn tolerance(&self, found: &Tensor, expected: &Tensor) -> Tolerance {
        let tolerance = Tolerance { rtol: self.rtol.unwrap_or(RTOL), atol: self.atol };
        if self.rtol.is_some() { tolerance } else { tolerance.for_types(found.dtype(), expected.dtype()) }
    }
}

impl Expected {
    fn read(session: &Session, file: &Path, inputs: Option<Inputs>) -> Result<Self, CliError> {
        let (mut names, mut held) = (BTreeSet::new(), 0u64);
        let kinds = |label: Label<'_>| match output_of(session, label) {
            Ok(Some(name)) => session.output_info(&name).map_or_else(Kind::default, ValueInfo::kind),
            _ => Kind::default(),
        };
        let mut wanted = |label: Label<'_>, spec: &TensorSpec| {
            // Inputs that are stored with the outputs are skipped.
            let Some(name) = output_of(session, label)? else { return Ok(None) };
            if !names.insert(name.clone()) {
                return Err(format!("gives output `{name}` twice; leave out one of them"));
            }
            held = held.saturating_add(taken(spec));
            session.check_bytes(&name, held).map_err(|error| error.to_string())?;
            Ok(Some(name))
        };
        let outputs: BTreeMap<_, _> = tensors::read(file, Role::Output, &kinds, &mut wanted)?.into_iter().collect();
        if outputs.is_empty() {
            let names: Vec<_> = session.outputs().iter().map(ValueInfo::name).collect();
            let reason = format!("holds no output of the model; the model's outputs are {}", names.join(", "));
            return Err(CliError::in_file(file, reason));
        }
        Ok(Self { file: file.to_owned(), outputs, inputs })
    }
}

/// Returns the name of the output, or part of an output, that a tensor of a file belongs to; `None` if it is not an
/// output.
fn output_of(session: &Session, label: Label<'_>) -> Result<Option<String>, String> {
    let known = |name: &str| session.output_info(name).map(|_| name.to_owned());
    Ok(match label {
        Label::Part(whole, part) => output_of(session, *whole)?.map(|name| format!("{name}{part}")),
        Label::Named(member) => known(member).or_else(|| known(member.strip_prefix("out__")?)),
        Label::Numbered(at) => session.outputs().get(at).map(|output| output.name().to_owned()),
        Label::Only if session.outputs().len() == 1 => session.outputs().first().map(|output| output.name().to_owned()),
        Label::Only => return Err("the model has several outputs; store them with their names in an .npz file".into()),
    })
}

impl Verdicts {
    /// Fails if an output differs.
    pub(super) fn settle(&self) -> Result<(), CliError> {
        let wrong: Vec<_> = self.outputs.iter().filter(|verdict| verdict.difference.is_some()).collect();
        match wrong.first() {
            None => Ok(()),
            Some(first) => {
                Err(CliError::unexpected(format!("{} of {} outputs differ: {first}", wrong.len(), self.outputs.len())))
            }
        }
    }
}

impl Verdict {
    fn of(file: String, output: String, admitted: Option<Tolerance>, compared: Result<Difference, String>) -> Self {
        let (rtol, atol) = admitted.map(|Tolerance { rtol, atol }| (rtol, atol)).unzip();
        let difference = match &compared {
            Err(difference) => Some(difference.clone()),
            Ok(Difference { beyond: 0, .. }) => None,
            Ok(own) => Some(format!("{} of {} elements differ too much; {}", own.beyond, own.elements, figures(own))),
        };
        Self { file, output, difference, rtol, atol, figures: compared.ok() }
    }

    /// Returns the tolerance in words.
    fn admitted(&self) -> String {
        match self.atol.zip(self.rtol) {
            Some((atol, rtol)) => format!("within {atol} + {rtol} · |expected| for each element"),
            None => "each element must be equal".to_owned(),
        }
    }
}

/// Returns the figures of one output, in a line.
fn figures(figures: &Difference) -> String {
    let Difference { greatest_error, greatest_relative_error, rms_error, cosine, top1, worst, .. } = figures;
    let Some(Worst { index, found, expected }) = worst else { return "all elements are equal".into() };
    let place = index.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let cosine = cosine.map_or(String::new(), |cosine| format!("; cosine {cosine:.9}"));
    let top1 = top1.map_or(String::new(), |Top1 { agree, rows }| format!("; top-1 of {agree} of {rows} rows agrees"));
    format!(
        "greatest error {greatest_error:.3e} at [{place}], {found} instead of {expected}; greatest relative \
         error {greatest_relative_error:.3e}; RMS error {rms_error:.3e}{cosine}{top1}"
    )
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, output, difference, .. } = self;
        match difference {
            Some(difference) => write!(f, "output `{output}` differs from {file}: {difference}"),
            None => write!(f, "output `{output}` agrees with {file}"),
        }
    }
}

impl fmt::Display for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for verdict in &self.outputs {
            writeln!(f, "{verdict}")?;
            if let Some(measured) = verdict.figures.as_ref().filter(|_| verdict.difference.is_none()) {
                writeln!(f, "  {}", figures(measured))?;
            }
            if verdict.figures.is_some() {
                writeln!(f, "  ({})", verdict.admitted())?;
            }
        }
        Ok(())
    }
}
