//! Shared code of the tests of GPU kernels: one device, a runner, and comparison with a reference.

use super::corpus::{self, Expected};
use super::{Buffers, Gpu, GpuLimits, StatusWord, binds, compile, scratch_bytes, status_error, validation};
pub(crate) use anabranch_kernel_testing::{member, one_by_one, shape, spec};
use anabranch_op::KernelError;
use anabranch_op::op::{NodeSpec, Op, Precision};
use anabranch_op::tensor::{Tensor, TensorSpec};
use std::ops::Range;
use std::sync::OnceLock;

/// Returns the device of all tests of this binary: the software adapter, or, by `ANABRANCH_TEST_GPU`, the machine's own
/// GPU (`real`) or the software adapter through OpenGL (`gl`).
pub(crate) fn gpu() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(open)
}

/// Opens a separate device for one test.
pub(crate) fn open() -> Gpu {
    Gpu::open(&adapter(), Precision::F16).expect("the adapter opens")
}

fn adapter() -> wgpu::Adapter {
    let asked = std::env::var("ANABRANCH_TEST_GPU").unwrap_or_default();
    let real = asked == "real";
    let backends = if asked == "gl" { wgpu::Backends::GL } else { wgpu::Backends::PRIMARY };
    let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
    description.flags = validation::flags();
    let instance = wgpu::Instance::new(description);
    let adapters = pollster::block_on(instance.enumerate_adapters(backends));
    let wanted = adapters.into_iter().find(|a| real == (a.get_info().device_type != wgpu::DeviceType::Cpu));
    wanted.expect("these tests need a software Vulkan adapter: install the package mesa-vulkan-drivers")
}

pub(crate) fn node(op: Op, inputs: &[&[usize]], outputs: &[&[usize]]) -> NodeSpec {
    let specs = |dims: &[&[usize]]| dims.iter().map(|d| spec(d)).collect();
    NodeSpec { op, inputs: specs(inputs), outputs: specs(outputs) }
}

pub(crate) fn tensor(dims: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_elements(shape(dims), values).expect("as many values as the shape has")
}

/// Returns numbers in [−1, 1), the same for the same seed.
pub(crate) fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

pub(crate) fn inputs(node: &NodeSpec, seed: u64) -> Vec<Tensor> {
    let fill = |(index, spec): (usize, &TensorSpec)| {
        tensor(spec.shape.dims(), &noise(seed + index as u64, spec.shape.elements()))
    };
    node.inputs.iter().enumerate().map(fill).collect()
}

/// Runs a node on one thread of the CPU.
pub(crate) fn run_on_cpu(node: &NodeSpec, inputs: &[Tensor]) -> Result<Vec<Tensor>, KernelError> {
    anabranch_kernel_testing::run(anabranch_cpu::prepare, node, inputs)
}

/// Content of outputs before a kernel runs.
pub(crate) const UNWRITTEN: f32 = 12345.678;

/// One run of a node on a device.
pub(crate) struct Run<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) node: &'a NodeSpec,
    /// Whether each input is passed as a constant.
    pub(crate) constants: Vec<bool>,
    pub(crate) rows: Option<Range<usize>>,
    /// Expected outputs on another device ([`corpus`]); `None` keeps the run from other devices.
    pub(crate) expected: Option<Expected>,
    /// Whether the input that may lie in an output's buffer does so.
    pub(crate) in_place: bool,
}

impl<'a> Run<'a> {
    pub(crate) fn new(node: &'a NodeSpec) -> Self {
        Self {
            gpu: gpu(),
            node,
            constants: vec![false; node.inputs.len()],
            rows: None,
            expected: Some(Expected::Close),
            in_place: false,
        }
    }

    /// Returns the elements of outputs that are `f32`.
    pub(crate) fn outputs(self, inputs: &[Tensor]) -> Result<Vec<Vec<f32>>, KernelError> {
        let (words, _) = self.words(inputs)?;
        Ok(words.into_iter().map(|words| words.into_iter().map(f32::from_bits).collect()).collect())
    }

