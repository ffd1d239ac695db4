# What scripts/gpu_pack.sh packed, as gpu_check.sh, which sources this, runs it: $prebuilt is the archive, $build the folder
# into which it goes.

unpack_prebuilt() {
    local built_in built_to
    [ -f "$prebuilt" ] || bad "--prebuilt: no file '$prebuilt'"
    if [ "$(cat "$build/prebuilt" 2>/dev/null)" != "$(sum_of "$prebuilt")" ]; then
        [ ! -e "$build/CMakeCache.txt" ] || bad "--prebuilt: $build is a build folder: name another in TANDEM_BUILD"
        rm -rf "$build" && mkdir -p "$build"
        tar -xJf "$prebuilt" -C "$build" || python3 -m tarfile -e "$prebuilt" "$build" || bad "--prebuilt: '$prebuilt' cannot be unpacked into $build"
        sum_of "$prebuilt" >"$build/prebuilt"
    fi
    { read -r built_in && read -r built_to && read -r toolkit; } <"$build/built_at" || bad "--prebuilt: '$prebuilt' is not gpu_pack.sh's: it does not say where it was built"
    stand_in_for "$built_in" "$PWD"
    stand_in_for "$built_to" "$build"
    export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}
sum_of() { sha256sum <"$1" | cut -c1-64; }
# WHERE WHAT: tests name files of the place where they were compiled.
stand_in_for() {
    [ "$1" -ef "$2" ] && return
    [ ! -e "$1" ] || bad "--prebuilt: it was built in $1, which is something else here"
    mkdir -p "$(dirname "$1")" && ln -sfn "$2" "$1" || bad "--prebuilt: no link can be made at $1, where it was built"
}
