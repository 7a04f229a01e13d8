//! Features of x86 processors that kernels may use: all features of this processor, or fewer in tests.
//!
//! With `ANABRANCH_TEST_ISA=baseline` or `avx2`, the tests of kernels run as on a processor without the later
//! instruction sets.

/// Whether kernels may use all of these features.
#[doc(hidden)]
#[macro_export]
macro_rules! has_features {
    ($($feature:tt),+) => {
        $(is_x86_feature_detected!($feature))&&+ && $crate::features::allowed(&[$($feature),+])
    };
}
pub use has_features as has;

/// Whether the features belong to instruction sets that kernels may use.
#[cfg(not(any(test, feature = "testing")))]
pub const fn allowed(_: &[&str]) -> bool {
    true
}

/// Whether the features belong to instruction sets that the environment allows.
#[cfg(any(test, feature = "testing"))]
pub fn allowed(features: &[&str]) -> bool {
    static DENIED: std::sync::LazyLock<&[&str]> =
        std::sync::LazyLock::new(|| match std::env::var("ANABRANCH_TEST_ISA").as_deref() {
            Ok("baseline") => &["avx", "fma", "f16c", "bmi"],
            Ok("avx2") => &["avx512"],
            Ok(other) => panic!("ANABRANCH_TEST_ISA is `{other}`: expected `baseline` or `avx2`"),
            Err(_) => &[],
        });
    !features.iter().any(|feature| DENIED.iter().any(|denied| feature.starts_with(denied)))
}
