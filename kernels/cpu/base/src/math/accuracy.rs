//! Errors of the functions, over all magnitudes of their arguments and at special values.

use super::*;
use crate::vector::{Loop, vectorised};

/// Applies a function to a slice, compiled as the kernels compile it.
macro_rules! over_slices {
    ($name:ident) => {{
        struct This<'a>(&'a [f32], &'a mut [f32]);
        impl Loop for This<'_> {
            type Output = ();
            #[inline(always)]
            fn run<I: Isa>(self) {
                self.1.iter_mut().zip(self.0).for_each(|(out, x)| *out = $name::<I>(*x));
            }
        }
        |x: &[f32], out: &mut [f32]| vectorised(This(x, out))
    }};
}

type Function = fn(&[f32], &mut [f32]);
type Reference = fn(f64) -> f64;

/// Returns the distance of `found` from `want` in units of the last place of an `f32` of `want`'s size.
fn units(found: f32, want: f64) -> f64 {
    if f64::from(found) == f64::from(want as f32) || (found.is_nan() && want.is_nan()) {
        return 0.0;
    }
    let exponent = want.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
    (f64::from(found) - want).abs() / (exponent - 23.0).exp2()
}

/// Returns every 509th `f32` whose magnitude is within the bounds, of both signs.
fn samples(least: f32, greatest: f32) -> Vec<f32> {
    let magnitudes = (least.to_bits()..=greatest.to_bits()).step_by(509).map(f32::from_bits);
    magnitudes.flat_map(|x| [x, -x]).collect()
}

#[test]
fn functions_are_accurate_to_their_last_places() {
    let sigmoid_f64 = |x: f64| 1.0 / (1.0 + (-x).exp());
    let cases: [(&str, Function, Reference, [f32; 2], f64); 16] = [
        ("exp", over_slices!(exp), f64::exp, [0.0, 110.0], 1.01),
        ("log", over_slices!(log), f64::ln, [0.0, f32::MAX], 1.0),
        ("sin", over_slices!(sin), f64::sin, [0.0, LARGEST_REDUCED], 1.75),
        ("cos", over_slices!(cos), f64::cos, [0.0, LARGEST_REDUCED], 1.75),
        ("tanh", over_slices!(tanh), f64::tanh, [0.0, f32::MAX], 6.25),
        ("sigmoid", over_slices!(sigmoid), sigmoid_f64, [0.0, 87.0], 2.5),
        ("erf", over_slices!(erf), erf_f64, [0.0, f32::MAX], 6.0),
        ("tan", over_slices!(tan), f64::tan, [0.0, LARGEST_REDUCED], 3.75),
        ("atan", over_slices!(atan), f64::atan, [0.0, f32::MAX], 2.0),
        ("asin", over_slices!(asin), f64::asin, [0.0, 1.5], 2.25),
        ("acos", over_slices!(acos), f64::acos, [0.0, 1.5], 2.0),
        ("sinh", over_slices!(sinh), f64::sinh, [0.0, 91.0], 2.0),
        ("cosh", over_slices!(cosh), f64::cosh, [0.0, 91.0], 2.0),
        ("asinh", over_slices!(asinh), asinh_f64, [0.0, f32::MAX], 1.0),
        ("acosh", over_slices!(acosh), acosh_f64, [0.0, f32::MAX], 1.0),
        ("atanh", over_slices!(atanh), atanh_f64, [0.0, 1.5], 1.0),
    ];
    for (name, function, reference, [least, greatest], bound) in cases {
        let arguments = samples(least, greatest);
        let mut found = vec![0.0; arguments.len()];
        function(&arguments, &mut found);
        let errors = arguments.iter().zip(&found).map(|(x, y)| (units(*y, reference(f64::from(*x))), *x));
        let (worst, at) = errors.fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
        assert!(worst <= bound, "{name}: {worst} units in the last place at {at:e}");
    }
}

