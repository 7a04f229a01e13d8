//! Costs as lines of CSV.

use super::Wrong;
use crate::profile::history::{Cold, History};
use crate::profile::link::LinkCosts;
use crate::profile::machine::NodeCosts;
use crate::profile::store::CostStore;
use serde::{Deserialize, Serialize};
use std::io;

/// Rows that a file may have.
const MOST_ROWS: usize = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Node,
    Transfer,
    Stream,
}

/// One history. Of a node `on` is the device's key and `what` the node's; of a transfer `on` is the link's key, `what` is empty, and
/// `flops` and `kernels` are 0, while `latency` and `rate` are those of the link's affine law.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    kind: Kind,
    machine: String,
    on: String,
    what: String,
    op: String,
    flops: f64,
    bytes: f64,
    latency_s: f64,
    rate: f64,
    kernels: u32,
    count: u64,
    mean_ns: f64,
    variance_ns2: f64,
    min_ns: f64,
    measured_at: u64,
    faded: u64,
    cold_count: u64,
    cold_mean_ns: f64,
    cold_min_ns: f64,
    /// Separated by blanks, the newest last.
    recent_ns: String,
}

/// The store's nodes and transfers.
pub(super) fn write(store: &CostStore) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (machine, costs) in store.machines() {
        for (device, known) in &costs.devices {
            for (key, node) in &known.nodes {
                for (version, history) in &node.versions {
                    let blank = Row::blank(Kind::Node, machine, device, history);
                    let (what, op) = (key.clone(), node.op.clone());
                    writer.serialize(Row {
                        what,
                        op,
                        flops: node.flops,
                        bytes: node.bytes,
                        kernels: *version,
                        ..blank
                    })?;
                }
            }
        }
        for (key, link) in &costs.links {
            let sizes = link.sizes.iter().map(|size| (Kind::Transfer, size));
            for (kind, (bytes, history)) in sizes.chain(link.streamed.iter().map(|size| (Kind::Stream, size))) {
                let blank = Row::blank(kind, machine, key, history);
                writer.serialize(Row { bytes: *bytes as f64, latency_s: link.latency, rate: link.rate, ..blank })?;
            }
        }
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

/// Reads what [`write`] writes.
pub(super) fn read(text: &[u8]) -> Result<CostStore, Wrong> {
    let mut store = CostStore::default();
    let mut reader = csv::Reader::from_reader(text);
    for (number, row) in reader.deserialize::<Row>().enumerate() {
        let line = number + 2;
        if number >= MOST_ROWS {
            return Err(Wrong::at(line, format!("there are more than {MOST_ROWS} rows")));
        }
        let row = row.map_err(|error| Wrong::at(line, error.to_string()))?;
        row.add_to(&mut store).map_err(|problem| Wrong::at(line, problem))?;
    }
    Ok(store)
}

impl Row {
    fn blank(kind: Kind, machine: &str, on: &str, history: &History) -> Self {
        let recent: Vec<String> = history.recent.iter().map(f64::to_string).collect();
        Self {
            kind,
            machine: machine.to_owned(),
            on: on.to_owned(),
            what: String::new(),
            op: String::new(),
            flops: 0.0,
            bytes: 0.0,
            latency_s: 0.0,
            rate: 0.0,
            kernels: 0,
            count: history.count,
            mean_ns: history.mean,
            variance_ns2: history.variance,
            min_ns: history.min,
            measured_at: history.measured_at,
            faded: history.faded,
            cold_count: history.cold.count,
            cold_mean_ns: history.cold.mean,
            cold_min_ns: history.cold.min,
            recent_ns: recent.join(" "),
        }
    }

    fn history(&self) -> Result<History, String> {
        let time = |text: &str| text.parse().map_err(|_| format!("{text:?} in recent_ns is no number"));
        let recent: Result<Vec<f64>, _> = self.recent_ns.split_ascii_whitespace().map(time).collect();
        let history = History {
            count: self.count,
            mean: self.mean_ns,
            variance: self.variance_ns2,
            min: self.min_ns,
            measured_at: self.measured_at,
            recent: recent?,
            cold: Cold { count: self.cold_count, mean: self.cold_mean_ns, min: self.cold_min_ns },
            faded: self.faded,
        };
        if history.is_sane() { Ok(history) } else { Err("these are no statistics of times".into()) }
    }

    fn add_to(self, store: &mut CostStore) -> Result<(), String> {
        let history = self.history()?;
        let positive = |value: f64| value.is_finite() && value >= 0.0;
        if !(positive(self.flops) && positive(self.bytes)) {
            return Err("flops and bytes are finite and not negative".into());
        }
        let machine = store.machine_mut(&self.machine);
        if self.kind == Kind::Node {
            let known = machine.devices.entry(self.on).or_default();
            let node = known.nodes.entry(self.what).or_insert_with(|| NodeCosts {
                op: self.op,
                flops: self.flops,
                bytes: self.bytes,
                ..NodeCosts::default()
            });
            node.versions.insert(self.kernels, history);
            return Ok(());
        }
        let link = machine.links.entry(self.on).or_insert(LinkCosts::affine(self.latency_s, self.rate));
        if !link.is_sane() {
            return Err("a link has a latency that is not negative and a rate above 0".into());
        }
        let sizes = if self.kind == Kind::Transfer { &mut link.sizes } else { &mut link.streamed };
        sizes.insert(self.bytes as u64, history);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::filled;
    use super::*;

    #[test]
    fn hostile_rows_are_refused_by_line() {
        let text = String::from_utf8(write(&filled()).expect("text")).expect("UTF-8");
        for (from, to) in [
            ("matmul,2000000.0", "matmul,NaN"),
            (",1000 1200 1100", ",1000 NaN 1100"),
            (",1000 1200 1100", ",1000 -5 1100"),
            (",3,1100.0,", ",99999999999999999999999999,1100.0,"),
            (",3,1100.0,", ",1,1100.0,"),
            (",3,1100.0,", ",3,inf,"),
            ("node,", "nought,"),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            let wrong = read(text.replace(from, to).as_bytes()).expect_err(to);
            assert!(wrong.line.is_some_and(|line| line >= 2), "{wrong:?}");
        }
        assert!(read(b"a,b\n1,2\n").is_err() && read(b"").is_ok_and(|store| store == CostStore::default()));
    }
}
