//! Tiles of images: transposed into the order of channels and transformed, and back.
//!
//! Channels lie along the vectors, sixteen at a time. Vectors are thus full for every width of the image, and the
//! transforms need no permutations. Neighbouring tiles share the columns that their windows share: these are
//! transformed once.

use anabranch_cpu_base::gemm;
use anabranch_cpu_base::lanes::LANES;
use anabranch_cpu_base::layout::winograd::Transform;
use anabranch_cpu_base::team::Tile;
use anabranch_cpu_base::vector::{Isa, Loop};
use std::marker::PhantomData;

/// Numbers of one pixel.
pub(super) type Pixel = [f32; LANES];

/// Transposes image rows of up to sixteen channels, each a plane of rows of `width` elements, into the order of pixels.
/// The result is rows of `padded` pixels that begin with `left` zeros. `top` is the first row, counted from the
/// image's, and may lie before it; pixels outside of the image are zero.
pub(super) fn gather(
    planes: &[f32],
    [height, width]: [usize; 2],
    (top, left): (isize, usize),
    padded: usize,
    rows: &mut [Pixel],
) {
    let plane = height * width;
    let channels = (planes.len() / plane).min(LANES);
    if channels < LANES {
        rows.as_flattened_mut().fill(0.0);
    }
    for (at, row) in rows.chunks_exact_mut(padded).enumerate() {
        let y = top + at as isize;
        if y < 0 || y as usize >= height {
            row.as_flattened_mut().fill(0.0);
            continue;
        }
        row[..left].as_flattened_mut().fill(0.0);
        row[left + width..].as_flattened_mut().fill(0.0);
        let pixels = row[left..left + width].as_flattened_mut();
        gemm::transpose(&planes[y as usize * width..], (plane, 1), (channels, width), pixels, LANES);
    }
}

/// Values at all positions of a block of tiles, of sixteen channels.
pub(super) struct Input<'a, 't, F, const IN: usize, const OUT: usize> {
    pub(super) transform: PhantomData<F>,
    /// Rows of pixels.
    pub(super) source: &'a [Pixel],
    /// One row of tiles, transformed along its columns.
    pub(super) columns: &'a mut [Pixel],
    /// Tiles of a row.
    pub(super) across: usize,
    /// Rows of tiles.
    pub(super) down: usize,
    /// Tiles between the matrices of two positions.
    pub(super) distance: usize,
    /// Column at which the channels begin, in a row for each position and tile.
    pub(super) first: usize,
    pub(super) out: &'a mut Tile<'t, f32>,
}

impl<F: Transform<IN, OUT>, const IN: usize, const OUT: usize> Loop for Input<'_, '_, F, IN, OUT> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { source, columns, across, down, distance, first, out, .. } = self;
        let padded = across * OUT + 2;
        for y in 0..down {
            let rows: [&[Pixel]; IN] = std::array::from_fn(|i| &source[(y * OUT + i) * padded..][..padded]);
            for x in 0..padded {
                let values = Self::transformed::<I>(std::array::from_fn(|i| &rows[i][x]));
                for i in 0..IN {
                    columns[i * padded + x] = values[i];
                }
            }
            for (i, row) in columns.chunks_exact(padded).take(IN).enumerate() {
                for x in 0..across {
                    let values = Self::transformed::<I>(std::array::from_fn(|j| &row[x * OUT + j]));
                    for (j, values) in values.iter().enumerate() {
                        let place = (i * IN + j) * distance + y * across + x;
                        out.row(place)[first..][..LANES].copy_from_slice(values);
                    }
                }
            }
        }
    }
}

impl<F: Transform<IN, OUT>, const IN: usize, const OUT: usize> Input<'_, '_, F, IN, OUT> {
    #[inline(always)]
    fn transformed<I: Isa>(x: [&Pixel; IN]) -> [Pixel; IN] {
        let mut values = [[0.0; LANES]; IN];
        for lane in 0..LANES {
            let value = F::input::<I>(std::array::from_fn(|i| x[i][lane]));
            for i in 0..IN {
                values[i][lane] = value[i];
            }
        }
        values
    }
}

/// Outputs of a block of tiles, of sixteen output channels, from their products at all positions.
pub(super) struct Output<'a, F, const IN: usize, const OUT: usize> {
    transform: PhantomData<F>,
    products: &'a [f32],
    sizes: [usize; 2],
    across: usize,
    size: [usize; 2],
    out: &'a mut [Pixel],
}

impl<'a, F, const IN: usize, const OUT: usize> Output<'a, F, IN, OUT> {
    /// Creates the outputs of output channels whose first product is the first of `products`. For each position there
    /// is a matrix of these sizes with a row for each tile; `across` tiles are a row of tiles. Outputs go to rows and
    /// columns of pixels.
    pub(super) fn new(
        products: &'a [f32],
        sizes: [usize; 2],
        across: usize,
        size: [usize; 2],
        out: &'a mut [Pixel],
    ) -> Self {
        Self { transform: PhantomData, products, sizes, across, size, out }
    }
}

impl<F: Transform<IN, OUT>, const IN: usize, const OUT: usize> Loop for Output<'_, F, IN, OUT> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { products, sizes: [distance, width], across, size: [high, wide], out, .. } = self;
        for (top, left) in (0..high).step_by(OUT).flat_map(|y| (0..wide).step_by(OUT).map(move |x| (y, x))) {
            let tile = top / OUT * across + left / OUT;
            let product = |i: usize, j: usize| -> &Pixel {
                products[((i * IN + j) * distance + tile) * width..].first_chunk().expect("columns are whole vectors")
            };
            let mut rows = [[[0.0; LANES]; IN]; OUT];
            for j in 0..IN {
                let values = Self::transformed::<I>(std::array::from_fn(|i| product(i, j)));
                for i in 0..OUT {
                    rows[i][j] = values[i];
                }
            }
            for (row, y) in rows.iter().zip(top..high) {
                let values = Self::transformed::<I>(std::array::from_fn(|j| &row[j]));
                let out = &mut out[y * wide..][..wide][left..];
                for (out, values) in out.iter_mut().zip(&values) {
                    *out = *values;
                }
            }
        }
    }
}

impl<F: Transform<IN, OUT>, const IN: usize, const OUT: usize> Output<'_, F, IN, OUT> {
    #[inline(always)]
    fn transformed<I: Isa>(x: [&Pixel; IN]) -> [Pixel; OUT] {
        let mut values = [[0.0; LANES]; OUT];
        for lane in 0..LANES {
            let value = F::output::<I>(std::array::from_fn(|i| x[i][lane]));
            for i in 0..OUT {
                values[i][lane] = value[i];
            }
        }
        values
    }
}
