#!/usr/bin/env bash
# Collects the libraries that Tandem builds with as .deb files, for a machine with a GPU and no network (gpu_check.sh).
# Debian 12 only; about 45 MB. The compiler, CMake, Ninja and the CUDA toolkit must be on that machine.
#   scripts/gpu_deps.sh FOLDER        then, over there: TANDEM_DEPS=FOLDER scripts/gpu_check.sh
#   scripts/gpu_deps.sh --prove FOLDER [--here] [PROGRAM…]
#   scripts/gpu_deps.sh --folders PREFIX        where in an unpacked package libraries lie, for LD_LIBRARY_PATH
#
# The first ends with the second: the proof that the package is whole. What a program or a carried library needs at run
# time must be in FOLDER (.deb files, or an unpacked prefix), in the lib/ beside the program's bin/, or be what any machine
# with g++ has; all else is named, with who needs it. Without PROGRAM: those of build/gpu/bin and build/cuda/bin, as far as
# they are built, and what CMake links. With --here what this machine's linker and loader find is as good as carried.
# Exit code 0: whole, 1: not, 2: bad usage.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
limit_mib=50 # with the sources less than the 64 MiB that a borrowed machine takes

case "${1:-}" in
-h | --help | "")
    sed -n '2,12s/^# \{0,1\}//p' "$0"
    [ -n "${1:-}" ] && exit 0 || exit 2
    ;;
esac

. "$here/gpu_libraries.sh"
folders() { printf '%s' "$1/usr/lib/x86_64-linux-gnu:$1/lib/x86_64-linux-gnu:$1/usr/lib"; }
declare -A carried=()
here_too=0
complain() { echo "scripts/gpu_deps.sh: $1" >&2 && whole=0; }
there() { # SONAME: at run time
    [ -n "${carried[$1]:-}" ] || [[ "$1" =~ $on_every_machine ]]
}
links() { # NAME: by -lNAME
    [ -n "${carried[lib$1.so]:-}${carried[lib$1.a]:-}" ] || { [ $here_too = 1 ] && [[ $(g++ -print-file-name="lib$1.so")$(g++ -print-file-name="lib$1.a") == */* ]]; }
}
prove() { # FOLDER [PROGRAM…]
    local prefix=$1 file name programs whole=1 where="in the package nor on every machine with g++"
    shift
    if ls "$prefix"/*.deb >/dev/null 2>&1; then
        unpacked=$(mktemp -d)
        trap 'rm -rf "$unpacked"' EXIT
        for file in "$prefix"/*.deb; do dpkg-deb -x "$file" "$unpacked"; done
        prefix=$unpacked
    fi
    while read -r file; do
        [ -e "$file" ] && carried[${file##*/}]=1 # not a link to what was left behind
    done < <(IFS=: && find $(folders "$prefix") -maxdepth 1 -name '*.so' -o -name '*.so.*' -o -name '*.a' 2>/dev/null)
    if [ $here_too = 1 ]; then
        where="in the package nor found by this machine's loader"
        for name in $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk 'NR > 1 {print $1}'); do carried[$name]=1; done
    fi
    if [ $# -eq 0 ]; then
        for file in "$here"/../build/{gpu,cuda}/bin/*; do [ -f "$file" ] && set -- "$@" "$file"; done
        # By the names that the linker asks for: those that CMake looks for, and those that it finds as packages.
        for name in $(grep -ohE 'find_library\([A-Z0-9_]+ +[a-z0-9-]+' "$here/cmake/TandemDependencies.cmake" | sed 's/.* //') \
            fmt spdlog icuuc gtest gmock benchmark; do
            links "$name" || complain "lib$name.so: linked by CMake, and not there"
        done
    fi
    for file in "$@"; do # what was built beside the programs (bin/, lib/)
        for name in "$(dirname "$file")"/../lib/*.so*; do
            if [ -e "$name" ] && ! there "${name##*/}"; then carried[${name##*/}]=1 && set -- "$@" "$name"; fi
        done
    done
    programs=$#
    while read -r file; do set -- "$@" "$file"; done < <(find "$prefix" -type f -name '*.so*')
    for file in "$@"; do
        for name in $(readelf -d "$file" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
            there "$name" || complain "$name: needed by ${file##*/}, and neither $where"
        done
    done
    [ $whole = 1 ] || return 1
    echo "whole: what $programs programs and $(($# - programs)) carried libraries need is there"
}
if [ "$1" = --folders ]; then
    folders "${2:?a prefix}"
    exit
fi
if [ "$1" = --prove ]; then
    [ $# -ge 2 ] && [ -d "$2" ] || { echo "scripts/gpu_deps.sh: --prove needs a folder" >&2 && exit 2; }
    folder=$2
    shift 2
    [ "${1:-}" = --here ] && here_too=1 && shift
    prove "$folder" "$@"
    exit
fi
folder=$1

# The packages of install.sh, less the programs.
roots=$(sed -n '/^needed=/,/^\[/p' "$here/install.sh" | grep -oE '[a-z0-9.+-]+:/usr/include' | cut -d: -f1)
# What every machine with a compiler has. (No pipe may end in grep -q: apt-cache would be cut off.)
base='^(libc6|libc-|libc[0-9]|linux-|gcc|g\+\+|cpp|lib(gcc|stdc|asan|tsan|ubsan|lsan|itm|atomic|quadmath|gomp|cc1)|libcrypt|libnsl|libtirpc|libnss|libcom|libkeyutils|libk(rb)?5|libgssapi|libkrb|perl|python|debconf|cdebconf|dpkg|tar|passwd|adduser|lib(pam|audit|semanage|sepol|selinux|slang|newt|debian|textwrap|tinfo|readline|db5|acl|attr|bz2|lzma|md|zstd|cap|gdbm|gpm|mount)|zlib|install-info|readline|icu-devtools|rpcsvc|ocl-icd-(opencl-)?dev|opencl-(c|clhpp)-headers|catch2|login|libmount)'
closure=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances $roots | grep -E '^[a-z0-9]' | sort -u | grep -vE "$base")
wanted=$(printf '%s\n' $roots $closure | sort -u)
available=$(apt-cache --generate pkgnames | sort -u)
wanted=$(comm -12 <(echo "$wanted") <(echo "$available"))

mkdir -p "$folder"
# apt-get download leaves the files where it runs; one call for all of them.
(cd "$folder" && apt-get download -qq $wanted)
mib=$(du -sm "$folder" | cut -f1)
echo "$(find "$folder" -name '*.deb' | wc -l) packages, $mib MiB, in $folder"
if [ "$mib" -gt "$limit_mib" ]; then
    echo "scripts/gpu_deps.sh: more than $limit_mib MiB: the largest are" >&2
    find "$folder" -name '*.deb' -size +2M -printf '%s %f\n' | sort -rn | head -5 >&2
    exit 1
fi
prove "$folder"
