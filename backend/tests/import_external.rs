//! No byte outside the model's directory is read, whatever the model says about where its weights are.

#![cfg(unix)]

use anabranch::import::proto::{GraphProto, ModelProto, TensorProto, data_type};
use anabranch::import::{Model, from_bytes, load};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A directory `model` with good and bad neighbours, and a secret of eight bytes outside it.
fn directory() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let root = folder.path().join("model");
    let make = || -> io::Result<()> {
        fs::create_dir_all(root.join("sub"))?;
        fs::write(folder.path().join("secret"), [9; 8])?;
        fs::write(root.join("w.bin"), [1, 0, 0, 0, 2, 0, 0, 0, 3])?;
        fs::write(root.join("sub/w.bin"), [1, 0, 0, 0, 2, 0, 0, 0])?;
        symlink("../secret", root.join("link"))?;
        symlink("..", root.join("link_dir"))?;
        fs::hard_link(folder.path().join("secret"), root.join("hard"))?;
        mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        Ok(())
    };
    make().expect("a temporary directory takes files, links and pipes");
    folder
}

/// Loads a model whose initialiser `w`, two 32-bit integers, is where `entries` say.
fn load_with(folder: &Path, entries: &[(&str, &str)]) -> Result<Model, String> {
    let tensor = TensorProto::external("w", data_type::INT32, &[2], entries);
    let graph = GraphProto { initializer: vec![tensor], ..GraphProto::default() };
    let file = folder.join("model/model.onnx");
    fs::write(&file, ModelProto::of(graph, 17).to_bytes()).expect("a small file");
    load(&file).map_err(|error| error.to_string())
}

fn elements(model: &Model) -> Vec<i32> {
    let constant = model.initializers.values().next().expect("one initialiser");
    constant.load().expect("readable").elements().expect("32-bit integers").to_vec()
}

#[test]
fn regular_files_in_the_directory_are_read() {
    let folder = directory();
    for entries in [
        &[("location", "w.bin"), ("length", "8")][..],
        &[("location", "sub/w.bin")],
        &[("location", "./w.bin"), ("offset", "0"), ("length", "8"), ("checksum", "0")],
    ] {
        let model = load_with(folder.path(), entries).expect("a good neighbour");
        assert_eq!(elements(&model), [1, 2]);
    }
    let model = load_with(folder.path(), &[("location", "w.bin"), ("offset", "1")]).expect("an unaligned place");
    assert_eq!(elements(&model), [0x0200_0000, 0x0300_0000]);
}

#[test]
fn everything_else_is_refused() {
    let folder = directory();
    let absolute = folder.path().join("secret").display().to_string();
    let inside = ["link_dir/secret", "link", "hard", "pipe", "sub", "sub/", "missing", "model.onnx/x", ".", ""];
    let outside = ["../secret", "sub/../../secret", "..", "/dev/zero", "/proc/self/environ", &absolute];
    for location in inside.into_iter().chain(outside) {
        let error = load_with(folder.path(), &[("location", location)]).expect_err(location);
        assert!(error.contains("initializer `w`") && error.contains("model.onnx"), "{location}: {error}");
    }
}

#[test]
fn regions_outside_the_file_are_refused() {
    let folder = directory();
    for (offset, length, text) in [
        ("18446744073709551615", "8", "but the file has 9 bytes"),
        ("18446744073709551608", "8", "but the file has 9 bytes"),
        ("9", "8", "but the file has 9 bytes"),
        ("2", "8", "but the file has 9 bytes"),
        ("0", "0", "i32[2] takes 8 bytes, but 0 are there"),
        ("0", "18446744073709551615", "i32[2] takes 8 bytes, but 18446744073709551615 are there"),
        ("-1", "8", "offset is `-1`, which is not a number"),
        ("0x10", "8", "offset is `0x10`, which is not a number"),
        ("0", "eight", "length is `eight`, which is not a number"),
    ] {
        let entries = [("location", "w.bin"), ("offset", offset), ("length", length)];
        let error = load_with(folder.path(), &entries).expect_err(text);
        assert!(error.contains(text), "{error} should contain: {text}");
    }
}

#[test]
fn a_model_whose_weights_are_missing_is_refused_by_the_files_name() {
    let folder = directory();
    let error = load_with(folder.path(), &[("location", "weights/layer.bin")]).expect_err("it is missing");
    assert!(error.contains("`weights/layer.bin` does not exist; put it beside the model"), "{error}");
}

#[test]
fn elements_that_share_bytes_are_the_same_from_a_file_as_from_bytes() {
    // Large enough to stay in the file otherwise.
    let packed: Vec<u8> = (0..70_001usize).map(|index| (index % 251) as u8).collect();
    let dims = [2 * packed.len() as i64 - 1];
    let import = |tensor: TensorProto| {
        let bytes = ModelProto::of(GraphProto { initializer: vec![tensor], ..GraphProto::default() }, 21).to_bytes();
        let folder = tempfile::tempdir().expect("a temporary directory");
        fs::write(folder.path().join("w"), [&[9; 3][..], &packed].concat()).expect("a small file");
        fs::write(folder.path().join("model.onnx"), &bytes).expect("a small file");
        let models = [load(&folder.path().join("model.onnx")), from_bytes(&bytes, Some(folder.path()))];
        models.map(|model| model.expect("sound").initializers.values().next().expect("one").load().expect("held"))
    };
    let codes = [data_type::INT4, data_type::UINT4];
    for (code, last) in codes.into_iter().zip([(packed[70_000] << 4) as i8 >> 4, (packed[70_000] & 15) as i8]) {
        let [own, given] = import(TensorProto::raw("w", code, &dims, packed.clone()));
        let [beside, also] = import(TensorProto::external("w", code, &dims, &[("location", "w"), ("offset", "3")]));
        assert!([&given, &beside, &also].iter().all(|tensor| tensor.same_bits(&own)));
        assert_eq!(own.bytes().last().map(|byte| *byte as i8), Some(last));
    }
}
