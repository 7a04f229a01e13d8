//! Measurements of a pipeline: time between results, latency, and the load of each device; and learning from them.

use super::costs::StageCosts;
use super::mapping::On;
use super::plan::PipelinePlan;
use super::times::{Histogram, StageSpan, Times};
use anabranch_costs::median;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Measurements of a pipeline. Times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Number of data sets that went through.
    pub data_sets: u64,
    /// Mean time between results once the pipeline was full; 0 if too few data sets went through.
    pub period: f64,
    /// Time between results if stages never waited: the time of the slowest stage.
    ///
    /// The pipeline spends the rest of [`Self::period`] waiting for data sets, or for the thread that takes results.
    pub stage_period: f64,
    /// Time from the start of a data set to its end.
    pub latency: LatencyShares,
    /// Measurements of each stage.
    pub stages: Vec<MeasuredStage>,
}

/// Quantiles of the time of a data set, exact to 1 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyShares {
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Measurements of a stage's devices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredStage {
    /// Measurements of each device of the stage.
    pub devices: Vec<MeasuredReplica>,
}

/// Measurements of one device of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredReplica {
    /// Name of the device.
    pub device: String,
    /// Number of data sets that it took.
    pub data_sets: u64,
    /// Median seconds of its last data sets; 0 if it took none.
    pub seconds: f64,
    /// Share of the time in which it worked.
    pub busy: f64,
    /// Times at which it worked on its last data sets.
    #[serde(skip)]
    pub spans: Vec<StageSpan>,
}

/// Counts results as they leave, and their times.
pub(super) struct Watch {
    /// Number of data sets until the pipeline is full.
    fill: u64,
    count: u64,
    /// Time of the first result once the pipeline was full, and of the last up to now.
    full: Option<Instant>,
    last: Option<Instant>,
    latency: Histogram,
}

impl Watch {
    pub(super) fn new(fill: u64) -> Self {
        Self { fill, count: 0, full: None, last: None, latency: Histogram::default() }
    }

    pub(super) fn add(&mut self, data_set: u64, done: Option<Instant>, latency: Duration) {
        self.count += 1;
        if data_set == self.fill {
            self.full = done;
        }
        // Results of replicas leave in order, but may be done in another order.
        self.last = self.last.max(done);
        self.latency.add(latency);
    }

    pub(super) fn measured(&self, plan: &PipelinePlan, times: Vec<Vec<Times>>, origin: Instant) -> Measured {
        let after = self.count.saturating_sub(self.fill + 1);
        let span = self.full.zip(self.last).map_or(0.0, |(full, last)| (last - full).as_secs_f64());
        let quantile = |share: f64| self.latency.quantile(share);
        let whole = self.last.map_or(0.0, |last| (last - origin).as_secs_f64());
        let stages = plan.stages.iter().zip(times).map(|(stage, times)| {
            let replica = |(device, times): (&String, Times)| times.measured(device, whole);
            MeasuredStage { devices: stage.devices.iter().zip(times).map(replica).collect() }
        });
        let stages: Vec<MeasuredStage> = stages.collect();
        let own = plan.stages.iter().zip(&stages).map(|(planned, stage)| stage.period(planned.in_turn));
        Measured {
            data_sets: self.count,
            period: if after > 0 { span / after as f64 } else { 0.0 },
            stage_period: own.fold(0.0, f64::max),
            latency: LatencyShares { p50: quantile(0.5), p95: quantile(0.95), p99: quantile(0.99) },
            stages,
        }
    }
}

impl MeasuredStage {
    /// Least seconds between results.
    fn period(&self, in_turn: bool) -> f64 {
        let known = self.devices.iter().map(|replica| replica.seconds).filter(|seconds| *seconds > 0.0);
        match in_turn {
            true => known.fold(0.0, f64::max) / self.devices.len().max(1) as f64,
            false => Some(known.map(f64::recip).sum::<f64>()).filter(|rate| *rate > 0.0).map_or(0.0, f64::recip),
        }
    }
}

impl Times {
    fn measured(self, device: &str, whole: f64) -> MeasuredReplica {
        let seconds: Vec<f64> = self.spans.iter().map(|span| (span.end - span.start).as_secs_f64()).collect();
        MeasuredReplica {
            device: device.to_owned(),
            data_sets: self.count,
            seconds: median(&seconds).unwrap_or(0.0),
            busy: if whole > 0.0 { (self.busy.as_secs_f64() / whole).min(1.0) } else { 0.0 },
            spans: self.spans.into(),
        }
    }
}

