//! OpenBLAS of the system, if its library is installed: Debian's `libopenblas0-pthread`. It is loaded at run time, so
//! that building the benches does not need it.

use libloading::{Library, Symbol};
use std::ffi::c_int;

type Sgemm = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    f32,
    *const f32,
    c_int,
    *const f32,
    c_int,
    f32,
    *mut f32,
    c_int,
);

const ROW_MAJOR: c_int = 101;
const NOT_TRANSPOSED: c_int = 111;

/// Loaded OpenBLAS library.
pub struct OpenBlas {
    sgemm: Sgemm,
    /// Keeps the library loaded as long as its function is called.
    _library: Library,
}

impl OpenBlas {
    /// Loads the library for `threads` threads, if the system has it.
    pub fn open(threads: usize) -> Option<Self> {
        // SAFETY: the code that the library runs when it is loaded needs nothing from this program.
        let library = unsafe { Library::new("libopenblas.so.0") }.ok()?;
        // SAFETY: OpenBLAS declares `void openblas_set_num_threads(int)`, and `cblas_sgemm` as CBLAS does, with 32-bit
        // integers.
        let sgemm = unsafe {
            let set: Symbol<'_, unsafe extern "C" fn(c_int)> = library.get(b"openblas_set_num_threads").ok()?;
            set(c_int::try_from(threads).ok()?);
            *library.get::<Sgemm>(b"cblas_sgemm").ok()?
        };
        Some(Self { sgemm, _library: library })
    }

    /// Computes C = A · B of row-major matrices, m × n × k.
    ///
    /// # Panics
    /// If the size of a matrix does not fit.
    pub fn multiply(&self, [m, n, k]: [usize; 3], a: &[f32], b: &[f32], c: &mut [f32]) {
        assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "row-major operands");
        let [m, n, k] = [m, n, k].map(|size| c_int::try_from(size).expect("a bench's sizes are small"));
        let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
        // SAFETY: the slices hold whole row-major matrices of these sizes, C is exclusively borrowed, and the library
        // is loaded.
        unsafe { (self.sgemm)(ROW_MAJOR, NOT_TRANSPOSED, NOT_TRANSPOSED, m, n, k, 1.0, a, k, b, n, 0.0, c, n) };
    }
}
