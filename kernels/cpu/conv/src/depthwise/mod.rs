//! Convolutions of each channel by itself or with few others, for which matrix products gain nothing.
//!
//! The shapes and the instruction set choose the method:
//! - `direct` reads small windows in place.
//! - `paired` computes planes of short rows two at a time.
//! - `lined` reads larger windows over long rows from lines with the zeros around them.
//! - `channels` computes all other windows, and groups of few channels, with channels along the vectors.

mod channels;
mod direct;
mod lined;
#[cfg(target_arch = "x86_64")]
mod paired;

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::gemm::MicroKernel;
use anabranch_cpu_base::geometry::Geometry;
use anabranch_cpu_base::lanes::LANES;
use anabranch_cpu_base::team::{Grid, Tile};
use anabranch_cpu_base::{Call, CpuKernel};
use anabranch_cpu_map::{Epilogue, Uniform};
use anabranch_op::error::KernelError;
use anabranch_op::op::NodeSpec;
use direct::Direct;
use lined::{Lined, ROWS};

/// Approximate multiply-adds of a tile: some microseconds.
const TILE_WORK: usize = 1 << 17;

/// Number of planes that keep a team busy.
const ENOUGH_PLANES: usize = 16;

/// Approximate outputs that are activated at once: they are still in the L1 cache.
const ACTIVATED: usize = 2 << 10;

/// Maximum elements of a window that is read in place although rows of outputs do not share their reads.
const SMALL_WINDOW: usize = 9;

/// Maximum pixels of an output whose short rows would leave many lanes empty.
const SMALL_PLANE: usize = 64;

/// Prepares the kernel of a depthwise convolution. Returns `None` if matrix products are better, because windows reach
/// too far for `channels` and the processor lacks the instructions for `direct`.
///
/// # Errors
/// If the epilogue does not fit the node.
pub(super) fn prepare(
    micro: &MicroKernel,
    geometry: Geometry,
    node: &NodeSpec,
    constants: &[bool],
) -> Result<Option<Box<dyn CpuKernel>>, KernelError> {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = paired::Kernel::new(micro, geometry, node)? {
        return Ok(Some(Box::new(kernel)));
    }
    // If a vector is two registers, too few registers are left for the sums of `channels`.
    if geometry.taps() > SMALL_WINDOW
        && micro.name == "AVX2"
        && let Some(lined) = Lined::new(&geometry)
    {
        return Ok(Some(Box::new(Rows::new(Method::Lined(lined), geometry, node)?)));
    }
    let direct = Direct::new(micro, &geometry);
    // The transposition of `channels` pays for large windows, or if rows would leave lanes empty, as long as most lanes
    // have a channel.
    let large = geometry.taps() > SMALL_WINDOW && !direct.as_ref().is_some_and(Direct::shares_rows);
    let pays = (large || geometry.pixels() <= SMALL_PLANE) && 2 * geometry.maps >= LANES;
    if (pays || direct.is_none())
        && let Some(kernel) = channels::Kernel::new(geometry, node, constants)?
    {
        return Ok(Some(Box::new(kernel)));
    }
    let Some(direct) = direct else { return Ok(None) };
    Ok(Some(Box::new(Rows::new(Method::Direct(direct), geometry, node)?)))
}

/// Maximum input channels, and …
const MOST_CHANNELS: usize = 4;

/// … output channels of a group that is a sum of depthwise convolutions: matrix products pay with more.
const MOST_MAPS: usize = 8;

/// Prepares the kernel of a convolution of many groups; `None` if its groups have many channels, or if windows reach
/// too far.
///
/// # Errors
/// If the epilogue does not fit the node.
pub(super) fn prepare_groups(
    geometry: Geometry,
    node: &NodeSpec,
    constants: &[bool],
) -> Result<Option<Box<dyn CpuKernel>>, KernelError> {
    let few = geometry.group_channels() <= MOST_CHANNELS && geometry.group_maps() <= MOST_MAPS;
    if geometry.group == 1 || !few || 2 * geometry.maps < LANES {
        return Ok(None);
    }
    let kernel = channels::Kernel::new(geometry, node, constants)?;
    Ok(kernel.map(|kernel| Box::new(kernel) as _))
}

