//! Best split into contiguous pieces, one per device, by dynamic programming (after Tarnawski et al. 2020).
//!
//! If memory is short, strategies that place task by task fill a device before they know what must follow there. This
//! method sees the whole graph, but only pieces of one order: all units `u(1) … u(n)`, by the mean position of their
//! members in the order of least memory ([`Frugal`]). There few data are live between two neighbours, so cuts are
//! cheap.
//!
//! *Problem*: cut the order into pieces and give each piece a device of its own. A device has each unit of its piece
//! among its feasible units, and its memory holds their demands. The cost of a split is the sum of the times of all
//! units on their devices, plus the cost of each cut: the longest time that a datum is under way after its sender has
//! ended the piece. Let a datum cross the cut at `i` from `a` to `b`. It costs its transfer from `a` to `b`, but not
//! the times on `a` of the units between its producer and `i` that `a` can run. So pieces run one after the other, and
//! data of an earlier piece count as if the piece before the cut had made them. The cost is an estimate; the caller
//! simulates the placement.
//!
//! *Method*: devices with the same memory, feasible units and times form a class. Let `f(i, S, a)` be the least cost of
//! the first `i` units if `S` has the number of devices used of each class, and the last piece is on class `a`. Then
//!
//! `f(j, S + a, a) = min over i < j of g(i, S, a) + time(i … j, a)` if the piece fits, and
//!
//! `g(i, S, b) = min over a of f(i, S, a) + cut(i, a, b)`.
//!
//! *Complexity*: `O(K² S C + K C² (S + data))` time and `O(K S C)` memory, for `K` places of cuts, `C` classes and `S`
//! sets of used devices. `K` is as great as the limits below permit. If not all cuts are considered, each stretch of
//! the order offers the cut that the fewest bytes cross. There is no split if memory limits nothing, because then few
//! cuts pay in a sum. There is none either if the limits leave too few cuts.

use crate::graph::UnitId;
use crate::order::Frugal;
use crate::platform::DeviceId;
use crate::problem::Problem;
use std::ops::Range;

/// Most steps of the programme, most entries of its tables, and most sets of used devices.
const STEPS: usize = 30_000_000;
const ENTRIES: usize = 1 << 20;
const SETS: usize = 1 << 14;
/// Fewest places of cuts that are worth a search, if there are so many units.
const CUTS: usize = 8;

/// Returns the device of each task in the split of least cost; `None` if there is none within the limits.
pub(super) fn split(problem: &Problem<'_>) -> Option<Vec<DeviceId>> {
    let line = Line::of(problem)?;
    let (_, pieces) = Programme::solve(&line)?;
    let mut device_of = vec![DeviceId(0); problem.graph().task_count()];
    for (range, device) in pieces {
        for &unit in &line.units[range] {
            problem.graph().members(unit).iter().for_each(|member| device_of[member.index()] = device);
        }
    }
    Some(device_of)
}

/// Datum between two positions of the order.
#[derive(Debug, Clone, Copy)]
struct Span {
    producer: usize,
    last_consumer: usize,
    bytes: u64,
}

/// Units in order, classes of devices, and sums over the order.
struct Line<'p> {
    problem: &'p Problem<'p>,
    units: Vec<UnitId>,
    spans: Vec<Span>,
    classes: Vec<Vec<DeviceId>>,
    /// Product of the numbers of devices plus 1 of the classes before each class; the last is the number of sets.
    radix: Vec<usize>,
    /// First positions of pieces that are considered, and the end of the order.
    places: Vec<usize>,
    /// Demand of the units before each position.
    demand: Vec<u128>,
    /// Time, and number of units that are not feasible, before each position, by class.
    before: Vec<Vec<(f64, usize)>>,
}

