#!/usr/bin/env bash
# Makes sure that what Tandem builds with is here: asks apt for what is missing, or names the packages when it may not.
# Never removes a package of the user's (Boost's -dev versions would evict each other).
#   scripts/install.sh [--tests]        --tests: also what only the tests need (Python: for scripts that compare with PyTorch)
set -euo pipefail
case "${1:-}" in
"" | --tests) ;;
-h | --help)
    sed -n '2,4s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
*)
    echo "scripts/install.sh: unknown option '$1'; known: --tests" >&2
    exit 2
    ;;
esac

# package:a file that it brings. A file that is there some other way is as good as the package.
needed="g++:/usr/bin/g++ cmake:/usr/bin/cmake ninja-build:/usr/bin/ninja libdnnl-dev:/usr/include/dnnl.hpp
  libboost-dev:/usr/include/boost/beast.hpp nlohmann-json3-dev:/usr/include/nlohmann/json.hpp
  libcli11-dev:/usr/include/CLI/CLI.hpp libspdlog-dev:/usr/include/spdlog/spdlog.h libfmt-dev:/usr/include/fmt/core.h
  libtomlplusplus-dev:/usr/include/toml++/toml.h libxxhash-dev:/usr/include/xxhash.h
  libpcre2-dev:/usr/include/pcre2.h libicu-dev:/usr/include/unicode/unorm2.h
  libgloo-dev:/usr/include/gloo/config.h libsodium-dev:/usr/include/sodium.h"
for_tests="libgtest-dev:/usr/include/gtest/gtest.h libgmock-dev:/usr/include/gmock/gmock.h
  libbenchmark-dev:/usr/include/benchmark/benchmark.h iproute2:/usr/sbin/ip python3:/usr/bin/python3
  lld:/usr/bin/ld.lld spin:/usr/bin/spin libzmq5:/usr/lib/$(uname -m)-linux-gnu/libzmq.so.5"
# The formatter that lint.format speaks for; later releases do not have it, and it says so there.
grep -qs '^VERSION_ID="12"' /etc/os-release && for_tests="$for_tests clang-format-14:/usr/bin/clang-format-14"
[ "${1:-}" = "--tests" ] && needed="$needed $for_tests"

missing=()
for entry in $needed; do
    [ -e "${entry#*:}" ] || missing+=("${entry%%:*}")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    else
        echo "Missing packages, and no right to install them. As root, run:" >&2
        echo "  apt-get install --no-remove ${missing[*]}" >&2
        exit 2
    fi
fi
if ! command -v apt-get >/dev/null; then
    echo "Missing, and this system has no apt-get: ${missing[*]} (Debian's names)" >&2
    exit 2
fi
echo "Installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-remove --no-install-recommends "${missing[@]}" >/dev/null
