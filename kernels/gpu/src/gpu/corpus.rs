//! Every shader that a test compiles, for other compilers than that of the tests.
//!
//! naga's writers for Metal, Direct3D and SPIR-V must accept each shader, and no shader may write a component of a
//! vector that threads share. If `ANABRANCH_SHADERS` names a folder, each shader is written there as `HASH.wgsl` and
//! `HASH.spv`. Runs of small nodes are written as `HASH.json`: buffers, dispatches, and the observed outputs.
//! `scripts/second-compiler` runs them in Chromium.

use super::Shader;
use super::testing::UNWRITTEN;
use naga::back::{hlsl, msl, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, FunctionInfo, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Block, Function, Module, Statement, TypeInner};
use std::cell::RefCell;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::{env, fs};

/// Capabilities that shaders may use.
const CAPABILITIES: Capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32
    .union(Capabilities::SHADER_FLOAT16)
    .union(Capabilities::SUBGROUP)
    .union(Capabilities::COOPERATIVE_MATRIX);

/// Maximum bytes of all buffers of a run that is written.
const MOST_BYTES: u64 = 64 << 10;

/// Expected outputs of a run on another device.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// Outputs of the tests' device, to within 10⁻⁵ of the greatest magnitude.
    Close,
    /// Bits of the first output; `None` for elements that may differ.
    Bits(Vec<Option<u32>>),
}

/// Dispatches of one thread's node while they are recorded.
#[derive(Default)]
struct Tape {
    dispatches: Vec<Dispatch>,
    resident: Vec<(wgpu::Buffer, Vec<u32>)>,
}

struct Dispatch {
    source: String,
    parameters: Vec<u32>,
    buffers: Vec<wgpu::Buffer>,
    /// Number of buffers that are only read; they come first.
    reads: usize,
    grid: [u32; 3],
}

thread_local! {
    static TAPE: RefCell<Option<Tape>> = const { RefCell::new(None) };
}

fn folder() -> Option<PathBuf> {
    env::var_os("ANABRANCH_SHADERS").map(PathBuf::from)
}