impl<'p> Line<'p> {
    fn of(problem: &'p Problem<'p>) -> Option<Self> {
        let units = in_order(problem);
        let mut demand = vec![0];
        demand.extend(units.iter().scan(0u128, |sum, &unit| {
            *sum += u128::from(problem.demand(unit));
            Some(*sum)
        }));
        let all = *demand.last()?;
        if !problem.platform().devices().iter().any(|device| device.memory.is_some_and(|most| u128::from(most) < all)) {
            return None;
        }
        let classes = classes(problem)?;
        let radix = radix(&classes)?;
        let states = radix.last()? * classes.len();
        let spans = spans(problem, &units);
        let pairs = classes.len().pow(2) * spans.len().max(1);
        let most = (STEPS / states).isqrt().min(ENTRIES / states).min(STEPS / pairs);
        if most < CUTS.min(units.len()) {
            return None;
        }
        let places = places(&spans, units.len(), most);
        let before = classes.iter().map(|class| sums(problem, &units, class[0])).collect();
        Some(Line { problem, units, spans, classes, radix, places, demand, before })
    }

    fn sets(&self) -> usize {
        self.radix[self.classes.len()]
    }

    /// Returns the number of devices of `class` in a set.
    fn used(&self, set: usize, class: usize) -> usize {
        set / self.radix[class] % (self.classes[class].len() + 1)
    }

    /// Returns the time of a piece on a class; `None` if it cannot be there.
    fn time(&self, piece: Range<usize>, class: usize) -> Option<f64> {
        let ((from, excluded), (to, all)) = (self.before[class][piece.start], self.before[class][piece.end]);
        let memory = self.problem.platform().device(self.classes[class][0]).memory.map_or(u128::MAX, u128::from);
        (excluded == all && self.demand[piece.end] - self.demand[piece.start] <= memory).then_some(to - from)
    }

    /// Returns the cost of a cut at a position between pieces on two classes.
    fn cut(&self, at: usize, [from, to]: [usize; 2]) -> f64 {
        let since = |producer: usize| self.before[from][at].0 - self.before[from][producer + 1].0;
        let sender = self.classes[from][0];
        let receiver = if from == to { self.classes[to].get(1) } else { self.classes[to].first() };
        let crossing = self.spans.iter().filter(|span| span.producer < at && at <= span.last_consumer);
        let cost = |span: &Span, to| self.problem.transfer_time(span.bytes, sender, to) - since(span.producer);
        receiver.map_or(0.0, |&to| crossing.map(|span| cost(span, to)).fold(0.0, f64::max))
    }
}

/// Returns all units by the mean position of their members in the order of least memory; on a tie, by id.
fn in_order(problem: &Problem<'_>) -> Vec<UnitId> {
    let graph = problem.graph();
    let mut sums = vec![0.0; graph.unit_count()];
    for (place, task) in Frugal::walk(graph).into_iter().enumerate() {
        let unit = graph.unit(task);
        sums[unit.index()] += place as f64 / graph.members(unit).len() as f64;
    }
    let mut units: Vec<UnitId> = graph.unit_ids().collect();
    units.sort_by(|one, other| sums[one.index()].total_cmp(&sums[other.index()]));
    units
}

/// Returns the data that go forward in the order. The others, which only units of several tasks have, count nothing.
fn spans(problem: &Problem<'_>, units: &[UnitId]) -> Vec<Span> {
    let graph = problem.graph();
    let mut place = vec![0; units.len()];
    units.iter().enumerate().for_each(|(position, unit)| place[unit.index()] = position);
    let span = |datum| {
        let producer = place[graph.unit(graph.producer(datum)).index()];
        let last_consumer = graph.consumers(datum).iter().map(|&task| place[graph.unit(task).index()]).max()?;
        (last_consumer > producer).then_some(Span { producer, last_consumer, bytes: graph.bytes(datum) })
    };
    graph.datum_ids().filter_map(span).collect()
}