impl StageCosts {
    /// Adds the measured times of a pipeline's stages.
    ///
    /// Returns the factor between measured and predicted time of the stage that is furthest off, or 1 if all are as
    /// predicted. Learns nothing from a plan that does not fit these costs.
    pub fn learn_from(&mut self, plan: &PipelinePlan, measured: &Measured) -> f64 {
        let mut furthest: f64 = 1.0;
        // A mapping of another model or of other devices does not apply to these costs.
        let Ok(stages) = plan.mapping.stages(self) else { return furthest };
        for (at, (stage, planned)) in measured.stages.iter().zip(&plan.stages).enumerate() {
            let kinds = stages.as_ref().map_or_else(|| vec![(&[][..], vec![0])], |stages| self.kinds(&stages.on[at]));
            for (taker, places) in kinds {
                let replicas = places.iter().filter_map(|place| stage.devices.get(*place));
                let known = replicas.filter(|replica| replica.data_sets > 1 && replica.seconds > 0.0);
                let seconds: Vec<f64> = known.map(|replica| replica.seconds).collect();
                let Some(seconds) = median(&seconds) else { continue };
                let predicted = planned.seconds.get(places[0]).copied().unwrap_or(0.0);
                if predicted > 0.0 {
                    furthest = furthest.max(seconds / predicted).max(predicted / seconds);
                }
                match &stages {
                    Some(stages) => self.learn(stages.nodes(at), taker, seconds),
                    None => self.together = seconds,
                }
            }
        }
        furthest
    }

    /// Returns the takers of a stage by kind: the first of each kind, and the positions of all takers of the kind.
    fn kinds<'a>(&self, on: &'a On) -> Vec<(&'a [usize], Vec<usize>)> {
        let key = |taker: &[usize]| &self.processors[taker[0]].key;
        let mut kinds: Vec<(&[usize], Vec<usize>)> = Vec::new();
        for (place, taker) in on.takers().enumerate() {
            match kinds.iter_mut().find(|(first, _)| key(first) == key(taker)) {
                Some((_, places)) => places.push(place),
                None => kinds.push((taker, vec![place])),
            }
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{StageMapping, Stages};
    use crate::plan::StagePlan;
    use anabranch_ir::program::NodeId;

    /// Two cores of one kind and one core of another take turns at one stage: each kind learns from its own times.
    #[test]
    fn devices_of_different_kinds_learn_what_each_of_them_took() {
        let mut costs = StageCosts::made_up(3, 0.0);
        costs.processors[2].key = "another kind".into();
        let nodes: Vec<NodeId> = costs.program().node_ids().collect();
        let count = nodes.len() as f64;
        let stages = Stages { sizes: vec![nodes.len()], order: nodes.clone(), on: vec![On::each(vec![0, 1, 2])] };
        let devices: Vec<String> = costs.processors().map(str::to_owned).collect();
        let replica = |(device, seconds): (&String, f64)| MeasuredReplica {
            device: device.clone(),
            data_sets: 9,
            seconds: seconds * count,
            busy: 1.0,
            spans: Vec::new(),
        };
        let took = devices.iter().zip([2.0, 2.0, 8.0]).map(replica).collect();
        let stage =
            StagePlan { devices, nodes: Vec::new(), seconds: vec![count; 3], in_turn: true, bytes_in: 0, state: 0 };
        let plan = PipelinePlan {
            how: "given".into(),
            stages: vec![stage],
            period: count,
            latency: count,
            handover: 0.0,
            held: Vec::new(),
            in_flight: 0,
            candidates: Vec::new(),
            mapping: StageMapping::of(&stages, &costs),
        };
        let latency = LatencyShares { p50: 1.0, p95: 1.0, p99: 1.0 };
        let stages = vec![MeasuredStage { devices: took }];
        let measured = Measured { data_sets: 27, period: 1.0, stage_period: 1.0, latency, stages };
        assert_eq!(costs.learn_from(&plan, &measured), 8.0);
        let sums: Vec<f64> = (0..3).map(|processor| costs.sum(&nodes, processor) / count).collect();
        assert!(sums.iter().zip([2.0, 2.0, 8.0]).all(|(found, wanted)| (found - wanted).abs() < 1e-12), "{sums:?}");
    }
}
