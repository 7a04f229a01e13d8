//! Tests of pipelines: optima of the paper's kind of problem, and relations between the methods.

mod front;
mod golden;
mod properties;
mod random;
mod reference;