    /// Returns the outputs as words, and the number of workgroups that were started.
    ///
    /// # Errors
    /// The errors of [`compile`], and that of the node's status word.
    pub(crate) fn words(self, inputs: &[Tensor]) -> Result<(Vec<Vec<u32>>, u64), KernelError> {
        let Self { gpu, node, constants, rows, expected, in_place } = self;
        let shared = node.in_place().filter(|_| in_place);
        let mut bound = binds(node, &constants);
        shared.iter().for_each(|(input, _)| bound[*input] = false);
        let held: Vec<_> = inputs.iter().zip(&bound).map(|(t, b)| b.then(|| buffer(gpu, t.bytes()))).collect();
        let values: Vec<_> = inputs.iter().zip(&constants).map(|(t, c)| c.then(|| t.clone())).collect();
        let unwritten = |bytes: usize| vec![UNWRITTEN; bytes.div_ceil(4) + 3];
        let before = |output: usize, spec: &TensorSpec| {
            let mut before: Vec<u8> = bytemuck::cast_slice(&unwritten(spec.bytes())).to_vec();
            if let Some((input, _)) = shared.filter(|(_, shared)| *shared == output) {
                before[..inputs[input].bytes().len()].copy_from_slice(inputs[input].bytes());
            }
            buffer(gpu, &before)
        };
        let outputs: Vec<_> = node.outputs.iter().enumerate().map(|(at, spec)| before(at, spec)).collect();
        let scratch = match scratch_bytes(node) {
            0 => None,
            bytes => Some(buffer(gpu, bytemuck::cast_slice(&unwritten(bytes as usize)))),
        };
        let status = buffer(gpu, &[0; 8]);
        let buffers = Buffers {
            inputs: &held.iter().map(Option::as_ref).collect::<Vec<_>>(),
            outputs: &outputs.iter().collect::<Vec<_>>(),
            scratch: scratch.as_ref(),
            status: Some(StatusWord { buffer: &status, word: 1 }),
        };
        let kernel = corpus::recorded(|| compile(gpu, node, &values, &buffers, rows))?;
        let mut encoder = gpu.device().create_command_encoder(&Default::default());
        kernel.encode(&mut encoder.begin_compute_pass(&Default::default()));
        gpu.queue().submit([encoder.finish()]);
        let read = outputs.iter().zip(&node.outputs).map(|(b, s)| download(gpu, b, s.bytes().div_ceil(4)));
        let read: Vec<Vec<u32>> = read.collect();
        assert_eq!(gpu.fault(), None);
        let reported = download(gpu, &status, 2);
        assert_eq!(reported[0], 0, "the word of another node");
        if let Some(error) = status_error(node, reported[1]) {
            return Err(error);
        }
        if let Some(expected) = expected {
            let mut given: Vec<(&wgpu::Buffer, Vec<u32>)> = Vec::new();
            let bound = held.iter().zip(inputs).filter_map(|(buffer, input)| buffer.as_ref().map(|b| (b, input)));
            given.extend(bound.map(|(buffer, input)| (buffer, words(input.bytes()))));
            let unwritten = |buffer: &wgpu::Buffer| vec![UNWRITTEN.to_bits(); (buffer.size() / 4) as usize];
            given.extend(outputs.iter().chain(&scratch).map(|buffer| (buffer, unwritten(buffer))));
            given.push((&status, vec![0; 2]));
            let values: Vec<Vec<f32>> =
                read.iter().map(|words| words.iter().map(|w| f32::from_bits(*w)).collect()).collect();
            let made: Vec<_> = outputs.iter().zip(&values).map(|(buffer, values)| (buffer, &values[..])).collect();
            corpus::run(&node.key(), &given, &made, &expected);
        }
        Ok((read, kernel.groups()))
    }
}

/// Returns bytes as whole words, at least one.
fn words(bytes: &[u8]) -> Vec<u32> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4).max(4), 0);
    bytemuck::pod_collect_to_vec(&bytes)
}

