//! Changes between two results: for each model and configuration in both, the ratio of the times of runs, with its
//! confidence interval.

use super::results::ending;
use anabranch::compare::{Comparison, Configuration, Outcome, Ratio};
use anabranch_report::comparison::Names;
use anabranch_report::table::Table;
use anabranch_report::text::{digits, duration};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most characters of a model's name in the table.
const NAME: usize = 28;

/// All changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Changes {
    /// Changes by model and configuration, in the order of the later results.
    changed: Vec<Change>,
    /// Models and configurations of the earlier results that were not measured again.
    missing: Vec<(String, Configuration)>,
    /// Models and configurations that only the later results have.
    new: Vec<(String, Configuration)>,
}

/// Change of one model in one configuration. Times in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Change {
    model: String,
    #[serde(alias = "way")]
    configuration: Configuration,
    before_ms: f64,
    now_ms: f64,
    /// Ratio of the times now to the times before; `None` if there are too few runs.
    ratio: Option<Ratio>,
    runs_per_second_before: f64,
    runs_per_second_now: f64,
}

impl Changes {
    /// Compares the configurations that are in both.
    pub(super) fn between(before: &[Comparison], now: &[Comparison]) -> Self {
        let (before, now) = (outcomes(before), outcomes(now));
        let changed = now.iter().filter_map(|own| Some(Change::of(own.0, find(&before, own)?, own.1)));
        let alone = |own: &Vec<Named<'_>>, others: &Vec<Named<'_>>| {
            let alone = own.iter().filter(|own| find(others, own).is_none());
            alone.map(|(model, outcome)| ((*model).to_owned(), outcome.configuration.clone())).collect()
        };
        Self { changed: changed.collect(), missing: alone(&before, &now), new: alone(&now, &before) }
    }

    /// Describes the configurations that are slower by more than `percent` and certainly slower; `None` if there are
    /// none.
    pub(super) fn slower(&self, percent: f64) -> Option<String> {
        let most = 1.0 + percent / 100.0;
        let is_slower = |change: &&Change| change.ratio.is_some_and(|ratio| ratio.low > 1.0 && ratio.ratio > most);
        let slower: Vec<_> = self.changed.iter().filter(is_slower).collect();
        let worst = slower.iter().max_by(|a, b| a.times().total_cmp(&b.times()))?;
        let (count, all, times) = (slower.len(), self.changed.len(), worst.times());
        let (model, configuration) = (&worst.model, self.names().name(&worst.configuration));
        Some(format!(
            "{count} of {all} are slower by more than {percent} %, most {model} by {configuration}: {times:.3} times as long"
        ))
    }

    /// Describes why it is unknown whether a configuration became slower; `None` if all earlier results were compared.
    pub(super) fn untold(&self) -> Option<String> {
        if let Some((model, configuration)) = self.missing.first() {
            let (count, place) = (self.missing.len(), self.names().name(configuration));
            return Some(format!(
                "{count} of the earlier results have nothing to compare to, the first: {model} by {place}; models go by their \
                 paths as they are typed"
            ));
        }
        if self.changed.is_empty() {
            return Some(
                "nothing was compared: the earlier results have none of these models and configurations".into(),
            );
        }
        let few = self.changed.iter().find(|change| change.ratio.is_none())?;
        Some(format!("{} by {}: {}", few.model, self.names().name(&few.configuration), few.verdict()))
    }

    /// Returns names that distinguish all configurations.
    fn names(&self) -> Names {
        let changed = self.changed.iter().map(|change| &change.configuration);
        let alone = self.missing.iter().chain(&self.new).map(|(_, configuration)| configuration);
        Names::among(changed.chain(alone))
    }
}

/// An outcome with its model.
type Named<'a> = (&'a str, &'a Outcome);

/// Returns the outcome of the same model and configuration.
fn find<'a>(among: &[Named<'a>], (model, outcome): &Named<'_>) -> Option<&'a Outcome> {
    among.iter().find(|(other, one)| other == model && one.configuration == outcome.configuration).map(|(_, one)| *one)
}

/// Returns all outcomes with their models.
fn outcomes(comparisons: &[Comparison]) -> Vec<Named<'_>> {
    let mut all = Vec::new();
    for comparison in comparisons {
        all.extend(comparison.outcomes.iter().map(|outcome| (comparison.model.as_str(), outcome)));
    }
    all
}

impl Change {
    fn of(model: &str, before: &Outcome, now: &Outcome) -> Self {
        Self {
            model: model.to_owned(),
            configuration: now.configuration.clone(),
            before_ms: before.measured_ms.median,
            now_ms: now.measured_ms.median,
            ratio: Ratio::of(&before.samples_ms, &now.samples_ms),
            runs_per_second_before: before.runs_per_second,
            runs_per_second_now: now.runs_per_second,
        }
    }

    fn times(&self) -> f64 {
        self.ratio.map_or(1.0, |ratio| ratio.ratio)
    }

