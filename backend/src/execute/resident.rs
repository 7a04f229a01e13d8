//! Tensors that stay on a device: the output of one run is the input of a later one without crossing the bus.

use super::device::ComputeDevice;
use super::error::{ExecError, InputMismatch, MisplacedInput, RunErrorKind};
use super::pool::DevicePool;
use super::weights::{storage, upload};
use crate::plan::{HOST, Plan};
use crate::program::{Program, Value};
use anabranch_kernels::gpu::Gpu;
use anabranch_kernels::{Buffer, KernelError, Tensor, TensorSpec};
use anabranch_placement::platform::DeviceId;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// How long one wait for a GPU takes before its health is looked at again.
const SLICE: Duration = Duration::from_millis(250);

/// A tensor on a device: on a GPU in a buffer of its own, on a CPU in the host's memory. Its elements never change, so that clones
/// share them.
#[derive(Clone)]
pub struct DeviceTensor {
    spec: TensorSpec,
    device: Arc<str>,
    memory: Memory,
}

#[derive(Clone)]
enum Memory {
    Host(Tensor),
    Gpu(Arc<dyn Stored>),
}

/// A buffer of an opened GPU. A trait object, because a GPU's type is so deep that whoever wants a tensor to be `Send` would otherwise
/// have to raise the compiler's recursion limit.
trait Stored: Send + Sync {
    fn gpu(&self) -> &Arc<Gpu>;
    fn buffer(&self) -> &wgpu::Buffer;
}

impl Stored for (Arc<Gpu>, wgpu::Buffer) {
    fn gpu(&self) -> &Arc<Gpu> {
        &self.0
    }

    fn buffer(&self) -> &wgpu::Buffer {
        &self.1
    }
}

impl DeviceTensor {
    /// A tensor in the memory of the host, to which `device` belongs.
    pub(crate) fn on_host(device: &str, tensor: Tensor) -> Self {
        Self { spec: tensor.spec().clone(), device: device.into(), memory: Memory::Host(tensor) }
    }

    /// Type and shape.
    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// The name of the device that it is on.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The tensor itself, if it is in the host's memory.
    pub fn host(&self) -> Option<&Tensor> {
        match &self.memory {
            Memory::Host(tensor) => Some(tensor),
            Memory::Gpu(_) => None,
        }
    }

    /// Its elements on the host: from a GPU a copy of them. Waits until the GPU has made them.
    ///
    /// # Errors
    /// If the GPU was lost, or there is no memory for the copy.
    pub fn read(&self) -> Result<Tensor, ExecError> {
        match &self.memory {
            Memory::Host(tensor) => Ok(tensor.clone()),
            Memory::Gpu(stored) => {
                let short = || ExecError::Memory { device: "the host".into() };
                let mut buffer = Buffer::try_zeroed(self.spec.bytes()).ok_or_else(short)?;
                download(stored.gpu(), stored.buffer(), buffer.bytes_mut()).map_err(|source| self.refused(source))?;
                let tensor = Tensor::new(self.spec.clone(), Arc::new(buffer));
                tensor.map_err(|_| ExecError::Internal("a tensor of a device has the wrong size"))
            }
        }
    }

    fn refused(&self, source: KernelError) -> ExecError {
        ExecError::Device { device: self.device.to_string(), source: Box::new(source) }
    }

    /// The buffer, if it is on a GPU.
    pub(super) fn buffer(&self) -> Option<&wgpu::Buffer> {
        match &self.memory {
            Memory::Host(_) => None,
            Memory::Gpu(stored) => Some(stored.buffer()),
        }
    }

    /// Whether it is on a device as that is open in a pool.
    fn is_on(&self, pool: &DevicePool, device: DeviceId) -> bool {
        match &self.memory {
            Memory::Host(_) => false,
            Memory::Gpu(stored) => stored.gpu().fault().is_none() && pool.is_current(device, stored.gpu()),
        }
    }

    /// Whether nobody else has it, so that it may be written again.
    fn is_unshared(&mut self) -> bool {
        match &mut self.memory {
            Memory::Host(_) => false,
            Memory::Gpu(stored) => Arc::get_mut(stored).is_some(),
        }
    }
}

impl fmt::Debug for DeviceTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceTensor({} on {})", self.spec, self.device)
    }
}

