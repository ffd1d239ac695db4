#include "sync/strategy/collectives.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tandem::sync {
namespace {

// The outcome on one rank, of the same size on all, as an all-gather needs it.
struct Outcome {
    std::int64_t failed = 0;
    std::int64_t bucket = -1;
    std::array<char, 48> phase{};
    std::array<char, 192> peer{};
    std::array<char, 1024> message{};
};

template <std::size_t N>
void put(std::array<char, N>& to, const std::string& text) {
    const std::size_t length = std::min(N - 1, text.size());
    std::copy_n(text.begin(), length, to.begin());
    to[length] = '\0';
}

template <typename T>
Span bytes_of(T& value) {
    return {reinterpret_cast<std::byte*>(&value), sizeof(T)};
}
template <typename T>
Span bytes_of(std::vector<T>& values) {
    return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

std::string broadcast_text(comm::Communicator& world, const std::string& text_of_rank_0) {
    std::int64_t length = static_cast<std::int64_t>(text_of_rank_0.size());
    world.broadcast(bytes_of(length), 0);
    std::vector<char> text(static_cast<std::size_t>(length));
    if (world.rank() == 0) std::copy(text_of_rank_0.begin(), text_of_rank_0.end(), text.begin());
    if (length > 0) world.broadcast(bytes_of(text), 0);
    return {text.begin(), text.end()};
}

std::vector<std::string> gather_texts(comm::Communicator& world, const std::string& mine) {
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(world.size()));
    std::int64_t length = static_cast<std::int64_t>(mine.size());
    world.all_gather(bytes_of(length), bytes_of(lengths));
    const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
    std::vector<std::string> texts(lengths.size());
    if (longest == 0) return texts;
    std::vector<char> padded(longest);
    std::copy(mine.begin(), mine.end(), padded.begin());
    std::vector<char> all(longest * lengths.size());
    world.all_gather(bytes_of(padded), bytes_of(all));
    for (std::size_t rank = 0; rank < texts.size(); ++rank)
        texts[rank].assign(all.data() + rank * longest, static_cast<std::size_t>(lengths[rank]));
    return texts;
}

void throw_on_any_failure(comm::Communicator& world, const PushStatus& mine, const std::string& what) {
    Outcome own;
    own.failed = mine.failed_here ? 1 : 0;
    own.bucket = mine.bucket;
    put(own.phase, mine.phase);
    put(own.peer, mine.peer);
    put(own.message, mine.message);
    std::vector<Outcome> all(static_cast<std::size_t>(world.size()));
    world.all_gather(bytes_of(own), bytes_of(all));
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const Outcome& one = all[rank];
        if (one.failed == 0) continue;
        const std::string at = one.bucket >= 0 ? fmt::format(", bucket {}", one.bucket) : "";
        const bool told = std::strstr(one.message.data(), one.peer.data()) != nullptr;
        const std::string with = told ? "" : fmt::format(" with {}", one.peer.data());
        throw SyncError(fmt::format("{} failed on rank {} in phase {}{}{}: {}", what, rank, one.phase.data(),
                                    at, with, one.message.data()),
                        static_cast<int>(rank), one.phase.data(), static_cast<int>(one.bucket),
                        one.peer.data());
    }
}

}  // namespace tandem::sync
