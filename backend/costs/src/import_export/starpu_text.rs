//! The text of a StarPU performance model, format version 45: <https://starpu.gitlabpages.inria.fr>,
//! `src/core/perfmodel/perfmodel_history.c`.
//!
//! Values stand in a fixed order, one line each; lines that begin with `#` are comments. The file starts with the
//! version and the number of combinations of devices. Each combination lists its devices (type, number, cores) and its
//! implementations. Each implementation has the number of entries, the sums and parameters of three regressions, and
//! the entries.

use std::fmt::Display;

const VERSION: u64 = 45;

/// Greater counts are rejected.
const MOST_COMBINATIONS: u64 = 4096;
const MOST_DEVICES: u64 = 256;
const MOST_IMPLEMENTATIONS: u64 = 256;

/// A device of a combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device {
    /// Type of the device: 0 is a CPU, 1 CUDA, 2 OpenCL.
    pub(super) kind: u64,
    pub(super) number: u64,
    pub(super) cores: u64,
}

/// Measurements of one footprint, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) footprint: u32,
    pub(super) bytes: u64,
    pub(super) flops: f64,
    pub(super) mean: f64,
    pub(super) deviation: f64,
    pub(super) count: u64,
}

/// One combination of devices, and the entries of all its implementations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Combination {
    pub(super) devices: Vec<Device>,
    pub(super) entries: Vec<Entry>,
}

/// A model, and the comments before its first value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Model {
    pub(super) comments: Vec<String>,
    pub(super) combinations: Vec<Combination>,
}

/// Prints the model with one implementation per combination and without regressions.
pub(super) fn print(model: &Model) -> String {
    let mut text: String = model.comments.iter().map(|comment| format!("# {comment}\n")).collect();
    let mut put = |what: &str, value: &dyn Display| text += &format!("# {what}\n{value}\n");
    put("Performance Model Version", &VERSION);
    put("number of combinations", &model.combinations.len());
    for Combination { devices, entries } in &model.combinations {
        put("number of types devices", &devices.len());
        for device in devices {
            put("device type (CPU - 0, CUDA - 1, OPENCL - 2)", &device.kind);
            put("device id", &device.number);
            put("number of cores", &device.cores);
        }
        put("number of implementations", &1);
        put("number of entries", &entries.len());
        let none = [0.0; 4].map(exponential).join("\t");
        put("sumlnx\tsumlnx2\tsumlny\tsumlnxlny\talpha\tbeta\tn\tminx\tmaxx", &format!("{none}\tnan\tnan\t0\t0\t0"));
        put("a\tb\tc", &"nan\tnan\tnan");
        put("not multiple-regression-base", &0);
        let entries: String = entries.iter().map(Entry::line).collect();
        put("hash\tsize\tflops\tmean (us)\tdev (us)\tsum\tsum2\tn", &entries);
    }
    text
}

impl Entry {
    fn line(&self) -> String {
        let Self { footprint, bytes, flops, mean, deviation, count } = *self;
        let samples = count as f64;
        let figures = [flops, mean, deviation, mean * samples, (deviation * deviation + mean * mean) * samples];
        format!("{footprint:08x}\t{bytes}\t{}\t{count}\n", figures.map(exponential).join("\t"))
    }
}

