# What a machine with a GPU has of what gpu_check.sh needs: looked for before anything is built, in about two seconds,
# and printed as one table. Sourced by gpu_check.sh; sets what it found (nvcc, gpu, …) and the needs that lines of
# checks.txt can name and this machine lacks: lacks[nccl]="why".

declare -A lacks=()
fatal=0 gpu="" driver="" capability="" nvcc="" sanitizer="" mps_control="" cuda=""

row() { printf '  %-20s %s\n' "$1" "$2"; }
missing() { row "$1" "MISSING: $2" && fatal=1; }
absent() { # NEED NAME WHY: what leaves lines out
    lacks[$1]="no $2"
    row "$2" "none; left out: $(lines_that_need "$1")${3:+ ($3)}"
}
lines_that_need() { awk -v need="$1" '$3 ~ "(^|,)" need "(,|$)" {printf "%s%s", sep, $1; sep = ", "}' "$plan_file"; }
tool() { # NAME: on PATH, or in the toolkit's usual place
    command -v "$1" || ls "/usr/local/cuda/bin/$1" 2>/dev/null || true
}
first_of() { # FILE…: the first that is there
    local file
    for file in "$@"; do [ -e "$file" ] && echo "$file" && return; done
}

# The nvidia folders of a Python environment: its wheels keep lib and include in a folder for each library.
python_nvidia() {
    "${TORCH_PYTHON:-python3}" -c 'import nvidia, glob
for path in nvidia.__path__:
    for folder in glob.glob(path + "/*/"): print(folder)' 2>/dev/null
}

# SONAME VARIABLE: where the loader finds the library; else in the toolkit or in Python's folders, which VARIABLE then
# names for Tandem. Prints the file, or nothing.
find_runtime_library() {
    local soname=$1 variable=$2 file folder
    if [ -n "${!variable:-}" ]; then first_of "${!variable}"; return; fi
    IFS=: read -ra folders <<<"${LD_LIBRARY_PATH:-}"
    file=$(first_of "${folders[@]/%//$soname}")
    [ -n "$file" ] || file=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | awk -v n="$soname" '$1 == n {print $NF; exit}')
    [ -n "$file" ] || file=$(first_of "$cuda"/{lib64,lib,targets/x86_64-linux/lib}/"$soname" "${wheels[@]/%/lib/$soname}")
    [ -n "$file" ] && echo "$file"
}
find_header() { first_of "$cuda"/{include,targets/x86_64-linux/include}/"$1" "/usr/include/$1" "${wheels[@]/%/include/$1}"; }

find_gpu() {
    local ask="nvidia-smi --format=csv,noheader"
    gpu=$($ask --query-gpu=name 2>/dev/null | head -1)
    driver=$($ask --query-gpu=driver_version 2>/dev/null | head -1)
    capability=$($ask --query-gpu=compute_cap 2>/dev/null | head -1 | tr -d .)
    gpus=$($ask --query-gpu=name 2>/dev/null | wc -l)
    if [ -n "$gpu" ]; then row GPU "$gpus × $gpu, sm_$capability, driver $driver"; else missing GPU "nvidia-smi names none"; fi
}

find_compilers() {
    local name version needed="g++ cmake ninja"
    [ -z "$prebuilt" ] || needed=ctest
    for name in $needed; do
        version=$("$name" --version 2>/dev/null | head -1 | grep -oE '[0-9]+\.[0-9.]+[0-9]' | tail -1)
        if [ -n "$version" ]; then row "$name" "$version"; else missing "$name" "not on PATH"; fi
    done
    nvcc=$(tool nvcc) cuda=/usr/local/cuda
    if [ -n "$prebuilt" ]; then row "built by nvcc" "$toolkit" && return; fi
    if [ -z "$nvcc" ]; then missing nvcc "not on PATH, nor in /usr/local/cuda/bin: install the CUDA toolkit 13.0" && return; fi
    cuda=$(dirname "$(dirname "$(realpath "$nvcc")")")
    toolkit=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
    row nvcc "$toolkit, $nvcc"
}

find_cuda_libraries() {
    local name file
    for name in cuda_runtime.h cublasLt.h; do
        [ -z "$prebuilt" ] || break
        file=$(find_header "$name")
        if [ -n "$file" ]; then row "$name" "$file"; else missing "$name" "neither in ${cuda:-a toolkit} nor in Python's nvidia folders"; fi
        # What only a wheel has, the compilers find through CPATH.
        case "$file" in "" | "$cuda"/* | /usr/include/*) ;; *) export CPATH=${CPATH:+$CPATH:}$(dirname "$file") ;; esac
    done
    file=$(find_header nccl.h)
    row nccl.h "${file:-none; the build does not compare NCCL\'s declarations with ours}"
    file=$(first_of "$cuda"/{lib64,lib,targets/x86_64-linux/lib}/libcudart_static.a)
    if [ -n "$file" ]; then row libcudart_static "$file"; elif [ -z "$prebuilt" ]; then missing libcudart_static "not in ${cuda:-a toolkit}"; fi

    name=libcublasLt.so.${toolkit%%.*}
    file=$(find_runtime_library "$name" TANDEM_CUBLASLT)
    if [ -n "$file" ]; then
        row libcublasLt "$file" && export TANDEM_CUBLASLT=$file
    else
        missing libcublasLt "${TANDEM_CUBLASLT:-$name} is nowhere: name the file in TANDEM_CUBLASLT"
    fi
    file=$(find_runtime_library libnccl.so.2 TANDEM_NCCL)
    if [ -n "$file" ]; then
        row libnccl "$file" && export TANDEM_NCCL=$file
    else
        absent nccl libnccl "TANDEM_NCCL names the file"
    fi
}

# What CMake links and what those libraries need: in the package, or found by this machine's linker and loader.
find_carried_libraries() {
    local problems none programs=()
    none=$(mktemp -d)
    if [ -n "$prebuilt" ]; then programs=("$build"/bin/*); fi
    if problems=$("$scripts/gpu_deps.sh" --prove "${deps:-$none}" --here "${programs[@]}" 2>&1); then
        rmdir "$none"
        row "other libraries" "$problems"
        return
    fi
    rmdir "$none"
    while read -r problem; do missing "$(cut -d: -f1 <<<"$problem")" "$(cut -d: -f2- <<<"$problem")"; done \
        < <(sed 's/^scripts\/gpu_deps.sh: //' <<<"$problems")
}

find_what_leaves_lines_out() {
    local torch
    sanitizer=$(tool compute-sanitizer)
    if [ -n "$sanitizer" ]; then row compute-sanitizer "$sanitizer"; else absent sanitize compute-sanitizer; fi
    torch=$("${TORCH_PYTHON:-python3}" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null)
    if [ -n "$torch" ]; then row PyTorch "$torch"; else absent torch PyTorch "TORCH_PYTHON names a Python that has it"; fi
    [ "${gpus:-0}" -ge 2 ] || lacks[two]="fewer than 2 GPUs, and NCCL takes one rank a GPU"
    [ -z "${TANDEM_EMULATED_GPUS:-}" ] || lacks[real]="an emulated GPU"
    mps_control=$(tool nvidia-cuda-mps-control)
    row MPS "${mps_control:-none; ranks that share the GPU take turns: $(lines_that_need mps)}"
}

# Returns 1 where something is missing without which nothing can be built or run.
preflight() {
    mapfile -t wheels < <(python_nvidia)
    find_gpu
    find_compilers
    find_cuda_libraries
    find_carried_libraries
    find_what_leaves_lines_out
    return $fatal
}
