//! The bundled models load, and match the script that made them.

use anabranch::import::{self, Dim, Model};
use anabranch_report::npy::read_npz;
use std::path::{Path, PathBuf};

const NAMES: [&str; 11] =
    ["mlp", "mlp_external", "convnet", "mobile", "fire", "encoder", "decoder", "vit", "unet", "gru", "lstm"];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

fn load(name: &str) -> Model {
    import::load(&data(&format!("{name}.onnx"))).unwrap_or_else(|error| panic!("{error}"))
}

fn written(dims: Option<&Vec<Dim>>) -> String {
    let dims: Vec<_> = dims.into_iter().flatten().map(ToString::to_string).collect();
    dims.join("×")
}

#[test]
fn every_bundled_model_loads() {
    let cases = [
        // Opset, nodes, initialisers, inputs, outputs.
        (17, 5, 6, "x f32 batch×16", "logits batch×10"),
        (17, 5, 6, "x f32 batch×16", "logits batch×10"),
        (17, 18, 17, "image f32 1×3×32×32", "logits 1×10"),
        (18, 18, 22, "image f32 batch×3×32×32", "logits batch×10"),
        (13, 24, 16, "image f32 1×3×33×33", "probabilities 1×10"),
        (17, 85, 14, "x f32 batch×seq×32, mask i64 batch×seq", "hidden batch×seq×32, pooled batch×32"),
        (16, 110, 14, "ids i64 batch×seq", "logits batch×seq×64"),
        (20, 42, 30, "image f32 batch×3×16×16", "logits batch×10"),
        (17, 45, 15, "x f32 1×4×16×16", "y 1×4×16×16"),
        (17, 19, 5, "x f32 batch×time×12", "y batch×time×10"),
        (17, 50, 6, "x f32 batch×time×12", "y batch×time×16, h 2×batch×16, c 2×batch×16"),
    ];
    for (name, (opset, nodes, initializers, inputs, outputs)) in NAMES.into_iter().zip(cases) {
        let model = load(name);
        let ins = model.inputs.iter().map(|i| format!("{} {} {}", i.name, i.dtype, written(i.dims.as_ref())));
        let outs = model.outputs.iter().map(|o| format!("{} {}", o.name, written(o.dims.as_ref())));
        let found = (model.opset(), model.nodes.len(), model.initializers.len());
        assert_eq!(found, (opset, nodes, initializers), "{name}");
        assert_eq!(ins.collect::<Vec<_>>().join(", "), inputs, "{name}");
        assert_eq!(outs.collect::<Vec<_>>().join(", "), outputs, "{name}");
        assert_eq!(model.producer, "anabranch-generate 1");
    }
}

#[test]
fn the_arrays_beside_a_model_are_its_inputs_and_outputs() {
    for name in NAMES {
        let model = load(name);
        let arrays = read_npz(&data(&format!("{name}.npz"))).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(arrays.len(), model.inputs.len() + model.outputs.len(), "{name}");
        let fits = |dims: Option<&Vec<Dim>>, found: &[usize]| {
            let same = |(dim, found): (&Dim, &usize)| !matches!(dim, Dim::Known(dim) if dim != found);
            dims.is_some_and(|dims| dims.len() == found.len() && dims.iter().zip(found).all(same))
        };
        for input in &model.inputs {
            let array = &arrays[&format!("in__{}", input.name)];
            assert_eq!(array.dtype(), input.dtype, "{name}: {}", input.name);
            assert!(fits(input.dims.as_ref(), array.shape().dims()), "{name}: {}", input.name);
        }
        for output in &model.outputs {
            let array = &arrays[&format!("out__{}", output.name)];
            assert!(fits(output.dims.as_ref(), array.shape().dims()), "{name}: {}", output.name);
        }
    }
}

#[test]
fn the_default_model_is_small() {
    let size = std::fs::metadata(data("convnet.onnx")).expect("it is bundled").len();
    assert!(size <= 100_000, "{size} bytes are embedded in the command");
}

#[test]
fn weights_in_another_file_are_the_weights() {
    let model = load("mlp_external");
    for (value, constant) in &model.initializers {
        let tensor = constant.load().expect("readable");
        let elements = tensor.elements::<f32>().expect("32-bit floats");
        let largest = elements.iter().fold(0f32, |largest, element| largest.max(element.abs()));
        assert!(largest > 0.01 && largest < 2.0, "{}: {largest}", model.value_name(*value));
    }
    let bytes = std::fs::read(data("mlp_external.onnx")).expect("it is bundled");
    let error = import::from_bytes(&bytes, None).expect_err("there is no directory").to_string();
    assert!(error.contains("the model was given without a directory"), "{error}");
}
