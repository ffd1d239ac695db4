#!/usr/bin/env bash
# exports.sh LIBRARY HEADER: the library exports what the header declares and nothing else, and links neither a matrix
# library nor a tokenizer's, nor does it hold a tokenizer or an HTTP server.
set -euo pipefail
library=$1 header=$2 broken=0
complain() { echo "$library: $1" >&2; broken=1; }

exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | LC_ALL=C sort)
declared=$(grep -oE '^TD_API .*\b(td_[a-z_]+)\(' "$header" | grep -oE 'td_[a-z_]+\($' | tr -d '(' | LC_ALL=C sort)
[ -n "$declared" ] || complain "no declaration found in $header"
[ "$exported" = "$declared" ] || complain "exports differ from $header: $(diff <(echo "$exported") <(echo "$declared") | grep '^[<>]' | tr '\n' ' ')"

needed=$(readelf -d "$library" | awk '/NEEDED/ { print $NF }' | tr -d '[]')
[ -n "$needed" ] || complain "no dependency read"
for unwanted in dnnl mkl blas gomp omp icu pcre2 python torch cuda; do
    found=$(grep -i "$unwanted" <<<"$needed" || true)
    [ -z "$found" ] || complain "links $found"
done
symbols=$(nm -C "$library")
grep -q 'tandem::sync::Session::push' <<<"$symbols" || complain "has no symbols to look at"
for unwanted in tandem::http::Server:: tandem::Tokenizer tandem::ops::matmul tandem::tokenizer; do
    if grep -qF "$unwanted" <<<"$symbols"; then complain "holds $unwanted"; fi
done
exit $broken
