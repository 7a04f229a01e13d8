//! No byte outside the model's directory is read, for any location that the model states for its weights.

use anabranch::import::proto::{GraphProto, ModelProto, TensorProto, data_type};
use anabranch::import::{Model, from_bytes, load};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A directory `model` with good and bad neighbours, and a secret of eight bytes outside.
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
        symlink("w.bin", root.join("inner_link"))?;
        fs::hard_link(root.join("sub/w.bin"), root.join("hard"))?;
        mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        Ok(())
    };
    make().expect("a temporary directory takes files, links and pipes");
    folder
}

/// Loads a model whose initialiser `w`, two 32-bit integers, is located by `entries`.
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
        &[("location", "inner_link"), ("length", "8")],
        &[("location", "hard")],
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
    let inside = ["link_dir/secret", "link", "pipe", "sub", "sub/", "missing", "model.onnx/x", ".", ""];
    let outside = ["../secret", "sub/../../secret", "..", "/dev/zero", "/proc/self/environ", &absolute];
    for location in inside.into_iter().chain(outside) {
        let error = load_with(folder.path(), &[("location", location)]).expect_err(location);
        assert!(error.contains("initializer `w`") && error.contains("model.onnx"), "{location}: {error}");
    }
}

/// Creates files at these paths, and links with their targets, in a directory.
fn laid_out(files: &[(&str, &[u8])], links: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let make = || -> io::Result<()> {
        let made = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("in the directory")).map(|()| path)
        };
        files.iter().try_for_each(|(name, bytes)| fs::write(made(name)?, bytes))?;
        links.iter().try_for_each(|(name, target)| symlink(target, made(name)?))
    };
    make().expect("a temporary directory takes files and links");
    folder
}

/// Elements of the data of a model at a path, or the error.
fn loaded(folder: &tempfile::TempDir, model: &str) -> Result<Vec<i32>, String> {
    load(&folder.path().join(model)).map(|model| elements(&model)).map_err(|error| error.to_string())
}

#[test]
fn caches_and_volumes_of_links_are_read_and_links_that_lead_out_are_not() {
    let tensor = TensorProto::external("w", data_type::INT32, &[2], &[("location", "w.bin")]);
    let graph = GraphProto { initializer: vec![tensor], ..GraphProto::default() };
    let model = &ModelProto::of(graph, 17).to_bytes()[..];
    let data = &[1, 0, 0, 0, 2, 0, 0, 0][..];
    // Hugging Face's cache: both are links to files named by their hashes.
    let cache = laid_out(
        &[("blobs/a1", model), ("blobs/b2", data)],
        &[("snapshots/1/onnx/model.onnx", "../../../blobs/a1"), ("snapshots/1/onnx/w.bin", "../../../blobs/b2")],
    );
    assert_eq!(loaded(&cache, "snapshots/1/onnx/model.onnx"), Ok(vec![1, 2]));
    // A volume of Kubernetes: links through a link to the directory of the day.
    let volume = laid_out(
        &[("..2026_11/model.onnx", model), ("..2026_11/w.bin", data)],
        &[("..data", "..2026_11"), ("model.onnx", "..data/model.onnx"), ("w.bin", "..data/w.bin")],
    );
    assert_eq!(loaded(&volume, "model.onnx"), Ok(vec![1, 2]));
    // A directory that is a link itself.
    let linked = laid_out(&[("real/model.onnx", model), ("real/w.bin", data)], &[("model", "real")]);
    assert_eq!(loaded(&linked, "model/model.onnx"), Ok(vec![1, 2]));
    // An unpacked archive: the model is a file of its own, and the link next to it leads out.
    for target in ["../secret", "/etc/passwd", "/proc/self/environ", "/dev/zero", "../archive-2/w.bin"] {
        let archive = laid_out(
            &[("archive/model.onnx", model), ("secret", data), ("archive-2/w.bin", data)],
            &[("archive/w.bin", target)],
        );
        let error = loaded(&archive, "archive/model.onnx").expect_err(target);
        assert!(error.contains("`w.bin` is a link to") && error.contains("outside the model's directory"), "{error}");
    }
    // A link to a model admits files next to that model, and nothing next to the link.
    let apart = laid_out(
        &[("store/model.onnx", model), ("other/w.bin", data)],
        &[("mine/model.onnx", "../store/model.onnx"), ("mine/w.bin", "../other/w.bin")],
    );
    assert!(loaded(&apart, "mine/model.onnx").is_err_and(|error| error.contains("outside the model's directory")));
}

