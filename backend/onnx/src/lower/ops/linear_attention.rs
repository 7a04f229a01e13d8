//! Attention without a softmax: a state that each time step decays, corrects and reads, `S = exp(g) S + k ⊗ w`, `o =
//! scale · q S`. Here `w` is the value, or the part of it that the state does not hold yet (the delta rule).
//!
//! Time steps follow one after the other, in `f32`, or in `f64` if the queries are.

use super::matmul::multiplied;
use super::{Builder, Entry, Fault, Operator, View, domain_of, working};
use anabranch_kernels::op::Unary;
use anabranch_kernels::{Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[("LinearAttention", attention)];

/// Inputs of the time steps, with time outermost; `heads` are those of keys, each of which `sharing` query heads read.
struct Steps {
    /// Shape `[t, b, heads, sharing, depth]`.
    queries: View,
    /// Shape `[t, b, heads, depth]`.
    keys: View,
    /// Shape `[t, b, heads, 1, width]`.
    values: View,
    /// Factor of the state, `[t, b, heads, depth or 1, 1]`.
    decay: Option<View>,
    /// Share of a correction that is applied, `[t, b, heads or 1, 1, 1]`.
    rate: Option<View>,
}

fn attention(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let dtype = operator.float_input(0)?.dtype();
    let work = working(dtype);
    let (query_heads, heads) = (operator.size("q_num_heads", 1, 0)?, operator.size("kv_num_heads", 1, 0)?);
    if heads == 0 || query_heads == 0 || !query_heads.is_multiple_of(heads) {
        return Err(Fault::invalid(format!("{query_heads} query heads for {heads} key heads")));
    }
    let [batch, time, wide] = three(operator, 0)?;
    if time == 0 {
        return Err(Fault::unsupported("attention without time steps"));
    }
    Builder::require_few(time, "time steps")?;
    let (depth, sharing) = (wide / query_heads, query_heads / heads);
    let steps = Steps::read(operator, builder, [batch, time, heads, sharing])?;
    let width = steps.values.dims()[4];
    let past = operator.optional(3);
    let dims = [batch, heads, depth, width];
    let mut state = match past {
        Some(past) if *past.dims() == dims && past.dtype().is_float() => builder.cast(past, work)?,
        Some(past) => return Err(Fault::invalid(format!("a state of {}, but {dims:?} is needed", past.spec))),
        None => builder.filled(TensorSpec::new(work, Shape::new(dims)?), 0.0)?,
    };
    let mut read = Vec::with_capacity(time);
    for step in 0..time {
        let output;
        (state, output) = steps.taken(builder, step, &state)?;
        read.push(output.reshaped(vec![1, batch, query_heads.saturating_mul(width)])?);
    }
    let scale = match operator.float("scale", 0.0)? {
        0.0 => 1.0 / (depth as f64).sqrt(),
        scale => f64::from(scale),
    };
    let outputs = builder.concatenated(&read, 0)?;
    let outputs = builder.transposed(&outputs, &[1, 0, 2])?;
    let outputs = builder.map(domain_of(work), [&outputs], dtype, |[x]| x * scale)?;
    Ok(vec![outputs, builder.cast(&state, past.map_or(dtype, View::dtype))?])
}

fn three(operator: &Operator<'_>, index: usize) -> Result<[usize; 3], Fault> {
    let x = operator.float_input(index)?;
    let wrong = || Fault::invalid(format!("input {index} has shape {}, but needs three dimensions", x.shape()));
    <[usize; 3]>::try_from(x.dims()).map_err(|_| wrong())
}

impl Steps {
    fn read(
        operator: &Operator<'_>,
        builder: &mut Builder,
        [batch, time, heads, sharing]: [usize; 4],
    ) -> Result<Self, Fault> {
        let (decays, corrects) = match operator.string("update_rule", "gated_delta")? {
            "linear" => (false, false),
            "gated" => (true, false),
            "delta" => (false, true),
            "gated_delta" => (true, true),
            other => return Err(Fault::attribute("update_rule", other, "linear, gated, delta or gated_delta")),
        };
        // Width of each of `heads` heads of an input over all time steps.
        let each = |index: usize, heads: usize| {
            let [own_batch, own_time, wide] = three(operator, index)?;
            if [own_batch, own_time] == [batch, time] && wide > 0 && wide.is_multiple_of(heads) {
                return Ok(wide / heads);
            }
            let shape = operator.input(index)?.shape();
            Err(Fault::invalid(format!("input {index} of shape {shape} is not {heads} heads of {batch} × {time}")))
        };
        let (depth, width) = (each(0, heads * sharing)?, each(2, heads)?);
        if each(1, heads)? != depth {
            return Err(Fault::invalid(format!("queries of {depth} and keys of {} elements", each(1, heads)?)));
        }
        let work = working(operator.input(0)?.dtype());
        let mut steps = |index: usize, dims: &[usize]| {
            let x = builder.cast(operator.float_input(index)?, work)?;
            let x = x.reshaped([&[batch, time], dims].concat())?;
            let order: Vec<_> = [1, 0].into_iter().chain(2..x.rank()).collect();
            builder.transposed(&x, &order)
        };
        let queries = steps(0, &[heads, sharing, depth])?;
        let keys = steps(1, &[heads, depth])?;
        let values = steps(2, &[heads, 1, width])?;
        let rate = match corrects {
            true if three(operator, 5)? == [batch, time, 1] => Some(steps(5, &[1, 1, 1])?),
            true if each(5, heads)? == 1 => Some(steps(5, &[heads, 1, 1])?),
            true => return Err(Fault::invalid("an update rate per element, but only one per head is defined")),
            false => None,
        };
        let decay = match decays {
            true if [1, depth].contains(&each(4, heads)?) => Some(steps(4, &[heads, each(4, heads)?, 1])?),
            true => return Err(Fault::invalid("a decay that is not per head or per element of a head")),
            false => None,
        };
        let decay = decay.map(|decay| builder.map(domain_of(work), [&decay], work, |[g]| g.apply(Unary::Exp)));
        Ok(Self { queries, keys, values, decay: decay.transpose()?, rate })
    }

    /// Returns the state after a time step, and the result that the queries read from it.
    fn taken(&self, builder: &mut Builder, step: usize, state: &View) -> Result<(View, View), Fault> {
        let at = |builder: &mut Builder, x: &View| {
            let part = builder.part(x, 0, step, 1)?;
            part.reshaped(&x.dims()[1..])
        };
        let (domain, work) = (domain_of(state.dtype()), state.dtype());
        let (query, key) = (at(builder, &self.queries)?, at(builder, &self.keys)?);
        let mut value = at(builder, &self.values)?;
        let state = match &self.decay {
            None => state.clone(),
            Some(decay) => {
                let decay = at(builder, decay)?;
                builder.map(domain, [state, &decay], work, |[state, decay]| state * decay)?
            }
        };
        let &[batch, heads, depth] = key.dims() else { return Err(Fault::missing(1)) };
        if let Some(rate) = &self.rate {
            let rate = at(builder, rate)?;
            let held = multiplied(builder, &key.reshaped(vec![batch, heads, 1, depth])?, &state)?;
            value = builder.map(domain, [&value, &held, &rate], work, |[value, held, rate]| {
                let missing = value - held;
                missing * rate
            })?;
        }
        let column = key.reshaped(vec![batch, heads, depth, 1])?;
        let state = builder.map(domain, [&state, &column, &value], work, |[state, key, value]| {
            let written = key * value;
            state + written
        })?;
        let output = multiplied(builder, &query, &state)?;
        Ok((state, output))
    }
}