fn name(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Checks that the writers of other backends accept a shader.
pub(crate) fn shader(label: &str, source: &str) {
    let module =
        naga::front::wgsl::parse_str(source).unwrap_or_else(|error| refused("the parser", label, source, error));
    let checked = Validator::new(ValidationFlags::all(), CAPABILITIES).validate(&module);
    let info = checked.unwrap_or_else(|error| refused("the validator", label, source, error));
    assert!(!writes_components(&module, &info), "{label} writes a component of a shared vector\n{source}");
    metal(&module, &info).unwrap_or_else(|error| refused("the writer of Metal's language", label, source, error));
    // Direct3D and Chromium have no cooperative matrices.
    let has_matrices = source.contains("enable wgpu_cooperative_matrix;");
    if !has_matrices {
        let written = direct3d(&module, &info);
        written.unwrap_or_else(|error| refused("the writer of Direct3D's language", label, source, error));
    }
    let words = spir_v(&module, &info, BoundsCheckPolicy::Restrict)
        .unwrap_or_else(|error| refused("the writer of SPIR-V", label, source, error));
    if let Some(folder) = folder().filter(|_| !has_matrices) {
        let file = folder.join(name(source));
        fs::create_dir_all(&folder).expect("the folder of shaders");
        fs::write(file.with_extension("wgsl"), source).expect("a shader's file");
        fs::write(file.with_extension("spv"), bytemuck::cast_slice::<u32, u8>(&words)).expect("a shader's file");
    }
}

/// Whether a shader writes one component of a vector in workgroup memory or a buffer. A device may write the whole
/// vector then, and undo what other threads write to its other components.
fn writes_components(module: &Module, info: &ModuleInfo) -> bool {
    let functions = module.functions.iter().map(|(handle, function)| (function, &info[handle]));
    let entries = module.entry_points.iter().enumerate().map(|(at, entry)| (&entry.function, info.get_entry_point(at)));
    functions.chain(entries).any(|(function, types)| stores_component(module, (function, types), &function.body))
}

fn stores_component(module: &Module, (function, types): (&Function, &FunctionInfo), block: &Block) -> bool {
    let inside = |block: &Block| stores_component(module, (function, types), block);
    block.iter().any(|statement| match statement {
        Statement::Block(block) => inside(block),
        Statement::If { accept, reject, .. } => inside(accept) || inside(reject),
        Statement::Switch { cases, .. } => cases.iter().any(|case| inside(&case.body)),
        Statement::Loop { body, continuing, .. } => inside(body) || inside(continuing),
        Statement::Store { pointer, .. } => {
            // A pointer to a scalar of an array has another type.
            let to = types[*pointer].ty.inner_with(&module.types);
            let TypeInner::ValuePointer { size: None, space, .. } = to else { return false };
            matches!(space, AddressSpace::WorkGroup | AddressSpace::Storage { .. })
        }
        _ => false,
    })
}

fn refused<T>(by: &str, label: &str, source: &str, error: impl Debug) -> T {
    panic!("{by} refuses {label}: {error:?}\n{source}")
}

fn metal(module: &Module, info: &ModuleInfo) -> Result<(), msl::Error> {
    let options = msl::Options { lang_version: (2, 4), fake_missing_bindings: true, ..Default::default() };
    msl::write_string(module, info, &options, &msl::PipelineOptions::default()).map(|_| ())
}

fn direct3d(module: &Module, info: &ModuleInfo) -> Result<(), hlsl::Error> {
    let options = hlsl::Options::default();
    let (mut text, pipeline) = (String::new(), hlsl::PipelineOptions::default());
    hlsl::Writer::new(&mut text, &options, &pipeline).write(module, info, None).map(|_| ())
}

/// Writes SPIR-V as wgpu does for Vulkan 1.2. Buffers are checked by the shader on devices without robust buffers, and
/// by the device on others.
fn spir_v(module: &Module, info: &ModuleInfo, buffer: BoundsCheckPolicy) -> Result<Vec<u32>, spv::Error> {
    let index = BoundsCheckPolicy::Restrict;
    let bounds_check_policies = BoundsCheckPolicies { index, buffer, ..BoundsCheckPolicies::default() };
    let force_loop_bounding = false;
    let options =
        spv::Options { lang_version: (1, 5), bounds_check_policies, force_loop_bounding, ..Default::default() };
    spv::write_vec(module, info, &options, None)
}

/// Returns the numbers of buffers that are read and written, and the SPIR-V for a device with robust buffers, of each
/// dispatch that `work` records.
pub(crate) fn modules<T>(work: impl FnOnce() -> T) -> Vec<([usize; 2], Vec<u32>)> {
    TAPE.set(Some(Tape::default()));
    work();
    let tape = TAPE.take().expect("the tape that was set");
    let module = |Dispatch { source, buffers, reads, .. }: &Dispatch| {
        let module = naga::front::wgsl::parse_str(source).expect("a shader that was compiled");
        let mut validator = Validator::new(ValidationFlags::all(), CAPABILITIES);
        let info = validator.validate(&module).expect("a shader that was compiled");
        let words = spir_v(&module, &info, BoundsCheckPolicy::Unchecked).expect("a shader that was compiled");
        ([*reads, buffers.len() - reads], words)
    };
    tape.dispatches.iter().map(module).collect()
}

/// Records a dispatch of this thread, if a run is being recorded.
pub(crate) fn dispatch(shader: &Shader<'_>, grid: [u32; 3]) {
    TAPE.with_borrow_mut(|tape| {
        if let Some(tape) = tape {
            let buffers = shader.buffers().cloned().collect();
            let reads = shader.signature().reads as usize;
            let (source, parameters) = (shader.source(), shader.parameters());
            tape.dispatches.push(Dispatch { source, parameters, buffers, reads, grid });
        }
    });
}

/// Records a buffer that a kernel keeps.
pub(crate) fn resident(buffer: &wgpu::Buffer, words: &[u32]) {
    TAPE.with_borrow_mut(|tape| {
        if let Some(tape) = tape {
            tape.resident.push((buffer.clone(), words.to_vec()));
        }
    });
}

/// Records the shaders that this thread compiles in `work`, if runs are written.
pub(crate) fn recorded<T>(work: impl FnOnce() -> T) -> T {
    TAPE.set(folder().map(|_| Tape::default()));
    work()
}

/// Writes the last recorded run: the initial words of its buffers, and its outputs with their current content.
pub(crate) fn run(
    key: &str,
    given: &[(&wgpu::Buffer, Vec<u32>)],
    outputs: &[(&wgpu::Buffer, &[f32])],
    expected: &Expected,
) {
    let (Some(folder), Some(tape)) = (folder(), TAPE.take()) else { return };
    let resident = tape.resident.iter().map(|(buffer, words)| (buffer, words.clone()));
    let buffers: Vec<_> = given.iter().map(|(buffer, words)| (*buffer, words.clone())).chain(resident).collect();
    if tape.dispatches.is_empty() || buffers.iter().map(|(buffer, _)| buffer.size()).sum::<u64>() > MOST_BYTES {
        return;
    }
    let at = |buffer: &wgpu::Buffer| buffers.iter().position(|(known, _)| *known == buffer).expect("a known buffer");
    let dispatches = tape.dispatches.iter().map(|dispatch| {
        let Dispatch { source, parameters, buffers, reads, grid } = dispatch;
        let (shader, bound): (String, Vec<usize>) = (name(source), buffers.iter().map(at).collect());
        format!(
            r#"{{"shader": "{shader}", "parameters": {parameters:?}, "buffers": {bound:?}, "reads": {reads}, "grid": {grid:?}}}"#
        )
    });
    let wants = outputs.iter().enumerate().map(|(output, (buffer, values))| {
        let seen = || values.iter().map(|value| (*value != UNWRITTEN).then_some(value.to_bits())).collect();
        let (bits, exact): (Vec<Option<u32>>, bool) = match expected {
            Expected::Bits(bits) if output == 0 => (bits.clone(), true),
            _ => (seen(), false),
        };
        let bits: Vec<String> = bits.iter().map(|bits| bits.map_or("null".into(), |bits| bits.to_string())).collect();
        format!(r#"{{"buffer": {}, "exact": {exact}, "bits": [{}]}}"#, at(buffer), bits.join(", "))
    });
    let (dispatches, wants) = (dispatches.collect::<Vec<_>>().join(",\n"), wants.collect::<Vec<_>>().join(",\n"));
    let words: Vec<&Vec<u32>> = buffers.iter().map(|(_, words)| words).collect();
    let text = format!(
        "{{\"key\": {key:?},\n\"buffers\": {words:?},\n\"dispatches\": [{dispatches}],\n\"outputs\": [{wants}]}}\n"
    );
    fs::write(folder.join(name(&text)).with_extension("json"), text).expect("a run's file");
}

#[test]
fn writes_of_components_are_found_in_shared_memory_alone() {
    let writes = |declared: &str, statement: &str| {
        let main = "@compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) {";
        let source = format!("{declared}\n{main}\n    for (var k = 0u; k < 4u; k++) {{ {statement} }}\n}}");
        let module = naga::front::wgsl::parse_str(&source).expect(&source);
        let info = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module).expect(&source);
        writes_components(&module, &info)
    };
    let buffer = "@group(0) @binding(0) var<storage, read_write> v: array<vec4<f32>>;";
    assert!(writes(buffer, "v[k].x = 1.0;"));
    assert!(writes("var<workgroup> v: array<vec4<f32>, 4>;", "if k < 2u { v[k][i] = 1.0; }"));
    assert!(!writes("var<workgroup> v: array<array<f32, 4>, 4>;", "v[k][i] = 1.0;"));
    assert!(!writes("var<workgroup> v: array<vec4<f32>, 4>;", "v[i] = vec4<f32>(v[k][i]);"));
    assert!(!writes("var<private> v: vec4<f32>;", "v[i] = 1.0;"));
}
