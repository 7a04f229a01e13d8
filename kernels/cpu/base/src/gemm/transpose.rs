//! Transposition of a matrix in memory, by blocks of 8 × 8 in vector registers if the processor has them.

/// Writes element (i, j) of `source`, at `i · strides.0 + j · strides.1`, for `i < size.0` and `j < size.1`, to
/// `target[j · width + i]`. The remaining elements of `target` stay.
///
/// # Panics
/// If an element lies outside of its slice.
pub fn transpose(source: &[f32], strides: (usize, usize), size: (usize, usize), target: &mut [f32], width: usize) {
    let (rows, columns) = size;
    if rows == 0 || columns == 0 {
        return;
    }
    assert!((rows - 1) * strides.0 + (columns - 1) * strides.1 < source.len(), "transposed from beyond the source");
    assert!(rows <= width && (columns - 1) * width + rows <= target.len(), "transposed to beyond the target");
    #[cfg(target_arch = "x86_64")]
    if strides.1 == 1 && rows >= 8 && columns >= 8 && crate::features::has!("avx") {
        let (whole_rows, whole_columns) = (rows / 8 * 8, columns / 8 * 8);
        // SAFETY: the processor has AVX, and the check above shows that the last element of the whole blocks lies
        // within both slices.
        unsafe { x86::blocks(source, strides.0, (whole_rows, whole_columns), target, width) };
        plain(source, strides, (0..whole_rows, whole_columns..columns), target, width);
        plain(source, strides, (whole_rows..rows, 0..columns), target, width);
        return;
    }
    plain(source, strides, (0..rows, 0..columns), target, width);
}

type Ranges = (std::ops::Range<usize>, std::ops::Range<usize>);

/// Transposes the part at these rows and columns, one element at a time.
fn plain(source: &[f32], strides: (usize, usize), (rows, columns): Ranges, target: &mut [f32], width: usize) {
    for j in columns {
        for i in rows.clone() {
            target[j * width + i] = source[i * strides.0 + j * strides.1];
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Transposes whole blocks of 8 × 8 elements.
    ///
    /// # Safety
    /// Both sizes are multiples of 8, and their last element lies within both slices.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn blocks(
        source: &[f32],
        stride: usize,
        (rows, columns): (usize, usize),
        target: &mut [f32],
        width: usize,
    ) {
        // Two blocks next to each other fill the target's cache lines: lines that are a power of two apart evict each
        // other before the next blocks come.
        for pair in (0..rows).step_by(16) {
            for j in (0..columns).step_by(8) {
                for i in (pair..rows.min(pair + 16)).step_by(8) {
                    let (from, to) = (source.as_ptr().wrapping_add(i * stride + j), j * width + i);
                    // SAFETY: the block's last element (i + 7, j + 7) is not after the last element of all.
                    unsafe { block(from, stride, target.as_mut_ptr().add(to), width) };
                }
            }
        }
    }

    /// Transposes 8 × 8 elements whose rows are `stride` apart to rows that are `width` apart.
    ///
    /// # Safety
    /// Eight elements of each of the eight rows are readable and writable.
    #[inline]
    #[target_feature(enable = "avx")]
    unsafe fn block(source: *const f32, stride: usize, target: *mut f32, width: usize) {
        for h in 0..2 {
            // Four elements of four rows, and next to them those of the four rows below.
            let mut rows = [_mm256_setzero_ps(); 4];
            for (i, row) in rows.iter_mut().enumerate() {
                // SAFETY: four elements of row i and of row i + 4, from column 4h on.
                *row = unsafe {
                    let (upper, lower) = (source.add(i * stride + 4 * h), source.add((i + 4) * stride + 4 * h));
                    _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(upper)), _mm_loadu_ps(lower))
                };
            }
            let [a, b, c, d] = rows;
            let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
            let columns = [
                _mm256_shuffle_ps::<0x44>(ab_low, cd_low),
                _mm256_shuffle_ps::<0xEE>(ab_low, cd_low),
                _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
                _mm256_shuffle_ps::<0xEE>(ab_high, cd_high),
            ];
            for (j, column) in columns.into_iter().enumerate() {
                // SAFETY: eight elements of row 4h + j of the target.
                unsafe { _mm256_storeu_ps(target.add((4 * h + j) * width), column) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_arrives_and_no_other_changes() {
        let source: Vec<f32> = (0..4000).map(|i| i as f32).collect();
        for (rows, columns, stride, step, width) in [
            (8, 8, 8, 1, 8),
            (16, 24, 30, 1, 20),
            (13, 19, 19, 1, 32),
            (24, 16, 17, 1, 24),
            (41, 8, 9, 1, 41),
            (3, 40, 41, 1, 3),
            (9, 9, 1, 9, 9),
            (0, 4, 4, 1, 4),
        ] {
            let mut target = vec![-1.0; 40 * width];
            transpose(&source, (stride, step), (rows, columns), &mut target, width);
            for (at, found) in target.iter().enumerate() {
                let (j, i) = (at / width, at % width);
                let want = if i < rows && j < columns { (i * stride + j * step) as f32 } else { -1.0 };
                assert_eq!(*found, want, "{rows}×{columns}, element ({i}, {j})");
            }
        }
    }
}
