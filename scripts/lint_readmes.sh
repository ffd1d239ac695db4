#!/usr/bin/env bash
# lint.readmes: what a README.md (or ENVIRONMENT, PROMISES, SERVERS) names in backticks exists, and the root's stays within
# 150 lines of 120 columns. Files by their path, from the README's folder, from the root or
# from some folder between (a.{h,cpp} and a path without its ending count); tests by their folder and their line in
# CMakeLists.txt; identifiers, keys and flags as words of some file that is not a README. Placeholders (NAME, …, *) and
# code in blocks are not looked at.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

find . \( -name build -o -path ./runs -o -name '.?*' -o -path './tests/*/data' -o -path '*/bench/results' \) -prune -o -type f -print | sed 's#^\./##' >"$work/files"
find . \( -name build -o -path ./runs -o -name '.?*' \) -prune -o -type d -print | sed 's#^\./##' >"$work/folders"
grep -v '\.md$' "$work/files" | tr '\n' '\0' | xargs -0 grep -IohE '[A-Za-z_][A-Za-z0-9_]*' | LC_ALL=C sort -u >"$work/words"
grep -E '(^|/)(README|ENVIRONMENT|PROMISES|SERVERS)\.md$' "$work/files" | xargs awk '
FILENAME != readme { readme = FILENAME; code = 0 }
/^```/ { code = !code; next }
code { next }
{
    count = split($0, part, "`")
    for (i = 2; i <= count; i += 2) if (part[i] != "" && i < count) print FILENAME "\t" FNR "\t" part[i]
}' >"$work/spans"

[ "$(wc -l <README.md)" -le 150 ] || { echo "README.md has more than 150 lines" >&2; exit 1; }
columns=$(LC_ALL=C.UTF-8 wc -L <README.md)
[ "$columns" -le 120 ] || { echo "README.md has a line of $columns columns, more than 120" >&2; exit 1; }
LC_ALL=C awk -F'\t' -v files="$work/files" -v folders="$work/folders" -v words="$work/words" '
BEGIN {
    while ((getline line < files) > 0) add(line)
    while ((getline line < folders) > 0) {
        add(line)
        sub(/.*\//, "", line)
        folder_name[line] = 1
    }
    while ((getline line < words) > 0) word[line] = 1
    source = "\\.(h|cpp|cu|cuh|inl|sh|py|md|txt|toml|cmake|css)$"
}
# A path may be named from any folder above it, with or without its ending.
function add(path,    short) {
    while (1) {
        exists[path] = 1
        short = path
        if (sub(/\.[a-z]+$/, "", short)) exists[short] = 1
        if (!sub(/^[^\/]*\//, "", path)) break
    }
}
function complain(what) {
    print $1 ":" $2 ": `" $3 "`: there is no " what
    broken = 1
}
function check_path(path,    before, after, list, n, i) {
    if (path ~ /\*|…|[A-Z][A-Z]+|\$|^\// && path !~ /README|CMake/) return  # a pattern, or a place on a machine
    if (match(path, /\{[^}]*\}/)) {
        before = substr(path, 1, RSTART - 1)
        after = substr(path, RSTART + RLENGTH)
        n = split(substr(path, RSTART + 1, RLENGTH - 2), list, /, */)
        for (i = 1; i <= n; ++i) check_path(before list[i] after)
        return
    }
    sub(/^(\.\.?\/)+/, "", path)
    sub(/\/$/, "", path)
    sub(/:[0-9]+$/, "", path)
    before = path
    sub(/\/.*/, "", before)
    if (path ~ /\// && !(before in folder_name)) return  # not a folder of ours: build/, runs/
    if (!(path in exists)) complain(path)
}
# unit.sync.cost: the folder tests/unit/sync, and there a line that begins with cost; or the folder itself.
function check_test(name,    folder, leaf, list, line, found) {
    folder = "tests/" name
    gsub(/\./, "/", folder)
    if (folder in exists) return
    leaf = folder
    sub(/.*\//, "", leaf)
    sub(/\/[^\/]*$/, "", folder)
    list = folder "/CMakeLists.txt"
    while ((getline line < list) > 0)
        if (line ~ "[(.]" leaf "( |$)" || line ~ "[ ]" leaf "\\)") found = 1
    close(list)
    if (!found) complain("test " name)
}
function check_words(text,    n, list, i) {
    gsub(/[^A-Za-z0-9_]+/, " ", text)
    n = split(text, list, " ")
    for (i = 1; i <= n; ++i)
        if (list[i] ~ /^[A-Za-z_]/ && length(list[i]) > 1 && list[i] !~ /_$/ && !(list[i] in word)) complain(list[i])
}
{
    span = $3
    if (span ~ /^(unit|contract|multiproc|gpu)(\.[a-z0-9_]+)+$/ && span !~ source) { check_test(span); next }
    if (span ~ /^lint\./) next
    if (span !~ /[ =<>|]/) {
        if (span ~ source) { check_path(span); next }
        if (span ~ /^[A-Za-z0-9_.{},-]+(\/[A-Za-z0-9_.{},-]*)+$/ && span !~ /\.(json|jsonl|html|safetensors|log)$/) { check_path(span); next }
        sub(/\.(png|log)$/, "", span)
        if (span ~ /^_/) next  # the end of a name before it
        if (span ~ /^[A-Za-z_~][A-Za-z0-9_:.~]*(\([a-z_, ]*\))?$/) { check_words(span); next }
        next
    }
    n = split(span, token, " ")  # a command or an expression: the files in it
    for (i = 1; i <= n; ++i) if (token[i] ~ source && token[i] ~ /\//) check_path(token[i])
}
END { exit broken }' "$work/spans"
