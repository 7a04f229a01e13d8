//! Groups of processors that the exact search chooses from, with the transfer times between them. A group is defined by
//! its number of processors of each class and by its sharing.

use super::classes::{classes, links_alike};
use super::evaluate::{End, is_parted, transfer};
use super::mapping::Sharing;
use super::problem::{Parallel, Problem};

/// Number of processors of each class that share an interval in one way.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) counts: Vec<usize>,
    pub(super) sharing: Sharing,
    /// Class of the group for transfers: for equal data, groups of one side take equally long.
    pub(super) side: usize,
    /// Increment of the number of a set of used processors if this group is added.
    pub(super) step: usize,
}

impl Group {
    pub(super) fn size(&self) -> usize {
        self.counts.iter().sum()
    }

    pub(super) fn replicas(&self) -> usize {
        if self.sharing == Sharing::DataParallel { 1 } else { self.size() }
    }
}

/// Most sides: the states of the search grow with the square of the sides.
const MOST_SIDES: usize = 32;

/// All groups of a problem.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) classes: Vec<Vec<usize>>,
    pub(super) groups: Vec<Group>,
    /// Number of sides; this number itself stands for the outside.
    pub(super) sides: usize,
    /// Seconds, indexed by source side × destination side × position in the chain.
    hops: Vec<f64>,
    places: usize,
    /// Number of sets of used processors, up to exchanges within classes.
    pub(super) sets: usize,
    /// Whether these are all groups that a mapping can have.
    pub(super) complete: bool,
}

impl Groups {
    /// Enumerates the groups; returns `None` if there are more than `most` sets of processors, or too many sides.
    pub(super) fn new(problem: &Problem, most: usize) -> Option<Self> {
        let classes = classes(problem);
        let sets = classes.iter().try_fold(1usize, |sets, class| sets.checked_mul(class.len() + 1))?;
        if sets > most {
            return None;
        }
        let uniform = links_alike(problem);
        // Whether a group receives a datum as a whole, like one processor.
        let as_one = !is_parted(problem, Sharing::DataParallel);
        let rules = problem.rules();
        let mut sides: Vec<u64> = Vec::new();
        let mut groups = Vec::new();
        for step in 1..sets {
            let counts = counts_of(step, &classes);
            let (size, kinds) = (counts.iter().sum::<usize>(), counts.iter().filter(|&&count| count > 0).count());
            let fits = if as_one { is_team(problem, &classes, &counts) } else { uniform || kinds == 1 };
            let parallel = rules.parallel != Parallel::Never && size > 1 && fits;
            let ways = [
                (Sharing::Single, size == 1),
                (Sharing::Replicated, size > 1 && rules.replication),
                (Sharing::DataParallel, parallel),
            ];
            for (sharing, _) in ways.into_iter().filter(|&(_, possible)| possible) {
                let key = side_key(&counts, is_parted(problem, sharing), uniform);
                let side = sides.iter().position(|&known| known == key).unwrap_or_else(|| {
                    sides.push(key);
                    sides.len() - 1
                });
                if side >= MOST_SIDES {
                    return None;
                }
                groups.push(Group { counts: counts.clone(), sharing, side, step });
            }
        }
        let complete = rules.parallel == Parallel::Never || as_one || uniform || classes.len() == 1;
        let (places, count) = (problem.stage_count() + 1, sides.len());
        let mut all = Groups { classes, groups, sides: count, hops: Vec::new(), places, sets, complete };
        all.hops = all.tabulate(problem);
        Some(all)
    }

    /// Tabulates the transfers between sides. Any two disjoint groups represent their sides; if none are disjoint, the
    /// time is infinite.
    fn tabulate(&self, problem: &Problem) -> Vec<f64> {
        let mut hops = Vec::with_capacity((self.sides + 1).pow(2) * self.places);
        for from in 0..=self.sides {
            for to in 0..=self.sides {
                let pair = self.pair(problem, from, to);
                let hop = |place| match &pair {
                    Some((sender, receiver)) => transfer(problem, sender, receiver, place),
                    None => f64::INFINITY,
                };
                hops.extend((0..self.places).map(hop));
            }
        }
        hops
    }

    /// Returns the ends of disjoint groups of two sides, with equal parts. If the real parts differ, all links are
    /// identical, so that only the sum of the parts matters. A processor that cannot run some stage has links too.
    fn pair(&self, problem: &Problem, from: usize, to: usize) -> Option<(End, End)> {
        let of = |side| self.groups.iter().filter(move |group| group.side == side);
        let disjoint = |a: &Group, b: &Group| {
            let mut counts = a.counts.iter().zip(&b.counts).zip(&self.classes);
            counts.all(|((a, b), class)| a + b <= class.len())
        };
        let (first, second) = match (from == self.sides, to == self.sides) {
            (true, true) => (None, None),
            (false, true) => (of(from).next(), None),
            (true, false) => (None, of(to).next()),
            (false, false) => {
                let (a, b) = of(from).find_map(|a| Some((a, of(to).find(|b| disjoint(a, b))?)))?;
                (Some(a), Some(b))
            }
        };
        let of_group = |group: &Group, front| End::equal(problem, &self.members(&group.counts, front), group.sharing);
        let end = |group: Option<&Group>, front| group.map_or_else(End::outside, |group| of_group(group, front));
        Some((end(first, true), end(second, false)))
    }

    /// Returns the processors of a group: the first of each class, or the last, so that two groups that fit together
    /// are disjoint.
    fn members(&self, counts: &[usize], front: bool) -> Vec<usize> {
        let pick = |(class, &count): (&Vec<usize>, &usize)| {
            let start = if front { 0 } else { class.len() - count };
            class[start..start + count].to_vec()
        };
        self.classes.iter().zip(counts).flat_map(pick).collect()
    }

    /// Returns the seconds of the datum before stage `place` from one side to another; the side after the last is the
    /// outside.
    pub(super) fn hop(&self, from: usize, to: usize, place: usize) -> f64 {
        self.hops[(from * (self.sides + 1) + to) * self.places + place]
    }

    /// Returns the number of processors of each class in a set.
    pub(super) fn counts(&self, set: usize) -> Vec<usize> {
        counts_of(set, &self.classes)
    }
}

/// Decodes the number of a set, which has one digit per class.
fn counts_of(mut set: usize, classes: &[Vec<usize>]) -> Vec<usize> {
    let digit = |class: &Vec<usize>| {
        let digit = set % (class.len() + 1);
        set /= class.len() + 1;
        digit
    };
    classes.iter().map(digit).collect()
}

/// Key that is equal for groups with identical transfer times. The parts of a datum do not matter if links or
/// processors are identical.
fn side_key(counts: &[usize], parted: bool, uniform: bool) -> u64 {
    let size = counts.iter().sum::<usize>() as u64;
    let classes = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let mask = if uniform { 0 } else { classes.fold(0u64, |mask, (class, _)| mask | 1 << (class % 48)) };
    mask << 12 | if parted { size } else { 0 }
}

/// Whether these numbers of processors are of one team; true if there are no teams.
fn is_team(problem: &Problem, classes: &[Vec<usize>], counts: &[usize]) -> bool {
    let used = classes.iter().zip(counts).filter(|(_, count)| **count > 0);
    problem.processors().can_group(&used.map(|(class, _)| class[0]).collect::<Vec<_>>())
}