    /// Returns the change in words.
    fn verdict(&self) -> String {
        let percent = |times: f64| digits(100.0 * (times - 1.0).abs(), 1);
        match self.ratio {
            None => format!("too few runs to tell: --repeat {} or more", Ratio::FEWEST),
            Some(ratio) if !ratio.is_clear() => "no clear change".into(),
            Some(ratio) if ratio.ratio > 1.0 => format!("{} % slower", percent(ratio.ratio)),
            Some(ratio) => format!("{} % faster", percent(ratio.ratio)),
        }
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ms, names) = (|ms: f64| duration(ms * 1e-3), self.names());
        let mut table = Table::new("model | configuration | >before | >now | >times | 95 % interval | change");
        for change in &self.changed {
            let figures = change
                .ratio
                .map(|Ratio { ratio, low, high, .. }| (format!("{ratio:.3}"), format!("{low:.3}–{high:.3}")));
            let (times, within) = figures.unwrap_or_else(|| ("–".into(), "–".into()));
            table.row([
                ending(&change.model, NAME),
                names.name(&change.configuration),
                ms(change.before_ms),
                ms(change.now_ms),
                times,
                within,
                change.verdict(),
            ]);
        }
        writeln!(f, "since the earlier results\n\n{table}")?;
        let mut told = |what: &str, configurations: &[(String, Configuration)]| {
            configurations
                .iter()
                .try_for_each(|(model, configuration)| writeln!(f, "{model}, {}: {what}", names.name(configuration)))
        };
        told("not measured this time", &self.missing)?;
        told("not measured before", &self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch::planning::Order;

    fn comparison(model: &str, configurations: &[(&str, f64)]) -> Comparison {
        let configuration = |place: &str| serde_json::json!({ "place": place, "order": "pct", "stream": "auto" });
        let outcome = |(place, scale): &(&str, f64)| {
            let samples: Vec<f64> = (0..20).map(|at| scale * (1.0 + 0.001 * f64::from(at % 7))).collect();
            let median = serde_json::json!({ "median": samples[3], "low": 0.0, "high": 0.0, "confidence": 0.95 });
            let zero = serde_json::json!({ "min": 0.0, "p50": 0.0, "p90": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0 });
            serde_json::json!({
                "configuration": configuration(place), "place_ms": null, "predicted_ms": null, "measured_ms": median, "latencies_ms": zero,
                "runs_per_second": 1.0, "samples_ms": samples, "error_percent": null, "node_error_percent": null,
                "link_error_percent": null, "predicted_traffic_bytes": null, "traffic_bytes": 0, "devices": [],
                "outputs": { "same_bits": true, "within": true, "worst": 0.0 },
            })
        };
        let value = serde_json::json!({
            "model": model, "nodes": 1, "repeat": 20, "callers": 1, "warmup": 0, "refine": 0, "side_by_side": true,
            "devices": [], "outcomes": configurations.iter().map(outcome).collect::<Vec<_>>(), "failed": [], "notes": [],
        });
        serde_json::from_value(value).expect("a comparison")
    }

    #[test]
    fn changes_are_matched_by_model_and_way_and_told_with_their_certainty() {
        let before = [comparison("a", &[("heft", 1.0), ("cpu", 2.0)]), comparison("b", &[("heft", 3.0)])];
        let now = [comparison("a", &[("heft", 1.1), ("auto", 1.0)]), comparison("b", &[("heft", 3.0)])];
        let changes = Changes::between(&before, &now);
        let told: Vec<_> = changes.changed.iter().map(|change| (change.model.as_str(), change.verdict())).collect();
        assert_eq!(told, [("a", "10.0 % slower".to_owned()), ("b", "no clear change".to_owned())]);
        let names = |configurations: &[(String, Configuration)]| {
            configurations.iter().map(|(m, configuration)| format!("{m} {}", configuration.place)).collect::<Vec<_>>()
        };
        assert_eq!((names(&changes.missing), names(&changes.new)), (vec!["a cpu".into()], vec!["a auto".into()]));
        assert!(changes.untold().is_some_and(|told| told.contains("1 of the earlier") && told.contains("a by cpu")));
        assert!(changes.slower(5.0).is_some_and(|told| told.contains("1 of 2") && told.contains("a by heft")));
        assert_eq!(changes.slower(20.0), None);
        assert_eq!(Changes::between(&now, &before).slower(0.0), None, "faster is not slower");
        let text = changes.to_string();
        assert!(text.contains("10.0 % slower") && text.contains("a, cpu: not measured this time"), "{text}");
    }

    #[test]
    fn configurations_of_one_place_are_told_apart() {
        let before = [comparison("a", &[("heft", 1.0)])];
        let mut now = before.clone();
        let mut other = now[0].outcomes[0].clone();
        other.configuration.order = Some(Order::Fifo);
        now[0].outcomes.push(other);
        let text = Changes::between(&before, &now).to_string();
        assert!(text.contains("heft/pct") && text.contains("a, heft/fifo: not measured before"), "{text}");
        let untold = Changes::between(&now, &before).untold();
        assert!(untold.is_some_and(|untold| untold.contains("a by heft/fifo")));
    }

    #[test]
    fn few_runs_tell_nothing() {
        let mut few = comparison("a", &[("heft", 1.0)]);
        few.outcomes[0].samples_ms.truncate(3);
        let changes = Changes::between(&[few.clone()], &[few]);
        assert!(changes.changed[0].verdict().contains("too few runs"), "{changes}");
        assert!(changes.untold().is_some_and(|told| told.contains("a by heft: too few runs")), "{changes}");
    }

    #[test]
    fn only_what_was_compared_can_pass() {
        let (some, none) = ([comparison("a", &[("heft", 1.0)])], [comparison("a", &[])]);
        assert_eq!(Changes::between(&some, &some).untold(), None);
        assert!(Changes::between(&none, &some).untold().is_some_and(|told| told.contains("nothing was compared")));
        let moved = [comparison("./a", &[("heft", 1.0)])];
        assert!(Changes::between(&some, &moved).untold().is_some_and(|told| told.contains("as they are typed")));
    }
}