/// Formats a number as C's `%.6e` does.
fn exponential(value: f64) -> String {
    let text = format!("{value:.6e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

fn wrong_at(line: usize, problem: impl Display) -> String {
    format!("line {line}: {problem}")
}

/// Lines that are not comments, with their numbers.
struct Lines<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    last: usize,
}

/// Parses a model. O(bytes); memory only for entries that are present.
pub(super) fn parse(text: &[u8]) -> Result<Model, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let comments = text.lines().map_while(|line| line.strip_prefix("# ")).map(str::to_owned).collect();
    let mut lines = Lines { lines: text.lines().enumerate(), last: 0 };
    let version = lines.count("the format's version", u64::MAX)?;
    if version != VERSION {
        return Err(wrong_at(
            lines.last,
            format!("the performance model has format {version}, but only {VERSION} is supported"),
        ));
    }
    let mut combinations = Vec::new();
    for _ in 0..lines.count("the number of combinations", MOST_COMBINATIONS)? {
        combinations.push(lines.combination()?);
    }
    match lines.next() {
        None => Ok(Model { comments, combinations }),
        Some((line, _)) => Err(wrong_at(line, "there is text after the last entry")),
    }
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<(usize, &'a str)> {
        let (at, line) = self.lines.by_ref().find(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))?;
        self.last = at + 1;
        Some((at + 1, line))
    }

    /// Returns the values of the next line, and checks their number.
    fn values(&mut self, what: &str, wanted: Option<usize>) -> Result<(usize, Vec<&'a str>), String> {
        let Some((line, text)) = self.next() else {
            return Err(wrong_at(self.last + 1, format!("expected {what}, but the file ends")));
        };
        let values: Vec<&str> = text.split_ascii_whitespace().collect();
        match wanted.is_none_or(|wanted| wanted == values.len()) {
            true => Ok((line, values)),
            false => Err(wrong_at(line, format!("expected {what}, found {} values", values.len()))),
        }
    }

    fn count(&mut self, what: &str, most: u64) -> Result<u64, String> {
        let (line, values) = self.values(what, Some(1))?;
        let count = values[0].parse::<u64>().ok().filter(|count| *count <= most);
        count.ok_or_else(|| wrong_at(line, format!("{what} cannot be {}", values[0])))
    }

    fn combination(&mut self) -> Result<Combination, String> {
        let mut combination = Combination::default();
        for _ in 0..self.count("the number of devices", MOST_DEVICES)? {
            combination.devices.push(Device {
                kind: self.count("a device's type", u64::MAX)?,
                number: self.count("a device's number", u64::MAX)?,
                cores: self.count("a device's cores", u64::MAX)?,
            });
        }
        for _ in 0..self.count("the number of implementations", MOST_IMPLEMENTATIONS)? {
            let entries = self.count("the number of entries", u64::MAX)?;
            self.values("the linear regression", Some(9))?;
            self.values("the non-linear regression", Some(3))?;
            self.values("the multiple regression", None)?;
            for _ in 0..entries {
                combination.entries.extend(self.entry()?);
            }
        }
        Ok(combination)
    }

    /// Reads an entry; `None` if its count is 0.
    fn entry(&mut self) -> Result<Option<Entry>, String> {
        let (line, values) = self.values("an entry", Some(8))?;
        let wrong = |what: &str, text: &str| wrong_at(line, format!("{what} cannot be {text}"));
        let figure = |at: usize, what: &str| {
            let value = values[at].parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
            value.ok_or_else(|| wrong(what, values[at]))
        };
        let footprint = u32::from_str_radix(values[0], 16).map_err(|_| wrong("a footprint", values[0]))?;
        let bytes = values[1].parse().map_err(|_| wrong("a size", values[1]))?;
        let count: u32 = values[7].parse().map_err(|_| wrong("a number of samples", values[7]))?;
        let (flops, mean, deviation) = (figure(2, "operations")?, figure(3, "a mean")?, figure(4, "a deviation")?);
        if count > 0 && mean == 0.0 {
            return Err(wrong("the mean of a measured time", values[3]));
        }
        let entry = Entry { footprint, bytes, flops, mean, deviation, count: u64::from(count) };
        Ok((count > 0).then_some(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as StarPU 1.3.10 writes it.
    const MODEL: &str = "##################\n# Performance Model Version\n45\n\n####################\n# COMBs\n# number of combinations\n1\n\
        ####################\n# COMB_0\n# number of types devices\n1\n####################\n# DEV_0\n# device type (CPU - 0, CUDA - 1, \
        OPENCL - 2, MIC - 3, MPI_MS - 5)\n0\n####################\n# DEV_0\n# device id \n0\n####################\n# DEV_0\n# number of \
        cores \n1\n##########\n# number of implementations\n1\n#####\n# Model for cpu0_impl0 (Comb0)\n# number of entries\n1\n# sumlnx\t\
        sumlnx2\t\tsumlny\t\tsumlnxlny\talpha\t\tbeta\t\tn\tminx\t\tmaxx\n0.000000e+00   \t0.000000e+00   \t0.000000e+00   \t0.000000e+00   \t\
        nan            \tnan            \t0\t0              \t0              \n# a\t\tb\t\tc\nnan            \tnan            \tnan            \n\
        # not multiple-regression-base\n0\n# hash\t\tsize\t\tflops\t\tmean (us)\tdev (us)\tsum\t\tsum2\t\tn\n3d24f508\t691200         \t\
        2.764800e+07   \t1.219605e+04   \t0.000000e+00   \t1.219605e+04   \t1.487436e+08   \t1\n";

    #[test]
    fn a_model_of_starpu_is_read() {
        let model = parse(MODEL.as_bytes()).expect("a model");
        let entry = Entry {
            footprint: 0x3d24_f508,
            bytes: 691_200,
            flops: 2.7648e7,
            mean: 12_196.05,
            deviation: 0.0,
            count: 1,
        };
        assert_eq!(model.combinations[0].devices, [Device { kind: 0, number: 0, cores: 1 }]);
        assert_eq!(model.combinations[0].entries, [entry]);
        let again = parse(print(&model).as_bytes()).expect("our own text");
        assert_eq!(again.combinations, model.combinations);
    }

    #[test]
    fn numbers_are_written_as_c_does() {
        assert_eq!(
            [0.0, 1.5, 2.7648e7, 1e-9].map(exponential),
            ["0.000000e+00", "1.500000e+00", "2.764800e+07", "1.000000e-09"]
        );
    }

    #[test]
    fn hostile_models_are_refused_by_line() {
        for (from, to, what) in [
            ("\n45\n", "\n44\n", "format 44"),
            ("combinations\n1\n", "combinations\n18446744073709551615\n", "combinations"),
            ("entries\n1\n", "entries\n18446744073709551615\n", "the file ends"),
            ("entries\n1\n", "entries\n-1\n", "number of entries"),
            ("1.219605e+04   \t0", "nan   \t0", "a mean cannot be nan"),
            ("1.219605e+04   \t0", "0   \t0", "mean of a measured time"),
            ("3d24f508", "spoon", "a footprint"),
            ("\t1\n", "\t1\n1 2 3\n", "after the last entry"),
        ] {
            assert!(MODEL.contains(from), "{from:?}");
            let at = MODEL.rfind(from).expect("it is there");
            let text = format!("{}{to}{}", &MODEL[..at], &MODEL[at + from.len()..]);
            let wrong = parse(text.as_bytes()).expect_err(to);
            assert!(wrong.contains(what) && wrong.starts_with("line "), "{wrong} for {to:?}");
        }
        for length in 0..MODEL.len() - 2 {
            assert!(parse(&MODEL.as_bytes()[..length]).is_err(), "cut at {length}");
        }
        assert!(parse(&[0xff, 0xfe]).is_err());
    }
}
