//! What pipelines promise: the optima of the paper's kind of problem, and that no method beats another where it cannot.

mod front;
mod golden;
mod properties;
mod random;
mod reference;
