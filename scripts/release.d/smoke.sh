# Part of scripts/release: one function tests each artefact as a user would install it, in a fresh folder, environment
# or Debian. Each runs a convolutional network of tests/data and compares its output with ONNX Runtime's.

# The line of examples/c/run_model.c for an input of ones: ONNX Runtime 1.31.1 computes 10.815739.
first_output='output logits: 40 bytes, the first is 10[.]81[56]'

# Makes the fresh folder of a test, $here, with the network.
fresh() {
    here=$stage/smoke/$1
    mkdir -p "$here/home"
    cp -L tests/data/convnet.onnx tests/data/convnet.npz examples/c/run_model.c "$parts/smoke.py" "$here"
}

# Runs a command in the fresh folder, without the variables and the files of the user.
clean_run() { (cd "$here" && env -i HOME="$here/home" XDG_RUNTIME_DIR="$here" PATH=/usr/bin:/bin "$@"); }

names_no_folder() {
    for file; do
        [ -f "$file" ] || fail "$file is missing"
        ! grep -qF -e "$work" -e "${CARGO_HOME:-$HOME/.cargo}/" "$file" || fail "$file names a folder of this machine"
    done
}

smoke_command() {
    fresh command
    tar --extract --file "$files/$command_tree.tar.gz" --directory "$here" --strip-components 1
    names_no_folder "$here/bin/anabranch"
    clean_run bin/anabranch --version | grep -qE "^anabranch $version( |\$)" || fail "the command has another version"
    clean_run bin/anabranch run convnet.onnx --input convnet.npz --expect convnet.npz --quiet
    for file in man/man1/anabranch-run.1 bash-completion/completions/anabranch zsh/site-functions/_anabranch \
        fish/vendor_completions.d/anabranch.fish doc/anabranch/THIRD-PARTY.txt; do
        [ -s "$here/share/$file" ] || fail "the archive has no share/$file"
    done
}

# Compiles and runs the example with the flags of pkg-config, linked with the library in $here/lib.
run_example() {
    flags=$(PKG_CONFIG_PATH=$here/lib/pkgconfig pkg-config "$@" --cflags --libs anabranch)
    # shellcheck disable=SC2086
    cc -Wall -Werror -o "$here/run_model" "$here/run_model.c" $flags -Wl,-rpath,"$here/lib"
    clean_run ./run_model convnet.onnx >"$here/output.txt"
    grep -q "$first_output" "$here/output.txt" || { cat "$here/output.txt" >&2; fail "run_model printed another output"; }
}

smoke_library() {
    fresh library
    tar --extract --file "$files/$library_tree.tar.gz" --directory "$here" --strip-components 1
    names_no_folder "$here/lib/$soname" "$here/lib/libanabranch_c.a"
    run_example
    ldd "$here/run_model" | grep -qF "$here/lib/$soname" || fail "the example does not load $soname"
    rm "$here/lib/"*.so*
    run_example --static
}

environment() {
    python3 -m venv "$here/venv"
    "$here/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

smoke_provider() {
    fresh provider
    tar --extract --file "$files/$provider_tree.tar.gz" --directory "$here" --strip-components 1
    names_no_folder "$here/lib/libanabranch_ort.so"
    environment -r plugin/ort/tests/requirements.txt
    clean_run venv/bin/python smoke.py provider lib/libanabranch_ort.so
}

smoke_wheel() {
    fresh wheel
    environment "$files"/*.whl
    names_no_folder "$here"/venv/lib/python3.*/site-packages/anabranch/_native* "$here"/venv/lib/python3.*/site-packages/anabranch-*/sboms/*
    clean_run venv/bin/python smoke.py wheel "$version"
}

# Images are kept in a folder of this script.
images=$work/images
export CONTAINERS_STORAGE_CONF="$images/storage.conf"

# Without root, files of images belong to subordinate users.
remove_images() {
    [ -d "$images" ] || return 0
    if [ "$(id -u)" = 0 ]; then rm -rf "$images"; else buildah unshare rm -rf "$images"; fi
}

# Builds an image. Isolation by chroot needs no service and no root.
build_image() { buildah build --quiet --isolation chroot --pull-never "$@" >/dev/null; }

# The base image comes from its registry, or is made of the packages of the same Debian.
base_image() {
    mkdir -p "$images"
    printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/root"\nrunroot = "%s/run"\n' "$images" "$images" >"$images/storage.conf"
    base=docker.io/library/debian:$suite-slim
    if ! buildah inspect --type image "$base" >/dev/null 2>&1 && ! timeout 300 buildah pull --quiet "$base" >/dev/null 2>&1; then
        need mmdebstrap
        mkdir -p "$stage/base"
        mmdebstrap --quiet --variant=minbase "$suite" "$stage/base/root.tar"
        printf 'FROM scratch\nADD root.tar /\n' >"$stage/base/Containerfile"
        build_image --tag "$base" "$stage/base"
        rm "$stage/base/root.tar"
        touch "$images/made-here"
    fi
    [ ! -e "$images/made-here" ] || note "the registry of images cannot be reached; deb and container were tested on a base image that mmdebstrap made"
}

# Installs the package in a fresh Debian, uses command and library there, and removes it again.
smoke_deb() {
    [ -n "$containers" ] || { note "the Debian package was not tested (--skip-containers)"; return; }
    base_image
    fresh deb
    cp "$files/$package" "$here"
    sed "s/@SUITE@/$suite/; s/@PACKAGE@/$package/; s/@VERSION@/$version/; s/@FIRST@/$first_output/" "$parts/deb.containerfile" >"$here/Containerfile"
    build_image "$here"
}

# Builds the published Containerfile, and runs the network with the image as its own user.
smoke_container() {
    [ -n "$containers" ] || { note "the container was not tested (--skip-containers)"; return; }
    fresh container
    cp "$files/Containerfile" "$files/$package" "$here"
    build_image --tag anabranch "$here"
    container=$(buildah from --pull-never localhost/anabranch)
    buildah copy --quiet "$container" "$here/convnet.onnx" "$here/convnet.npz" /data/
    buildah run --isolation chroot "$container" -- anabranch run convnet.onnx --input convnet.npz --expect convnet.npz --quiet
    buildah rm "$container" >/dev/null
}

# Cargo has compiled the packages. None may have large files that only tests need.
smoke_crates() {
    large=$(find "$files/crates" -size +1M)
    [ -z "$large" ] || fail "these packages are larger than 1 MiB: $large"
    [ "$(ls "$files/crates" | wc -l)" = "$(published | wc -w)" ] || fail "packages are missing in $files/crates"
}

smoke_sbom() {
    names_no_folder "$files"/sbom/*
    for file in "$files"/sbom/*; do python3 "$parts/smoke.py" sbom "$file" "$version"; done
}