/// Method that computes rows of outputs of a channel.
enum Method {
    Direct(Direct),
    Lined(Lined),
}

/// Kernel that computes one channel after the other.
struct Rows {
    geometry: Geometry,
    method: Method,
    grid: Grid,
    epilogue: Option<Epilogue>,
}

impl Rows {
    fn new(method: Method, geometry: Geometry, node: &NodeSpec) -> Result<Self, KernelError> {
        let Geometry { output, images, maps, .. } = geometry;
        let per_row = (output[1] * geometry.taps()).max(1);
        let tile_rows = match ((TILE_WORK / per_row).max(1), &method) {
            (several, _) if several >= output[0] => several / output[0].max(1) * output[0],
            (fraction, Method::Direct(_)) => fraction,
            // Blocks of rows end at the end of a plane.
            (_, Method::Lined(_)) if images * maps >= ENOUGH_PLANES => output[0],
            (fraction, Method::Lined(_)) => fraction.next_multiple_of(ROWS),
        };
        let grid =
            Grid { batch: 1, rows: images * maps * output[0], columns: output[1], tile_rows, tile_columns: output[1] };
        Ok(Self { geometry, method, grid, epilogue: Epilogue::of(node)? })
    }

    /// Computes the tile's rows, which may belong to several channels.
    fn compute(&self, tile: &mut Tile<'_, f32>, input: &[f32], weights: &[f32], extras: &[&[u8]]) {
        let Geometry { channels, maps, output: [height, width], .. } = self.geometry;
        let (plane, taps) = (self.geometry.plane(), self.geometry.taps());
        let (first, end) = (tile.rows.start, tile.rows.end);
        let out = tile.whole_rows();
        // Divides once in advance, because planes may be short.
        let (mut y, planes) = (first % height, first / height);
        let (mut image, mut map) = (planes / maps, planes % maps);
        let pixels = height * width;
        let mut uniforms =
            self.epilogue.as_ref().map(|epilogue| epilogue.uniforms([planes * pixels, pixels, pixels], extras));
        // Outputs that are not activated yet: planes may be too short for a pass of their own.
        let mut waiting = 0..0;
        let mut row = first;
        while row < end {
            let next = end.min(row + height - y);
            let place = (row - first) * width..(next - first) * width;
            let channel = image * channels + self.geometry.read_by(map);
            let weights = &weights[map * taps..][..taps];
            let mut finish = Uniform::IDENTITY;
            let uniform = uniforms.as_mut().is_none_or(|uniforms| uniforms.next(&mut finish));
            let (source, rows) = (&input[channel * plane..][..plane], &mut out[place.clone()]);
            match &self.method {
                Method::Direct(direct) => direct.compute(source, weights, &finish, y, rows),
                Method::Lined(lined) => lined.compute(source, weights, &finish, y, rows),
            }
            if let Some(epilogue) = &self.epilogue {
                waiting.end = if uniform { place.end } else { place.start };
                if waiting.len() >= ACTIVATED || next == end || !uniform {
                    epilogue.activate(&mut Tile::of(&mut out[waiting]));
                    waiting = place.end..place.end;
                }
                if !uniform {
                    epilogue.apply(row, 0, &mut out[place], extras);
                }
            }
            (row, y, map) = (next, 0, map + 1);
            if map == maps {
                (image, map) = (image + 1, 0);
            }
        }
    }
}

impl CpuKernel for Rows {
    fn resident_bytes(&self) -> usize {
        match &self.method {
            Method::Direct(direct) => direct.resident_bytes(),
            Method::Lined(lined) => lined.resident_bytes(),
        }
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        let input = elements(call.inputs[0]);
        let weights = elements(call.inputs[1]);
        let (output, extras) = (elements_mut(call.outputs[0]), &call.inputs[2..]);
        call.team.run_tiles(output, self.grid, &|mut tile| self.compute(&mut tile, input, weights, extras));
        Ok(())
    }
}
