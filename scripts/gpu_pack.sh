#!/usr/bin/env bash
# Packs what scripts/gpu_check.sh runs, built here, for a machine with a GPU: there nothing is compiled.
#   scripts/gpu_pack.sh FILE.txz        then, over there: scripts/gpu_check.sh --prebuilt FILE.txz
# From TANDEM_BUILD (default build/gpu; the targets tandem_gpu_tests and tandem_gpu_checks, Release, for the GPU's
# architecture): programs and libraries without their symbols, ctest's files, and the system's libraries that the
# programs need and a machine with g++ does not have anyway; those of TANDEM_DEPS, where it was built with them.
# Exit code 0: packed, 1: not, 2: bad usage.
set -euo pipefail
case "${1:-}" in
-h | --help | "")
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    [ -n "${1:-}" ] && exit 0 || exit 2
    ;;
esac
file=$(realpath -m "$1")
cd "$(dirname "$0")/.."
build=$(realpath -m "${TANDEM_BUILD:-build/gpu}")

packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
mkdir -p "$packed"/{bin,lib}
# What the lines of checks.txt run: tests by ctest's files, programs by name.
plan=tests/gpu/checks.txt
tests=$(awk '$3 ~ /^test/ {print $1}' "$plan")
for program in $(find "$build" -name CTestTestfile.cmake -exec grep -hF "$(sed 's/.*/[=[&]=]/' <<<"$tests")" {} + | sed -n 's/^add_test([^"]*"\([^"]*\)".*/\1/p') \
    $(grep -oE '\$TANDEM_BIN/[a-z_-]+' "$plan" | sed "s#.TANDEM_BIN#$build/bin#") "$build"/bin/tandem-{train,engine,sync}; do
    [ ! -e "$packed/bin/${program##*/}" ] || continue
    strip -o "$packed/bin/${program##*/}" "$program" || { echo "scripts/gpu_pack.sh: $program is not built" >&2 && exit 1; }
done
for library in "$build"/lib/*.so*; do [ ! -e "$library" ] || cp -P "$library" "$packed/lib/"; done
find "$packed/lib" -type f -exec strip --strip-unneeded {} +
(cd "$build" && find . -name CTestTestfile.cmake -print0 | tar -c --null -T -) | tar -x -C "$packed"
# Where ctest's files and what the tests were compiled with look for the sources and the programs; the toolkit.
nvcc=$(sed -n 's/^set(CMAKE_CUDA_COMPILER "\(.*\)")/\1/p' "$build"/CMakeFiles/*/CMakeCUDACompiler.cmake)
printf '%s\n%s\n%s\n' "$PWD" "$build" "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')" >"$packed/built_at"

. scripts/gpu_libraries.sh
# What was built from a package (TANDEM_DEPS) finds its libraries there: as given, or where gpu_check.sh unpacked it.
deps=${TANDEM_DEPS:-}
if ls "$deps"/*.deb >/dev/null 2>&1; then deps=$build.deps; fi
[ -z "$deps" ] || export LD_LIBRARY_PATH=$(scripts/gpu_deps.sh --folders "$deps")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
needed=$({ ldd "$packed"/bin/* "$build"/lib/*.so* 2>/dev/null || true; } | awk '$2 == "=>" {print $1, $3}' | sort -u)
while read -r name library; do
    case "$library" in "$build"/*) continue ;; esac
    [[ ! "$name" =~ $on_every_machine ]] || continue
    [ "$library" != not ] || { echo "scripts/gpu_pack.sh: $name is not found here (TANDEM_DEPS?): no program would start" >&2 && exit 1; }
    cp -L "$library" "$packed/lib/"
done <<<"$needed"
mkdir -p "$(dirname "$file")"
# The programs hold the same libraries: a window over all of them makes it a third.
tar -c -C "$packed" . | xz --x86 --lzma2=preset=9,dict=256MiB >"$file"
echo "$(ls "$packed/bin" | wc -l) programs, $(ls "$packed/lib" | wc -l) libraries, $(du -m "$file" | cut -f1) MiB in $file"