#[test]
fn exponentials_are_zero_where_they_would_be_subnormal() {
    let arguments: Vec<f32> = samples(80.0, f32::MAX).into_iter().filter(|x| *x < 0.0).collect();
    let mut found = vec![9.0; arguments.len()];
    let functions: [Function; 2] = [over_slices!(exp_below_one), over_slices!(sigmoid)];
    for function in functions {
        function(&arguments, &mut found);
        for (x, found) in arguments.iter().zip(&found) {
            assert!(*found == 0.0 || found.is_normal(), "{x:e}: {found:e}");
            assert!((f64::from(*found) - f64::from(*x).exp()).abs() <= 2e-7 * f64::from(*x).exp() + 1.7e-38, "{x:e}");
        }
    }
}

#[test]
fn powers_are_accurate_to_their_last_places() {
    let bases: Vec<f32> = samples(0.0, f32::MAX).into_iter().step_by(97).collect();
    for base in bases {
        for exponent in [-31.7, -3.0, -1.0, -0.5, 1e-3, 0.33, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 7.0, 20.5] {
            let want = f64::from(base).powf(f64::from(exponent));
            let found = both(base, exponent);
            assert!(units(found, want) <= 1.0, "{base:e}^{exponent} = {found:e}, not {want:e}");
        }
    }
}

fn both(x: f32, y: f32) -> f32 {
    struct This(f32, f32);
    impl Loop for This {
        type Output = f32;
        #[inline(always)]
        fn run<I: Isa>(self) -> f32 {
            power::<I>(self.0, self.1)
        }
    }
    vectorised(This(x, y))
}

#[test]
fn special_values_are_those_of_the_standard_library() {
    let special = [0.0, 1.0, 2.0, 3.0, 0.5, 1e-45, 3e-39, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, 16_777_216.0];
    let special: Vec<f32> = special.into_iter().flat_map(|x| [x, -x]).chain([f32::NAN]).collect();
    let same = |found: f32, want: f32| found.to_bits() == want.to_bits() || (found.is_nan() && want.is_nan());
    for x in &special {
        for y in &special {
            let (found, want) = (both(*x, *y), x.powf(*y));
            assert!(same(found, want) || units(found, f64::from(want)) <= 1.0, "{x:e}^{y:e} = {found:e}, not {want:e}");
        }
    }
    let limits = [f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::NAN, 1e-45, -1e-45];
    let cases: [(&str, Function, [f32; 7]); 16] = [
        ("exp", over_slices!(exp), [f32::INFINITY, 0.0, 1.0, 1.0, f32::NAN, 1.0, 1.0]),
        ("log", over_slices!(log), limits.map(f32::ln)),
        ("sin", over_slices!(sin), [f32::NAN, f32::NAN, 0.0, -0.0, f32::NAN, 1e-45, -1e-45]),
        ("cos", over_slices!(cos), [f32::NAN, f32::NAN, 1.0, 1.0, f32::NAN, 1.0, 1.0]),
        ("tanh", over_slices!(tanh), [1.0, -1.0, 0.0, -0.0, f32::NAN, 1e-45, -1e-45]),
        ("sigmoid", over_slices!(sigmoid), [1.0, 0.0, 0.5, 0.5, f32::NAN, 0.5, 0.5]),
        ("erf", over_slices!(erf), [1.0, -1.0, 0.0, -0.0, f32::NAN, 1e-45, -1e-45]),
        ("tan", over_slices!(tan), [f32::NAN, f32::NAN, 0.0, -0.0, f32::NAN, 1e-45, -1e-45]),
        ("atan", over_slices!(atan), limits.map(f32::atan)),
        ("asin", over_slices!(asin), limits.map(f32::asin)),
        ("acos", over_slices!(acos), limits.map(f32::acos)),
        ("sinh", over_slices!(sinh), limits.map(f32::sinh)),
        ("cosh", over_slices!(cosh), limits.map(f32::cosh)),
        ("asinh", over_slices!(asinh), limits.map(f32::asinh)),
        ("acosh", over_slices!(acosh), limits.map(f32::acosh)),
        ("atanh", over_slices!(atanh), limits.map(f32::atanh)),
    ];
    for (name, function, wanted) in cases {
        let mut found = [9.0; 7];
        function(&limits, &mut found);
        for ((x, found), want) in limits.iter().zip(found).zip(wanted) {
            assert!(same(found, want), "{name}({x:e}) = {found:e}, not {want:e}");
        }
    }
}
