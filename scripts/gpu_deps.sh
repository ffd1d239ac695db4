#!/usr/bin/env bash
# Collects the libraries that Tandem builds with as .deb files, for a machine with a GPU and no network (gpu_check.sh).
# Debian 12 only; about 40 MB. The compiler, CMake, Ninja and the CUDA toolkit must be on that machine.
#   scripts/gpu_deps.sh FOLDER        then, over there: TANDEM_DEPS=FOLDER scripts/gpu_check.sh
set -euo pipefail

case "${1:-}" in
-h | --help | "")
    sed -n '2,4s/^# \{0,1\}//p' "$0"
    [ -n "${1:-}" ] && exit 0 || exit 2
    ;;
esac
folder=$1
here=$(cd "$(dirname "$0")" && pwd)
limit_mib=64

# The packages of install.sh, less the programs.
roots=$(sed -n '/^needed=/,/^\[/p' "$here/install.sh" | grep -oE '[a-z0-9.+-]+:/usr/include' | cut -d: -f1)
# What every machine with a compiler has. (No pipe may end in grep -q: apt-cache would be cut off.)
base='^(libc6|libc-|libc[0-9]|linux-|gcc|g\+\+|cpp|lib(gcc|stdc|asan|tsan|ubsan|lsan|itm|atomic|quadmath|gomp|cc1)|libcrypt|libnsl|libtirpc|libnss|libcom|libkeyutils|libk(rb)?5|libgssapi|libkrb|perl|python|debconf|cdebconf|dpkg|tar|passwd|adduser|lib(pam|audit|semanage|sepol|selinux|slang|newt|debian|textwrap|tinfo|readline|db5|acl|attr|bz2|lzma|md|zstd|cap|gdbm|gpm|mount)|zlib|install-info|readline|icu-devtools|rpcsvc|ocl-icd|catch2|login|libmount)'
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
