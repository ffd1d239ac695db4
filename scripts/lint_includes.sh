#!/usr/bin/env bash
# lint.includes: a file that uses a name of the standard library includes the header that the standard puts it in, itself
# or through a header of this project. What the library's own headers happen to bring differs from one version to the
# next. The table has the names that this code uses most; a name that is not in it is not looked at.
set -euo pipefail
cd "$(dirname "$0")/.."
find common engine_adapter sync trainer tests examples \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inl' \) |
    LC_ALL=C sort | LC_ALL=C awk '
BEGIN {
    rows[++n] = "cstddef byte max_align_t"  # std::size_t comes with everything
    rows[++n] = "cstdint int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t intptr_t"
    rows[++n] = "utility exchange move forward pair swap make_pair index_sequence"
    rows[++n] = "memory unique_ptr shared_ptr weak_ptr make_unique make_shared"
    rows[++n] = "string string to_string stoi stoll stoul stod getline"
    rows[++n] = "algorithm min max clamp sort stable_sort find find_if all_of any_of none_of count count_if copy fill equal unique reverse lower_bound upper_bound nth_element max_element min_element"
    rows[++n] = "cstring memcpy memset memcmp memmove strlen strcmp strncmp strerror"
    rows[++n] = "cmath sqrt exp log log2 pow floor ceil fabs isfinite isnan lround"
    rows[++n] = "cstdio FILE fopen fclose printf fprintf snprintf fread fwrite"
    rows[++n] = "cstdlib getenv strtol strtoll strtod system exit malloc free"
    rows[++n] = "functional function hash"
    rows[++n] = "numeric accumulate iota gcd lcm"
    rows[++n] = "stdexcept runtime_error logic_error invalid_argument out_of_range"
    rows[++n] = "exception exception exception_ptr current_exception rethrow_exception"
    rows[++n] = "mutex mutex lock_guard unique_lock scoped_lock once_flag call_once"
    rows[++n] = "thread thread this_thread"
    rows[++n] = "future future promise async future_status"
    rows[++n] = "fstream ifstream ofstream"
    rows[++n] = "sstream stringstream ostringstream istringstream"
    rows[++n] = "iterator istreambuf_iterator back_inserter make_move_iterator"
    rows[++n] = "random mt19937 mt19937_64 uniform_int_distribution normal_distribution"
    rows[++n] = "limits numeric_limits"
    rows[++n] = "bit bit_cast popcount bit_width has_single_bit countr_zero"
    rows[++n] = "tuple tuple tie make_tuple"
    rows[++n] = "variant variant visit monostate get_if holds_alternative"
    rows[++n] = "optional optional nullopt"
    rows[++n] = "type_traits is_same_v is_trivially_copyable_v conditional_t decay_t underlying_type_t"
    split("array atomic chrono condition_variable deque filesystem list map queue regex set span string_view unordered_map unordered_set vector", own)
    for (i in own) rows[++n] = own[i] " " own[i]
    for (r = 1; r <= n; ++r) {
        count = split(rows[r], words, " ")
        for (i = 2; i <= count; ++i) header_of[words[i]] = words[1]
    }
}
# What a file uses, and what it includes. (A .inl or .cuh file is a part of those that include it.)
{
    path = $0
    number = 0
    while ((getline line < path) > 0) {
        ++number
        if (line ~ /^#include </) {
            sub(/^#include </, "", line)
            sub(/>.*/, "", line)
            brings[path, line] = 1
            if (line == "stdexcept") brings[path, "exception"] = 1  # its classes derive from it
        } else if (line ~ /^#include "/) {
            sub(/^#include "/, "", line)
            sub(/".*/, "", line)
            project[path] = project[path] " " line
        } else if (line ~ /std::/ && path !~ /\.(inl|cuh)$/) {
            sub(/\/\/.*/, "", line)
            while (match(line, /std::[a-z_0-9]+/)) {
                name = substr(line, RSTART + 5, RLENGTH - 5)
                line = substr(line, RSTART + RLENGTH)
                if (name in header_of && !((path, header_of[name]) in first)) {
                    first[path, header_of[name]] = number ": std::" name
                    uses[path] = uses[path] " " header_of[name]
                }
            }
        }
    }
    close(path)
    paths[++files] = path
}
function reaches(path, header, visit,    list, count, i) {
    if ((path, header) in brings) return 1
    if (visited[path] == visit) return 0
    visited[path] = visit
    count = split(project[path], list, " ")
    for (i = 1; i <= count; ++i)
        if (reaches(list[i], header, visit)) return 1
    return 0
}
END {
    for (f = 1; f <= files; ++f) {
        count = split(uses[paths[f]], needed, " ")
        for (i = 1; i <= count; ++i) {
            if (reaches(paths[f], needed[i], ++visits)) continue
            print paths[f] ":" first[paths[f], needed[i]] " needs <" needed[i] ">"
            broken = 1
        }
    }
    exit broken
}'
