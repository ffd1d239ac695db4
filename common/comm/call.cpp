#include "common/comm/call.h"

#include <fmt/core.h>

#include <iterator>

namespace tandem::comm {

const char* kind_name(Kind kind) {
    switch (kind) {
        case Kind::barrier:
            return "barrier";
        case Kind::all_gather:
            return "all_gather";
        case Kind::reduce_scatter:
            return "reduce_scatter";
        case Kind::all_reduce:
            return "all_reduce";
        case Kind::broadcast:
            return "broadcast";
        case Kind::all_to_all:
            return "all_to_all";
    }
    return "?";
}

std::string describe(const Call& call, std::uint64_t bytes) {
    constexpr const char* kOps[] = {"sum", "avg", "max", "min"};
    const auto op = static_cast<std::size_t>(call.op);
    std::string text = kind_name(call.kind);
    if (call.kind == Kind::reduce_scatter || call.kind == Kind::all_reduce) {
        text += fmt::format(" {} of {}", op < std::size(kOps) ? kOps[op] : "?", dtype_name(call.dtype));
    }
    if (call.kind == Kind::broadcast) text += fmt::format(" from member {}", call.root);
    if (call.kind != Kind::barrier) text += fmt::format(", {} items, {} bytes", call.items, bytes);
    return text;
}

}  // namespace tandem::comm
