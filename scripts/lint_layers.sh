#!/usr/bin/env bash
# lint.layers: who may include whom. Reads every #include "…" and holds the floors of the house:
#   common knows no sibling; engine_adapter knows common; sync knows common and engine_adapter/engine.h;
#   trainer knows common only. Inside common a room knows those below it (common/README.md). A main.cpp, a folder main/ or capi/, an example or a test may join siblings.
set -euo pipefail
cd "$(dirname "$0")/.."

broken=0
complain() {
    echo "$1:$2 includes \"$3\": $4" >&2
    broken=1
}

declare -A below=( # rooms of common, and whom each may know
    [chart]="" [device]="" [http]="" [tokenizer]="" [tensor]="device" [ops]="device tensor" [model]="device tensor"
    [process]="" [identity]="device" [store]="identity"
    [comm]="device tensor ops process identity store" [mesh]="device tensor ops comm" [dtensor]="device tensor ops comm mesh"
    [sharding]="device tensor comm mesh dtensor model")
while IFS=: read -r file line text; do
    header=${text#*\"}
    header=${header%%\"*}
    floor=${file%%/*}
    target=${header%%/*}
    case "$target" in common | engine_adapter | sync | trainer | tests | examples) ;; *)
        # A sanctioned neighbour include of a kernel source; everything else is written from the repository root.
        [[ "$header" == */* ]] || [[ "$header" == *.inl ]] || complain "$file" "$line" "$header" "write the path from the repository root"
        continue ;;
    esac
    if [ "$floor:$target" = common:common ] && [[ "$header" == common/*/* ]]; then
        room=${file#common/}
        other=${header#common/}
        [[ "$room" == */* ]] && room=${room%%/*} || room=base
        other=${other%%/*}
        [ "$room" = "$other" ] || [[ " ${below[$room]-} " == *" $other "* ]] ||
            complain "$file" "$line" "$header" "common/$room is not above common/$other (common/README.md)"
    fi
    case "$file" in */main.cpp | */main/* | */capi/*) continue ;; esac
    case "$floor:$target" in
    common:common | engine_adapter:common | engine_adapter:engine_adapter | sync:common | sync:sync | trainer:common | trainer:trainer) ;;
    sync:engine_adapter)
        [ "$header" = engine_adapter/engine.h ] || complain "$file" "$line" "$header" "sync knows only engine_adapter/engine.h" ;;
    *) complain "$file" "$line" "$header" "$floor may not know $target" ;;
    esac
done < <(grep -rnE '^#include "' common engine_adapter sync trainer --include='*.h' --include='*.cpp' --include='*.inl' --include='*.cu' --include='*.cuh')

for folder in $(find common engine_adapter sync trainer -type d); do
    case "${folder##*/}" in utils | core | helpers | misc)
        echo "$folder: no folder is called utils, core, helpers or misc" >&2
        broken=1 ;;
    esac
done
exit $broken