/// Returns 0, at most `most` positions for cuts, and `count`, ascending.
fn places(spans: &[Span], count: usize, most: usize) -> Vec<usize> {
    let mut change = vec![0i128; count + 1];
    for span in spans {
        change[span.producer + 1] += i128::from(span.bytes);
        change[span.last_consumer + 1] -= i128::from(span.bytes);
    }
    let crossing: Vec<i128> = change
        .iter()
        .scan(0, |sum, &change| {
            *sum += change;
            Some(*sum)
        })
        .collect();
    let (inner, parts) = (count.saturating_sub(1), most.min(count.saturating_sub(1)));
    let stretch = |part: usize| 1 + part * inner / parts..1 + (part + 1) * inner / parts;
    let cuts = (0..parts).filter_map(|part| stretch(part).min_by_key(|&at| crossing[at]));
    std::iter::once(0).chain(cuts).chain([count]).collect()
}

/// Returns the sums of times and the numbers of units that are not feasible on `device` before each position.
fn sums(problem: &Problem<'_>, units: &[UnitId], device: DeviceId) -> Vec<(f64, usize)> {
    let mut sums = vec![(0.0, 0)];
    sums.extend(units.iter().scan((0.0, 0), |(time, excluded), &unit| {
        match problem.is_feasible(unit, device) {
            true => *time += problem.unit_time(unit, device),
            false => *excluded += 1,
        }
        Some((*time, *excluded))
    }));
    sums
}

/// Returns the classes of devices, each ascending; `None` if there are too many.
fn classes(problem: &Problem<'_>) -> Option<Vec<Vec<DeviceId>>> {
    let (graph, platform) = (problem.graph(), problem.platform());
    let time = |unit, device| problem.is_feasible(unit, device).then(|| problem.unit_time(unit, device));
    let are_equal = |one, other| {
        platform.device(one).memory == platform.device(other).memory
            && graph.unit_ids().all(|unit| time(unit, one) == time(unit, other))
    };
    let mut classes: Vec<Vec<DeviceId>> = Vec::new();
    for device in platform.device_ids() {
        match classes.iter().position(|class| are_equal(class[0], device)) {
            Some(class) => classes[class].push(device),
            // Each class doubles the number of sets at least.
            None if classes.len() == SETS.ilog2() as usize => return None,
            None => classes.push(vec![device]),
        }
    }
    Some(classes)
}

/// Returns the weight of each class in the number of a set of devices; `None` if there are too many sets.
fn radix(classes: &[Vec<DeviceId>]) -> Option<Vec<usize>> {
    let mut radix = vec![1];
    for class in classes {
        let sets = radix.last()? * (class.len() + 1);
        if sets > SETS {
            return None;
        }
        radix.push(sets);
    }
    Some(radix)
}

/// Units of each piece, with its device.
type Pieces = Vec<(Range<usize>, DeviceId)>;

/// Tables of the programme: costs by place, set and class.
struct Programme<'l> {
    line: &'l Line<'l>,
    /// Cost `f`, with the place where the last piece starts.
    ended: Vec<(f64, u32)>,
    /// Cost `g`, with the class of the piece before.
    open: Vec<(f64, u32)>,
}

impl<'l> Programme<'l> {
    /// Returns the split of least cost, with that cost.
    fn solve(line: &'l Line<'l>) -> Option<(f64, Pieces)> {
        let states = line.places.len() * line.sets() * line.classes.len();
        let none = (f64::INFINITY, 0);
        let mut programme = Programme { line, ended: vec![none; states], open: vec![none; states] };
        for class in 0..line.classes.len() {
            let start = programme.state(0, 0, class);
            programme.open[start].0 = 0.0;
        }
        for end in 1..line.places.len() {
            programme.end_pieces(end);
            if end + 1 < line.places.len() {
                programme.open_pieces(end);
            }
        }
        programme.best()
    }

    fn state(&self, place: usize, set: usize, class: usize) -> usize {
        (place * self.line.sets() + set) * self.line.classes.len() + class
    }

