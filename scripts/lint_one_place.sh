#!/usr/bin/env bash
# lint.one_place: what the product does in one place alone, because it is easy to get wrong elsewhere. A row a rule:
# what may not stand in a source (grep -P; ¦ for its |) | the files that may hold it | what to use
set -euo pipefail
cd "$(dirname "$0")/.."

broken=0
while IFS='|' read -r pattern allowed instead; do
    [ -n "$pattern" ] || continue
    pattern=${pattern//¦/|} allowed=${allowed//¦/|}
    found=$(grep -rnP "$pattern" common engine_adapter sync trainer --include='*.h' --include='*.cpp' --include='*.inl' |
        grep -vP '^[^:]*:\d+:\s*//' | grep -vE "^($allowed):" || true)
    [ -z "$found" ] && continue
    echo "$found" >&2
    echo "  -> $instead" >&2
    broken=1
done <<'RULES'
std::j?thread\b(?!::)¦std::async\(¦pthread_create|common/thread\.(h¦cpp)|common/thread.h: Thread, start_call
json::(parse¦accept)\(|common/json_text\.cpp¦trainer/data/json_lines\.cpp|common/json_text.h, which limits depth and values
error_handler_t|common/json_text\.cpp|common/json_text.h: text_of_json
std::ifstream(?!.*"/(proc¦sys)/)|common/(config_read¦store/file_store)\.cpp¦common/user_file\.(h¦cpp)¦sync/main/push_setup\.cpp|common/text_file.h: read_text_file; what a user names may be a pipe: common/user_file.h
(?<!\w)::connect\(¦asio::connect\(¦async_connect|common/(dial¦http/(client¦unix_socket)¦comm/gloo/address)\.cpp¦engine_adapter/channel/channel\.cpp|common/dial.h; the others connect Unix sockets, or a datagram socket to learn a route
getaddrinfo\(¦gethostbyname¦\btcp::resolver\b|common/resolve\.cpp|common/resolve.h, which has a deadline
RULES
exit $broken
