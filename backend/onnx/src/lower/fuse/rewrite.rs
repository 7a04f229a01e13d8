//! Rewrites by name, and sets of rewrites.

use super::graph::Graph;
use super::{appends, columns, common, epilogues, hoists, maps, norms, pads, scales, slices, transposes};
use crate::lower::fold::Folding;
use std::fmt;
use std::str::FromStr;

/// One rewrite of lowered programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rewrite {
    /// Merges nodes that compute the same.
    Common,
    /// Removes steps that change nothing from expressions, and turns constant operands into literals.
    Tidy,
    /// Moves expressions of one operand before transpositions that products read.
    Hoists,
    /// Moves slices before transpositions.
    Slices,
    /// Cuts a product into one for each range of columns that is read.
    Columns,
    /// Joins transpositions, and merges them into products.
    Transposes,
    /// Lets nodes that append to caches of 16-bit floats round what they append.
    Appends,
    /// Merges borders of zeros into convolutions.
    Pads,
    /// Merges scales and offsets behind convolutions into their weights.
    Scales,
    /// Merges expressions that only each other read.
    Maps,
    /// Turns normalisations in elementary operators into one node.
    Norms,
    /// Merges expressions into the node that makes their input.
    Epilogues,
}

impl Rewrite {
    /// All rewrites, in the order in which they are applied.
    pub const ALL: [Self; 12] = [
        Self::Common,
        Self::Tidy,
        Self::Hoists,
        Self::Slices,
        Self::Columns,
        Self::Transposes,
        Self::Appends,
        Self::Pads,
        Self::Scales,
        Self::Maps,
        Self::Norms,
        Self::Epilogues,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Common => "common",
            Self::Tidy => "tidy",
            Self::Hoists => "hoists",
            Self::Slices => "slices",
            Self::Columns => "columns",
            Self::Transposes => "transposes",
            Self::Appends => "appends",
            Self::Pads => "pads",
            Self::Scales => "scales",
            Self::Maps => "maps",
            Self::Norms => "norms",
            Self::Epilogues => "epilogues",
        }
    }

    /// Describes the rewrite in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Self::Common => "merges nodes that compute the same",
            Self::Tidy => "removes steps without effect, and turns constants into literals",
            Self::Hoists => "moves expressions before transpositions that matmuls read",
            Self::Slices => "moves slices before transpositions",
            Self::Columns => "splits a matmul into one per range of columns that is read",
            Self::Transposes => "merges transpositions, and moves them into matmuls",
            Self::Appends => "moves rounding to 16-bit floats into appends to caches",
            Self::Pads => "moves zero padding into convolutions",
            Self::Scales => "moves scales and offsets after convolutions into their weights",
            Self::Maps => "merges expressions that only read each other",
            Self::Norms => "merges elementary operators into normalisations",
            Self::Epilogues => "moves expressions into the node whose output they read",
        }
    }

    pub(super) fn apply(self, graph: &mut Graph, folding: &mut Folding) {
        match self {
            Self::Common => common::merge_common(graph),
            Self::Tidy => maps::tidy_maps(graph, folding),
            Self::Hoists => hoists::hoist_expressions(graph),
            Self::Slices => slices::slice_before_transposes(graph),
            Self::Columns => columns::cut_columns(graph, folding),
            Self::Transposes => transposes::absorb_transposes(graph),
            Self::Appends => appends::round_in_appends(graph),
            Self::Pads => pads::absorb_pads(graph, folding),
            Self::Scales => scales::fold_scales(graph, folding),
            Self::Maps => maps::fuse_maps(graph),
            Self::Norms => norms::recognise_norms(graph),
            Self::Epilogues => epilogues::fuse_epilogues(graph),
        }
    }
}

impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error of a name that no rewrite has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no rewrite `{name}`; the rewrites are {}", Rewrite::ALL.map(Rewrite::name).join(", "))]
pub struct UnknownRewrite {
    /// The unknown name.
    pub name: String,
}

impl FromStr for Rewrite {
    type Err = UnknownRewrite;

    fn from_str(name: &str) -> Result<Self, UnknownRewrite> {
        let found = Self::ALL.into_iter().find(|rewrite| rewrite.name() == name);
        found.ok_or_else(|| UnknownRewrite { name: name.to_owned() })
    }
}

/// A set of rewrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rewrites(u16);

impl Rewrites {
    /// Set of all rewrites.
    pub const ALL: Self = Self((1 << Rewrite::ALL.len()) - 1);

    /// Empty set: each operator is lowered to nodes of its own.
    pub const NONE: Self = Self(0);

    /// Adds a rewrite to the set.
    #[must_use]
    pub fn with(self, rewrite: Rewrite) -> Self {
        Self(self.0 | 1 << rewrite as u16)
    }

    /// Removes a rewrite from the set.
    #[must_use]
    pub fn without(self, rewrite: Rewrite) -> Self {
        Self(self.0 & !(1 << rewrite as u16))
    }

    /// Iterates over the rewrites in the set, in the order in which they are applied.
    pub fn iter(self) -> impl Iterator<Item = Rewrite> {
        Rewrite::ALL.into_iter().filter(move |rewrite| self.0 & (1 << *rewrite as u16) != 0)
    }
}

impl Default for Rewrites {
    /// Returns the set of all rewrites.
    fn default() -> Self {
        Self::ALL
    }
}