    /// Ends a piece at a place, in all ways.
    fn end_pieces(&mut self, end: usize) {
        let line = self.line;
        for (class, devices) in line.classes.iter().enumerate() {
            for start in (0..end).rev() {
                // A longer piece fits no better.
                let Some(time) = line.time(line.places[start]..line.places[end], class) else { break };
                for set in (0..line.sets()).filter(|&set| line.used(set, class) < devices.len()) {
                    let cost = self.open[self.state(start, set, class)].0 + time;
                    let state = self.state(end, set + line.radix[class], class);
                    if cost < self.ended[state].0 {
                        self.ended[state] = (cost, start as u32);
                    }
                }
            }
        }
    }

    /// Opens the piece from a place on, in all ways.
    fn open_pieces(&mut self, place: usize) {
        for from in 0..self.line.classes.len() {
            for to in 0..self.line.classes.len() {
                let cut = self.line.cut(self.line.places[place], [from, to]);
                for set in 0..self.line.sets() {
                    let cost = self.ended[self.state(place, set, from)].0 + cut;
                    let state = self.state(place, set, to);
                    if cost < self.open[state].0 {
                        self.open[state] = (cost, from as u32);
                    }
                }
            }
        }
    }

    /// Follows the best split from its end.
    fn best(&self) -> Option<(f64, Pieces)> {
        let line = self.line;
        let mut place = line.places.len() - 1;
        let ends = (0..line.sets()).flat_map(|set| (0..line.classes.len()).map(move |class| (set, class)));
        let cost = |&(set, class): &(usize, usize)| self.ended[self.state(place, set, class)].0;
        let (mut set, mut class) = ends.min_by(|one, other| cost(one).total_cmp(&cost(other)))?;
        let least = cost(&(set, class));
        let mut pieces = Vec::new();
        while least.is_finite() && place > 0 {
            let start = self.ended[self.state(place, set, class)].1 as usize;
            let device = line.classes[class][line.used(set, class) - 1];
            pieces.push((line.places[start]..line.places[place], device));
            set -= line.radix[class];
            (place, class) = (start, self.open[self.state(start, set, class)].1 as usize);
        }
        least.is_finite().then_some((least, pieces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check_placement;
    use crate::graph::{GraphBuilder, Task, TaskId};
    use crate::loaded::LoadedProblem;
    use crate::platform::{Device, DeviceKind, DeviceKinds, Platform};
    use crate::problem::MemoryRule;
    use arbtest::arbitrary::{Result, Unstructured};

    fn problem(random: &mut Unstructured<'_>, groups: bool) -> Result<LoadedProblem> {
        let mut builder = GraphBuilder::new();
        let count = random.int_in_range(1..=7u32)?;
        for _ in 0..count {
            let kinds = *random.choose(&[DeviceKinds::ALL, DeviceKinds::ALL, DeviceKinds::CPU])?;
            let task = Task::new("t").with_operations(f64::from(random.int_in_range(0..=9u8)?)).with_allowed(kinds);
            builder.task(task.with_memory(random.int_in_range(0..=9)?));
        }
        for consumer in 1..count {
            for producer in 0..consumer {
                if random.ratio(1, 3)? {
                    builder.edge(TaskId(producer), TaskId(consumer), random.int_in_range(0..=40)?);
                }
                if groups && random.ratio(1, 9)? {
                    builder.colocate(TaskId(producer), TaskId(consumer));
                }
            }
        }
        let mut devices = vec![Device::new("host", DeviceKind::Cpu).with_speed(0.5)];
        for _ in 0..random.int_in_range(1..=3u8)? {
            let kind = *random.choose(&[DeviceKind::Cpu, DeviceKind::Gpu])?;
            let speed = f64::from(random.int_in_range(1..=2u8)?);
            devices.push(Device::new("d", kind).with_speed(speed).with_memory(random.int_in_range(0..=30)?));
        }
        let platform = Platform::uniform(devices, 0.0, 10.0).unwrap();
        Ok(LoadedProblem::new("small", builder.build().unwrap(), platform, MemoryRule::Resident))
    }

    /// Returns the least cost of all splits of `order` from `first` on, as the definition has it.
    fn least(problem: &Problem<'_>, order: &[TaskId], first: usize, pieces: &mut Vec<(usize, DeviceId)>) -> f64 {
        let graph = problem.graph();
        let time = |range: Range<usize>, device| {
            let tasks = order[range].iter().filter(|&&task| problem.is_feasible(graph.unit(task), device));
            tasks.map(|&task| problem.time(task, device)).sum::<f64>()
        };
        let place = |task| order.iter().position(|&other| other == task).unwrap();
        let last = pieces.last().copied();
        let cut = |to| {
            let Some((_, from)) = last else { return 0.0 };
            let mut cost = 0.0f64;
            for datum in graph.datum_ids() {
                let producer = place(graph.producer(datum));
                if producer < first && graph.consumers(datum).iter().any(|&task| place(task) >= first) {
                    let transfer = problem.transfer_time(graph.bytes(datum), from, to);
                    cost = cost.max(transfer - time(producer + 1..first, from));
                }
            }
            cost
        };
        let mut best = if first == order.len() { 0.0 } else { f64::INFINITY };
        for device in problem.platform().device_ids() {
            if pieces.iter().any(|piece| piece.1 == device) {
                continue;
            }
            let cut = cut(device);
            for end in first + 1..=order.len() {
                let mut units = order[first..end].iter().map(|&task| graph.unit(task));
                let bytes: u64 = units.clone().map(|unit| problem.demand(unit)).sum();
                let memory = problem.platform().device(device).memory;
                if memory.is_some_and(|most| bytes > most) || !units.all(|unit| problem.is_feasible(unit, device)) {
                    break;
                }
                pieces.push((first, device));
                best = best.min(cut + time(first..end, device) + least(problem, order, end, pieces));
                pieces.pop();
            }
        }
        best
    }

    #[test]
    fn no_split_costs_less() {
        let mut found = 0;
        arbtest::arbtest(|random| {
            let loaded = problem(random, false)?;
            let Ok(problem) = loaded.problem() else { return Ok(()) };
            let Some(line) = Line::of(&problem) else { return Ok(()) };
            let order: Vec<TaskId> = line.units.iter().map(|&unit| problem.graph().members(unit)[0]).collect();
            let expected = least(&problem, &order, 0, &mut Vec::new());
            match Programme::solve(&line) {
                None => assert_eq!(expected, f64::INFINITY),
                Some((cost, _)) => assert!((cost - expected).abs() < 1e-9, "{cost} {expected}"),
            }
            found += u32::from(expected.is_finite());
            Ok(())
        })
        .budget_ms(500);
        assert!(found > 0);
    }

    #[test]
    fn a_split_keeps_all_constraints() {
        arbtest::arbtest(|random| {
            let loaded = problem(random, true)?;
            let Ok(problem) = loaded.problem() else { return Ok(()) };
            if let Some(device_of) = split(&problem) {
                assert_eq!(check_placement(&problem, &device_of), []);
            }
            Ok(())
        })
        .budget_ms(300);
    }

    /// The cheapest of the cuts of each stretch is offered.
    #[test]
    fn cuts_are_where_few_bytes_cross() {
        let span = |producer, last_consumer, bytes| Span { producer, last_consumer, bytes };
        let spans = [span(0, 1, 9), span(1, 2, 5), span(2, 3, 7), span(3, 4, 2), span(0, 4, 1)];
        assert_eq!(places(&spans, 5, 9), [0, 1, 2, 3, 4, 5]);
        assert_eq!(places(&spans, 5, 2), [0, 2, 4, 5]);
        assert_eq!(places(&[], 1, 3), [0, 1]);
    }
}
