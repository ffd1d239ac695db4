#include "sync/bench/trace.h"

#include <cstdint>
#include <vector>

#include "common/trace.h"
#include "common/trace_file.h"

namespace tandem::sync {
namespace {

Span bytes_of(std::string& text) {
    return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

}  // namespace

void write_trace(comm::Communicator& world, const std::string& file) {
    std::string mine = trace::take_json();
    std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world.size()));
    const std::uint64_t size = mine.size();
    world.all_gather({reinterpret_cast<const std::byte*>(&size), sizeof(size)},
                     {reinterpret_cast<std::byte*>(sizes.data()), sizes.size() * sizeof(size)});

    std::vector<std::string> parts(sizes.size());
    std::vector<comm::P2POp> transfers;
    if (world.rank() == 0) {
        for (std::size_t rank = 1; rank < parts.size(); ++rank) {
            parts[rank].resize(sizes[rank]);
            transfers.push_back({comm::P2POp::Kind::recv, static_cast<int>(rank), bytes_of(parts[rank])});
        }
    } else {
        transfers.push_back({comm::P2POp::Kind::send, 0, bytes_of(mine)});
    }
    Stream here = Stream::make_inline();
    world.p2p(transfers, here);
    here.synchronize();
    if (world.rank() != 0) return;
    parts[0] = std::move(mine);
    trace::write_file(file, parts);
}

}  // namespace tandem::sync
