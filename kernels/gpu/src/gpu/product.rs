//! Shared code of all matrix products. If their outputs alone would not occupy a large device, the inner dimension is
//! cut into parts. A second dispatch then adds up the parts' sums in order before the epilogue.

use super::Shader;
use super::kernel::Recorder;
use anabranch_op::error::KernelError;

/// Elements of which a part's start is a multiple, so that it is a multiple of the steps of every tile.
const STEP: usize = 16;

/// Parts of a product's inner dimension. They depend on the node's shapes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    count: usize,
    /// Elements of the inner dimension in each part except the last.
    depth: usize,
}

/// Outputs that one run of a product computes: `[batches, m, n]`, from batch `first` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) first: usize,
    pub(crate) batches: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
}

/// One run of a product: how its shader reads A and B, computes, and stores.
pub(crate) struct Run<'s, 'a, 't> {
    pub(crate) name: &'static str,
    pub(crate) extent: Extent,
    /// Whether the body stores vectors of four columns, else single elements.
    pub(crate) vectors: bool,
    /// Declares how A and B are read.
    pub(crate) operands: &'s dyn Fn(&Recorder<'a>, &mut Shader<'t>) -> Result<(), KernelError>,
    /// Declares `store(batch, row, column, value)`, which finishes an output and writes it: vectors of four, or
    /// elements.
    pub(crate) store: &'s dyn Fn(&Recorder<'a>, &mut Shader<'t>, bool) -> Result<(), KernelError>,
    /// Declares the loop over `parameters.depth` elements of parameters.k for the part `number / parameters.groups`,
    /// and returns the workgroups of one part. It stores its results for batch `part * parameters.batches + batch`.
    pub(crate) body: &'s dyn Fn(&mut Shader<'t>) -> usize,
}

impl Parts {
    /// Creates enough parts of an inner dimension of `k` to bring `groups` workgroups near to `enough`. Each part has
    /// at least `least` elements.
    pub(crate) fn new(k: usize, least: usize, groups: usize, enough: usize) -> Self {
        let count = (enough / groups.max(1)).clamp(1, (k / least).max(1));
        let depth = k.div_ceil(count).next_multiple_of(STEP);
        match count {
            1 => Self { count, depth: k },
            _ => Self { count: k.div_ceil(depth), depth },
        }
    }

    /// Returns the elements of the inner dimension that one thread reads.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the number of parts, and the elements of each: they decide the order of a sum.
    pub(crate) fn summation(&self) -> [usize; 2] {
        [self.count, self.depth]
    }

    /// Returns the bytes of all parts' sums, if there are several parts.
    pub(crate) fn scratch_bytes(&self, whole: Extent) -> u64 {
        if self.count == 1 { 0 } else { (self.count * whole.outputs()) as u64 * 4 }
    }

    /// Records a product.
    pub(crate) fn record<'a: 't, 't>(
        &self,
        recorder: &mut Recorder<'a>,
        run: &Run<'_, 'a, 't>,
    ) -> Result<(), KernelError> {
        let Run { extent, vectors, .. } = *run;
        let mut shader = Shader::new(run.name, "");
        extent.declare(&mut shader);
        (run.operands)(recorder, &mut shader)?;
        shader.parameter("parts", self.count).parameter("depth", self.depth);
        if self.count == 1 {
            (run.store)(recorder, &mut shader, vectors)?;
        } else {
            let keep = if vectors { KEEP_VECTOR } else { KEEP };
            shader.write("sums", element(vectors), recorder.scratch()?).code(keep);
        }
        let groups = (run.body)(&mut shader);
        shader.parameter("groups", groups);
        recorder.dispatch(&shader, groups * self.count)?;
        if self.count == 1 {
            return Ok(());
        }
        let mut shader = Shader::new("product_sum", include_str!("product_sum.wgsl"));
        extent.declare(&mut shader);
        let count = extent.outputs();
        shader.parameter("parts", self.count).parameter("count", count);
        shader.read("sums", "f32", recorder.scratch()?);
        (run.store)(recorder, &mut shader, false)?;
        recorder.dispatch_each(&shader, count)
    }
}

impl Extent {
    pub(crate) fn outputs(&self) -> usize {
        self.batches * self.m * self.n
    }

    fn declare(&self, shader: &mut Shader<'_>) {
        shader.parameter("first", self.first).parameter("batches", self.batches);
        shader.parameter("m", self.m).parameter("n", self.n);
    }
}

/// WGSL functions that store a part's sums for the dispatch that adds them up.
const KEEP: &str = "fn store(batch: u32, row: u32, column: u32, value: f32) {
    sums[(batch * parameters.m + row) * parameters.n + column] = value;
}
";

const KEEP_VECTOR: &str = "fn store(batch: u32, row: u32, column: u32, values: vec4<f32>) {
    sums[((batch * parameters.m + row) * parameters.n + column) / 4u] = values;
}
";

/// Returns the type of the elements of a buffer that is accessed in `vectors` of four or one by one.
pub(crate) fn element(vectors: bool) -> &'static str {
    if vectors { "vec4<f32>" } else { "f32" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_inner_dimension_and_none_is_empty() {
        for k in [1, 63, 64, 127, 128, 130, 768, 4608, 4609] {
            for groups in [1, 7, 24, 100, 1000] {
                let parts = Parts::new(k, 64, groups, 256);
                assert!(
                    (parts.count - 1) * parts.depth < k && k <= parts.count * parts.depth,
                    "{k}, {groups}: {parts:?}"
                );
                assert!(parts.count == 1 || parts.depth >= 64, "{k}, {groups}: {parts:?}");
            }
        }
        assert_eq!(Parts::new(768, 64, 24, 256).count, 10);
        assert_eq!(Parts::new(768, 64, 200, 256), Parts { count: 1, depth: 768 });
    }
}