pub(crate) fn buffer(gpu: &Gpu, bytes: &[u8]) -> wgpu::Buffer {
    let words = words(bytes);
    let bytes: &[u8] = bytemuck::cast_slice(&words);
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let buffer = gpu.device().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: bytes.len() as u64,
        usage,
        mapped_at_creation: false,
    });
    gpu.queue().write_buffer(&buffer, 0, bytes);
    buffer
}

pub(crate) fn download(gpu: &Gpu, buffer: &wgpu::Buffer, count: usize) -> Vec<u32> {
    let readable = gpu.device().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: buffer.size(),
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &readable, 0, buffer.size());
    gpu.queue().submit([encoder.finish()]);
    readable.slice(..).map_async(wgpu::MapMode::Read, |_| {});
    gpu.poll(Some(std::time::Duration::from_secs(60))).expect("the adapter answers");
    let view = readable.slice(..).get_mapped_range().expect("the poll waited for the copy");
    let mut words = bytemuck::pod_collect_to_vec::<u8, u32>(&view);
    assert!(words[count..].iter().all(|word| *word == UNWRITTEN.to_bits()), "written beyond the tensor");
    words.truncate(count);
    words
}

/// Checks that a node's outputs equal those of the CPU's kernels to within 10⁻⁵ of the greatest magnitude. The CPU's
/// kernels have their own tests against the ops' definitions.
#[track_caller]
pub(crate) fn check(node: &NodeSpec, inputs: &[Tensor]) {
    check_run(Run::new(node), inputs);
}

/// Checks like [`check`], but for a given run, which may write only its rows.
#[track_caller]
pub(crate) fn check_run(run: Run<'_>, inputs: &[Tensor]) {
    let (node, rows) = (run.node, run.rows.clone());
    let want = run_on_cpu(node, inputs).expect("a sound node");
    let got = run.outputs(inputs).unwrap_or_else(|error| panic!("{error}"));
    for (output, (got, want)) in got.iter().zip(&want).enumerate() {
        let want: &[f32] = want.elements().expect("f32");
        let row = want.len() / node.row_plan().map_or(1, |plan| plan.rows);
        let written = rows.as_ref().map_or(0..want.len(), |rows| rows.start * row..rows.end * row);
        assert_close(&got[written.clone()], &want[written.clone()], &format!("output {output} of {}", node.key()));
        assert!(got[..written.start].iter().chain(&got[written.end..]).all(|value| *value == UNWRITTEN));
    }
}

/// Checks that a run of `rows` alone writes the same bits as a run of all rows, and nothing elsewhere.
#[track_caller]
pub(crate) fn check_rows(node: &NodeSpec, inputs: &[Tensor], rows: Range<usize>) {
    let whole = Run::new(node).outputs(inputs).expect("runs");
    let part = Run { rows: Some(rows.clone()), ..Run::new(node) }.outputs(inputs).expect("runs");
    let all = node.row_plan().map_or(1, |plan| plan.rows);
    for (part, whole) in part.iter().zip(&whole) {
        let row = whole.len() / all;
        for (index, (part, whole)) in part.iter().zip(whole).enumerate() {
            let want = if rows.contains(&(index / row)) { *whole } else { UNWRITTEN };
            assert_eq!(part.to_bits(), want.to_bits(), "rows {rows:?} of {} at {index}", node.key());
        }
    }
}

/// Checks that `got` is `want` to within 10⁻⁵ of the greatest finite magnitude, with NaN and infinities exact.
#[track_caller]
pub(crate) fn assert_close(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().filter(|w| w.is_finite()).fold(0f32, |m, w| m.max(w.abs()));
    for (index, (&got, &want)) in got.iter().zip(want).enumerate() {
        let equal = got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= 1e-5 * scale;
        assert!(equal, "{what}: element {index} is {got}, not {want} (scale {scale})");
    }
}

/// Returns a device with stricter limits, so that little work takes the paths of large work.
pub(crate) fn narrow() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(|| {
        let gpu = open();
        let facts = GpuLimits { groups: 64, ..*gpu.facts() };
        gpu.with_facts(facts)
    })
}
