#!/usr/bin/env bash
# gpu_deps.sh --prove over small made-up packages: whole, without a library that another needs (named, with who needs
# it), with a link to a file that was left behind, with a program whose own library is missing, and with one
# that was built with it.
#   tests/scripts/gpu_deps_proof.sh COMPILER
set -euo pipefail
prove=$(cd "$(dirname "$0")/../.." && pwd)/scripts/gpu_deps.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
lib=package/usr/lib
mkdir -p $lib

echo 'int low() { return 1; }' >low.cpp
echo 'int low(); int high() { return low(); }' >high.cpp
echo 'int high(); int main() { return high(); }' >program.cpp
"$1" -shared -fPIC low.cpp -Wl,-soname,liblow.so.1 -o $lib/liblow.so.1.0
ln -s liblow.so.1.0 $lib/liblow.so.1
"$1" -shared -fPIC high.cpp $lib/liblow.so.1 -Wl,-soname,libhigh.so.1 -o $lib/libhigh.so.1
"$1" program.cpp $lib/libhigh.so.1 -Wl,-rpath-link,$lib -o program

refused() { # PATTERN: what the proof's message must hold
    if "$prove" --prove package ./program >out 2>&1; then echo "accepted, where it lacks: $1" && exit 1; fi
    grep -q "$1" out || { echo "no '$1' in:" && cat out && exit 1; }
}
"$prove" --prove package ./program
mkdir package/opt && mv $lib/liblow.so.1* package/opt/ # where no loader looks
refused 'liblow.so.1: needed by libhigh.so.1,'
mv package/opt/* $lib/
mv $lib/liblow.so.1.0 .
refused 'liblow.so.1: needed by libhigh.so.1,'
rm $lib/liblow.so.1
refused 'liblow.so.1: needed by libhigh.so.1,'
mv $lib/libhigh.so.1 .
refused 'libhigh.so.1: needed by program,'
mkdir build build/bin build/lib && mv program build/bin/ && mv libhigh.so.1 build/lib/ && cp liblow.so.1.0 build/lib/liblow.so.1
"$prove" --prove package build/bin/program # what was built beside it
echo passed
