//! What the exact search chooses from: groups of processors, told apart by how many of each class they have, and by how they
//! share an interval; with what passes between two of them.

use super::classes::{classes, links_alike};
use super::evaluate::{End, is_parted, transfer};
use super::mapping::Sharing;
use super::problem::{Parallel, Problem};

/// So many processors of each class, sharing an interval in one way.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) counts: Vec<usize>,
    pub(super) sharing: Sharing,
    /// What transfers depend on: groups of one side take equally long for equal data.
    pub(super) side: usize,
    /// Step of the number of a set of used processors that taking this group makes.
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

/// Most sides: the states of the search grow with their square.
const MOST_SIDES: usize = 32;

/// All groups of a problem.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) classes: Vec<Vec<usize>>,
    pub(super) groups: Vec<Group>,
    /// Number of sides; the outside is one more.
    pub(super) sides: usize,
    /// Seconds by side from × side to × place in the chain.
    hops: Vec<f64>,
    places: usize,
    /// Number of sets of used processors, up to exchanges within classes.
    pub(super) sets: usize,
    /// Whether these are all groups that mappings can have.
    pub(super) complete: bool,
}

impl Groups {
    /// Enumerates the groups; `None` where there are more than `most` sets of processors, or many sides.
    pub(super) fn new(problem: &Problem, most: usize) -> Option<Self> {
        let classes = classes(problem);
        let sets = classes.iter().try_fold(1usize, |sets, class| sets.checked_mul(class.len() + 1))?;
        if sets > most {
            return None;
        }
        let uniform = links_alike(problem);
        // Whether a datum comes to a group as to one processor.
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

    /// Any two groups of two sides that have no processor in common say what passes between the sides; where none have, nothing does.
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

    /// Ends of groups of two sides with different processors. Parts are equal: where they are not in truth, links are alike, so that only
    /// their sum matters; and who cannot run some stage has links all the same.
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

    /// Processors of a group: the first of each class, or the last, so that two groups that fit together have none in common.
    fn members(&self, counts: &[usize], front: bool) -> Vec<usize> {
        let pick = |(class, &count): (&Vec<usize>, &usize)| {
            let start = if front { 0 } else { class.len() - count };
            class[start..start + count].to_vec()
        };
        self.classes.iter().zip(counts).flat_map(pick).collect()
    }

    /// Seconds of the datum before stage `place` from one side to another; the side after the last is the outside.
    pub(super) fn hop(&self, from: usize, to: usize, place: usize) -> f64 {
        self.hops[(from * (self.sides + 1) + to) * self.places + place]
    }

    /// Processors of each class in a set.
    pub(super) fn counts(&self, set: usize) -> Vec<usize> {
        counts_of(set, &self.classes)
    }
}

/// Sets are numbers with a digit a class.
fn counts_of(mut set: usize, classes: &[Vec<usize>]) -> Vec<usize> {
    let digit = |class: &Vec<usize>| {
        let digit = set % (class.len() + 1);
        set /= class.len() + 1;
        digit
    };
    classes.iter().map(digit).collect()
}

/// Equal for groups between which and any other transfers take equally long. Parts of a datum do not matter where links are alike or processors are.
fn side_key(counts: &[usize], parted: bool, uniform: bool) -> u64 {
    let size = counts.iter().sum::<usize>() as u64;
    let classes = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let mask = if uniform { 0 } else { classes.fold(0u64, |mask, (class, _)| mask | 1 << (class % 48)) };
    mask << 12 | if parted { size } else { 0 }
}

/// Whether so many of each class are of one team, where there are teams.
fn is_team(problem: &Problem, classes: &[Vec<usize>], counts: &[usize]) -> bool {
    let used = classes.iter().zip(counts).filter(|(_, count)| **count > 0);
    problem.processors().can_group(&used.map(|(class, _)| class[0]).collect::<Vec<_>>())
}
