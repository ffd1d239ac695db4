#!/usr/bin/env bash
# Every program of a CUDA build starts where no driver and no NCCL is: nothing links libcuda, libnccl or cuBLAS, and the
# three commands answer --help with a library path that holds none.
#   starts_without_driver.sh BIN_FOLDER
set -uo pipefail
bin=$1
broken=0
complain() {
    echo "$1" >&2
    broken=1
}
for program in "$bin"/*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    linked=$(LC_ALL=C objdump -p "$program" | sed -n 's/ *NEEDED *//p')
    case "$linked" in *libcuda* | *libnccl* | *libcublas* | *libcudart*)
        complain "$(basename "$program") links $(grep -E 'libcuda|libnccl|libcublas|libcudart' <<<"$linked" | tr '\n' ' ')" ;;
    esac
done
for program in tandem-train tandem-engine tandem-sync; do
    [ -x "$bin/$program" ] || complain "$program was not built"
    "$bin/$program" --help >/dev/null || complain "$program --help ends with $?"
done
exit $broken
