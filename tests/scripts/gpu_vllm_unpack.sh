#!/usr/bin/env bash
# gpu_vllm.sh --unpack over a small made-up package in two parts: the command finds what was carried, and a part that is
# missing or an archive that is broken is an error.
set -euo pipefail
unpack="$(cd "$(dirname "$0")/../.." && pwd)/scripts/gpu_vllm.sh --unpack"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p site with parts path
head -c 40000 /dev/urandom >site/noise
echo ours >with/program
tar -cJf parts/site.txz site
tar -cJf parts/with.txz with
tar -c -C parts . | split -b 20000 -d - part.
printf '#!/bin/sh\necho "$PYTHONPATH $*"\n' >path/python3
chmod +x path/python3

$unpack "$work/there" part.*
cmp site/noise there/site/noise
[ "$(cat there/with/program)" = ours ]
[ "$(PATH=$work/path:$PATH PYTHONPATH=before there/vllm serve 'a model')" = "$work/there/site:before -m vllm.entrypoints.cli.main serve a model" ]

if $unpack "$work/short" part.00 2>/dev/null; then echo "accepted without its last parts" && exit 1; fi
head -c 20000 parts/site.txz >cut && mv cut parts/site.txz
tar -c -C parts . >whole
if $unpack "$work/cut" whole 2>/dev/null; then echo "accepted with half an archive" && exit 1; fi
echo ok
