#!/usr/bin/env bash
# tests/wheels.sh [FOLDER]: manylinux wheels for x86_64 and aarch64 (MACHINES), cross-built by zig, and what is
# true of them: their tag, the symbols they need of glibc, dbq.wasm inside. The one for aarch64 runs a network under
# QEMU, in Debian's Python for ARM with numpy's wheel. Needs ziglang, auditwheel, qemu-aarch64-static, a network.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
python=$(command -v "$python")
out=${1:-dist}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT

for machine in ${MACHINES:-aarch64 x86_64}; do
    _PYTHON_HOST_PLATFORM=manylinux_2_17_$machine PATH="$(dirname "$python"):$PATH" \
        "$python" -m pip wheel --quiet --no-deps --wheel-dir "$out" . -C build-dir="build/wheel-$machine" \
        -C "cmake.args=-DCMAKE_TOOLCHAIN_FILE=$PWD/cmake/manylinux-$machine.cmake"
    wheel=$(echo "$out"/dbq-*-py3-none-manylinux_2_17_"$machine".whl)
    "$python" -m tests.wheel_contents "$wheel" "$machine"
    "$python" -m auditwheel show "$wheel" | tee "$here/audit"
    tr '\n' ' ' <"$here/audit" | grep -q "manylinux_2_17_$machine"
done

# Debian's packages for ARM beside those of this machine: nothing is installed.
debian=(-o "Dir::State=$here/state" -o "Dir::State::status=$here/status" -o "Dir::Cache=$here/cache"
    -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root)
mkdir -p "$here"/{state/lists/partial,cache/archives/partial,debs,root}
touch "$here/status"
apt-get "${debian[@]}" -qq update
(cd "$here/debs" && apt-get "${debian[@]}" -qq download python3.11-minimal libpython3.11-{minimal,stdlib} libc6 \
    libstdc++6 libgcc-s1 zlib1g libexpat1 libffi8 libbz2-1.0 liblzma5 libssl3 libcrypt1 libuuid1)
for package in "$here"/debs/*.deb; do dpkg-deb -x "$package" "$here/root"; done
"$python" -m pip install --quiet --target "$here/site" --python-version 3.11 --only-binary=:all: \
    --platform manylinux_2_17_aarch64 --platform manylinux_2_28_aarch64 -c constraints.txt \
    "$(echo "$out"/dbq-*manylinux_2_17_aarch64.whl)[cli]"
run() { # CPU ARGUMENTS: that Python, with this package
    qemu-aarch64-static -cpu "$1" -L "$here/root" -E "PYTHONHOME=$here/root/usr" -E "PYTHONPATH=$here/site:$PWD" \
        "$here/root/usr/bin/python3.11" "${@:2}"
}
for cpu in cortex-a53:neon neoverse-n1:neon-dot max:neon-i8mm; do
    run "${cpu%:*}" -m tests.wheel_run "${cpu#*:}"
    run "${cpu%:*}" -m dbq doctor | grep -E "python|engine|pages"
done