#[test]
fn tied_weights_share_a_region_whatever_their_types_and_shapes() {
    let data: Vec<u8> = (0..48u8).collect();
    let entries = |offset, length| [("location", "w.bin"), ("offset", offset), ("length", length)];
    let tensor = |name: &str, code, dims: &[i64], offset, length| {
        TensorProto::external(name, code, dims, &entries(offset, length))
    };
    let whole = [
        tensor("a", data_type::FLOAT, &[3, 4], "0", "48"),
        tensor("b", data_type::FLOAT, &[12], "0", "48"),
        tensor("c", data_type::INT32, &[4, 3], "0", "48"),
        tensor("d", data_type::UINT8, &[48], "0", "48"),
        tensor("e", data_type::INT16, &[4], "40", "8"),
        tensor("f", data_type::INT4, &[95], "0", "48"),
        tensor("g", data_type::INT4, &[96], "0", "48"),
    ];
    let graph = GraphProto { initializer: whole.to_vec(), ..GraphProto::default() };
    let folder = laid_out(&[("model.onnx", &ModelProto::of(graph, 21).to_bytes()), ("w.bin", &data)], &[]);
    let model = load(&folder.path().join("model.onnx")).expect("tied weights");
    let loaded: Vec<_> = model.initializers.values().map(|constant| constant.load().expect("readable")).collect();
    assert_eq!(loaded.len(), 7);
    for tensor in &loaded[..4] {
        assert_eq!(tensor.bytes(), data);
    }
    assert_eq!(loaded[4].bytes(), &data[40..]);
    assert_eq!((loaded[5].bytes().len(), loaded[6].bytes().len()), (95, 96));
}

#[test]
fn a_small_file_is_not_read_as_many_times_as_it_likes() {
    let length = (1usize << 20).to_string();
    let offsets: Vec<String> = (0..300).map(|offset| offset.to_string()).collect();
    let tensor = |(index, offset): (usize, &String)| {
        let entries = [("location", "w.bin"), ("offset", offset), ("length", &*length)];
        TensorProto::external(&format!("w{index}"), data_type::UINT8, &[1 << 20], &entries)
    };
    let graph = GraphProto { initializer: offsets.iter().enumerate().map(tensor).collect(), ..GraphProto::default() };
    let data = vec![1; (1 << 20) + 300];
    let folder = laid_out(&[("model.onnx", &ModelProto::of(graph, 17).to_bytes()), ("w.bin", &data)], &[]);
    let error = load(&folder.path().join("model.onnx")).map(drop).expect_err("300 MiB of one").to_string();
    assert!(error.contains("overlap") && error.contains("sparse_bytes"), "{error}");
}

#[test]
fn regions_outside_the_file_are_refused() {
    let folder = directory();
    for (offset, length, text) in [
        ("18446744073709551615", "8", "but the file has only 9 bytes"),
        ("18446744073709551608", "8", "but the file has only 9 bytes"),
        ("9", "8", "but the file has only 9 bytes"),
        ("2", "8", "but the file has only 9 bytes"),
        ("0", "0", "i32[2] takes 8 bytes, but has 0"),
        ("0", "18446744073709551615", "i32[2] takes 8 bytes, but has 18446744073709551615"),
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
    assert!(error.contains("`weights/layer.bin` does not exist; put it next to the model"), "{error}");
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