impl DevicePool {
    /// Copies a tensor to a device; in the host's memory, where CPU devices read it, it is shared.
    ///
    /// # Errors
    /// If there is no such device, or the GPU cannot be used.
    pub fn upload(&self, device: DeviceId, tensor: &Tensor) -> Result<DeviceTensor, ExecError> {
        let Some(target) = self.devices().get(device.index()) else {
            return Err(ExecError::Internal("a tensor was to be uploaded to a device that is not there"));
        };
        if let ComputeDevice::Cpu(cpu) = target {
            return Ok(DeviceTensor::on_host(&cpu.name, tensor.clone()));
        }
        let refused = |source| ExecError::Device { device: target.name().to_owned(), source: Box::new(source) };
        let gpu = self.gpu(device)?;
        let buffer = upload(&gpu, tensor.bytes()).map_err(refused)?;
        let memory = Memory::Gpu(Arc::new((gpu, buffer)));
        Ok(DeviceTensor { spec: tensor.spec().clone(), device: target.name().into(), memory })
    }

    /// A buffer for an output on a GPU: that of a former one that nobody else has, or a new one.
    fn target(
        &self,
        device: DeviceId,
        spec: &TensorSpec,
        former: Option<DeviceTensor>,
    ) -> Result<DeviceTensor, ExecError> {
        if let Some(mut former) = former
            && former.spec == *spec
            && former.is_on(self, device)
            && former.is_unshared()
        {
            return Ok(former);
        }
        let gpu = self.gpu(device)?;
        let buffer = storage(&gpu, (spec.bytes().max(1) as u64).next_multiple_of(4));
        let (device, memory) = (self.devices()[device.index()].name().into(), Memory::Gpu(Arc::new((gpu, buffer))));
        Ok(DeviceTensor { spec: spec.clone(), device, memory })
    }
}

/// The inputs that the caller gives on GPUs, in the program's order, with their devices.
fn inputs<'p>(plan: &'p Plan, program: &'p Program) -> impl Iterator<Item = (DeviceId, &'p Value)> {
    let inputs = program.inputs.iter().enumerate().map(|(at, id)| (plan.input_device(at), program.value(*id)));
    inputs.filter(|(device, _)| *device != HOST)
}

/// Whether these tensors are what a plan's inputs on GPUs want.
pub(super) fn verify(
    plan: &Plan,
    program: &Program,
    pool: &DevicePool,
    given: &[DeviceTensor],
) -> Result<(), RunErrorKind> {
    let expected = inputs(plan, program).count();
    if expected != given.len() {
        return Err(RunErrorKind::ResidentCount { expected, given: given.len() });
    }
    for ((device, value), tensor) in inputs(plan, program).zip(given) {
        if value.spec != tensor.spec {
            let (name, expected, given) = (value.name.clone(), value.spec.clone(), tensor.spec.clone());
            return Err(RunErrorKind::Input(Box::new(InputMismatch { name, expected, given })));
        }
        if !tensor.is_on(pool, device) {
            let (name, device) = (value.name.clone(), plan.device(device).name.clone());
            let misplaced = MisplacedInput { name, device, given: tensor.device.to_string() };
            return Err(RunErrorKind::Misplaced(Box::new(misplaced)));
        }
    }
    Ok(())
}

/// Buffers for the outputs that the caller receives on GPUs, in the program's order.
pub(super) fn targets(
    plan: &Plan,
    program: &Program,
    pool: &DevicePool,
    former: &mut Vec<DeviceTensor>,
) -> Result<Vec<DeviceTensor>, ExecError> {
    let outputs = program.outputs.iter().enumerate().map(|(at, output)| (plan.output_device(at), &output.spec));
    let mut former = former.drain(..);
    let outputs = outputs.filter(|(device, _)| *device != HOST);
    outputs.map(|(device, spec)| pool.target(device, spec, former.next())).collect()
}

/// Copies the first bytes of a buffer to the host.
fn download(gpu: &Gpu, source: &wgpu::Buffer, bytes: &mut [u8]) -> Result<(), KernelError> {
    const AWAY: u8 = 0;
    const MAPPED: u8 = 1;
    const REFUSED: u8 = 2;
    if let Some(fault) = gpu.fault() {
        return Err(KernelError::Gpu(fault));
    }
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let description =
        wgpu::BufferDescriptor { label: Some("download"), size: source.size(), usage, mapped_at_creation: false };
    let staging = gpu.device().create_buffer(&description);
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(source, 0, &staging, 0, source.size());
    gpu.queue().submit([encoder.finish()]);
    let state = Arc::new(AtomicU8::new(AWAY));
    let told = Arc::clone(&state);
    staging.map_async(wgpu::MapMode::Read, .., move |result| {
        told.store(if result.is_ok() { MAPPED } else { REFUSED }, Ordering::Release);
    });
    while state.load(Ordering::Acquire) == AWAY {
        gpu.poll(Some(SLICE))?;
    }
    let refused = || KernelError::Gpu("a tensor could not be read".into());
    if state.load(Ordering::Acquire) == REFUSED {
        return Err(refused());
    }
    let view = staging.get_mapped_range(..).map_err(|_| refused())?;
    bytes.copy_from_slice(&view[..bytes.len()]);
    Ok(())
}
