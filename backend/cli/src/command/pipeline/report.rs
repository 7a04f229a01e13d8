//! Results of every method on one chain, as a table, as JSON, and as a chart.

use anabranch_placement::pipeline::check::check;
use anabranch_placement::pipeline::{
    ChooseError, ChooseOptions, Chosen, Goal, Mapping, Performance, Problem, Sharing, best_of, choose_with, front,
    heuristics, lower_bound,
};
use anabranch_placement::quoted::Line;
use anabranch_report::chart::{Point, Scatter};
use anabranch_report::table::Table;
use anabranch_report::text::{count, duration};
use serde::Serialize;
use std::fmt::Write;

/// Report on one chain.
#[derive(Serialize)]
pub(super) struct Report {
    name: String,
    stages: usize,
    processors: usize,
    goal: Goal,
    /// Bounds on the period and the latency of any mapping.
    bound: Performance,
    chosen: Row,
    intervals: Vec<IntervalRow>,
    heuristics: Vec<Row>,
    front: Vec<Row>,
    front_proven: bool,
    #[serde(skip)]
    wrong: Option<String>,
}

#[derive(Serialize, Clone)]
struct Row {
    method: String,
    period: f64,
    latency: f64,
    /// Whether it keeps the goal's limit.
    admitted: bool,
    /// Whether it is proven to be optimal.
    proven: bool,
    mapping: Mapping,
}

/// An interval with the names of its stages and processors.
#[derive(Serialize)]
struct IntervalRow {
    stages: Vec<String>,
    processors: Vec<String>,
    sharing: Sharing,
}

impl Report {
    pub(super) fn new(
        name: String,
        problem: &Problem,
        goal: Goal,
        options: ChooseOptions,
        seed: u64,
    ) -> Result<Self, ChooseError> {
        let of = |chosen: &Chosen| Row {
            method: chosen.how.to_owned(),
            period: chosen.performance.period,
            latency: chosen.performance.latency,
            admitted: goal.admits(chosen.performance),
            proven: chosen.proven,
            mapping: chosen.mapping.clone(),
        };
        let (front, front_proven) = front(problem, options);
        let chosen = best_of(choose_with(problem, goal, options), (&front, front_proven), problem, goal)?;
        let found = heuristics(problem, goal, seed).into_iter().map(|(name, mapping, performance)| Row {
            method: name.to_owned(),
            period: performance.period,
            latency: performance.latency,
            admitted: goal.admits(performance),
            proven: false,
            mapping,
        });
        let heuristics: Vec<Row> = found.collect();
        let front: Vec<Row> = front.iter().map(of).collect();
        let chosen = of(&chosen);
        let wrong = [&chosen].into_iter().chain(&heuristics).chain(&front).find_map(|row| {
            let claimed = Performance { period: row.period, latency: row.latency };
            let violation = check(problem, &row.mapping, claimed).into_iter().next()?;
            Some(format!("{}: {violation}", row.method))
        });
        Ok(Report {
            name,
            stages: problem.stage_count(),
            processors: problem.processor_count(),
            goal,
            bound: Performance {
                period: lower_bound(problem, Goal::Period),
                latency: lower_bound(problem, Goal::Latency),
            },
            intervals: intervals(problem, &chosen.mapping),
            chosen,
            heuristics,
            front,
            front_proven,
            wrong,
        })
    }

    /// Returns the checker's message on the first mapping that it rejects.
    pub(super) fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }

    pub(super) fn text(&self) -> String {
        let Row { method, period, latency, proven, .. } = &self.chosen;
        let mut text = format!(
            "{}: {} on {}, {}\n\n",
            Line(&self.name),
            count(self.stages, "stage"),
            count(self.processors, "processor"),
            self.sought()
        );
        let known = if *proven { "the best there is" } else { "not proven to be the best" };
        let (period, latency) = (duration(*period), duration(*latency));
        // Cannot fail: this writes to a string.
        let _ = writeln!(text, "chosen: period {period}, latency {latency}, by {method}; {known}\n");
        let mut mapping = Table::new("interval | stages | processors | sharing");
        for (number, interval) in self.intervals.iter().enumerate() {
            let ends = [interval.stages.first(), interval.stages.last()].map(|name| name.map_or("", String::as_str));
            let stages = if interval.stages.len() > 1 { ends.join(" … ") } else { ends[0].to_owned() };
            let sharing = match interval.sharing {
                Sharing::Single => "alone",
                Sharing::Replicated => "replicated",
                Sharing::DataParallel => "data-parallel",
            };
            mapping.row([(number + 1).to_string(), stages, interval.processors.join(", "), sharing.to_owned()]);
        }
        let mut methods =
            Table::new("method | >period | >over the bound | >latency | >over the bound | within the limit");
        for row in self.heuristics.iter().chain([&Row { method: "chosen".into(), ..self.chosen.clone() }]) {
            methods.row(self.cells(row));
        }
        let mut best = Table::new("front | >period | >over the bound | >latency | >over the bound | within the limit");
        self.front.iter().for_each(|row| best.row(self.cells(row)));
        let whole = if self.front_proven { "all that there are" } else { "those that were found" };
        let Performance { period, latency } = self.bound;
        let (period, latency) = (duration(period), duration(latency));
        let _ = write!(
            text,
            "{mapping}\n{methods}\nno mapping has a period below {period} or a latency below {latency}\n\n"
        );
        let _ = write!(text, "mappings that none beats in both, {whole}:\n{best}");
        text
    }

    fn sought(&self) -> String {
        match self.goal {
            Goal::Period => "for the least period".into(),
            Goal::Latency => "for the least latency".into(),
            Goal::PeriodWithin { latency } => {
                format!("for the least period with a latency of at most {}", duration(latency))
            }
            Goal::LatencyWithin { period } => {
                format!("for the least latency with a period of at most {}", duration(period))
            }
        }
    }

    fn cells(&self, row: &Row) -> [String; 6] {
        let over = |value: f64, bound: f64| {
            if bound > 0.0 { format!("{:.1} %", 100.0 * (value / bound - 1.0).max(0.0)) } else { String::new() }
        };
        [
            row.method.clone(),
            duration(row.period),
            over(row.period, self.bound.period),
            duration(row.latency),
            over(row.latency, self.bound.latency),
            if row.admitted { "yes" } else { "no" }.to_owned(),
        ]
    }

    pub(super) fn chart(&self) -> Scatter {
        let point = |row: &Row| Point { name: row.method.clone(), x: row.latency, y: row.period };
        let chosen = Point { name: "chosen".into(), ..point(&self.chosen) };
        Scatter {
            title: format!("Period over latency: {}", self.name),
            subtitle: [
                format!("{} on {}", count(self.stages, "stage"), count(self.processors, "processor")),
                self.sought(),
            ]
            .join(", "),
            x: "latency".into(),
            y: "period".into(),
            format: duration,
            points: self.heuristics.iter().map(point).chain([chosen]).collect(),
            front: self.front.iter().map(point).collect(),
            front_name: if self.front_proven { "front, proven" } else { "front, as far as it was found" }.into(),
            limit: Some(("no period is shorter".into(), self.bound.period)),
        }
    }
}

fn intervals(problem: &Problem, mapping: &Mapping) -> Vec<IntervalRow> {
    let row = |interval: &anabranch_placement::pipeline::Interval| IntervalRow {
        stages: problem.stages().stages[interval.stages.clone()].iter().map(|stage| stage.name.clone()).collect(),
        processors: interval.processors.iter().map(|&it| problem.processors().names()[it].clone()).collect(),
        sharing: interval.sharing,
    };
    mapping.intervals.iter().map(row).collect()
}
