// Ranks as threads that reach each other by an all-gather, as a caller of the C ABI would have them.
#pragma once

#include <barrier>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "sync/capi/tandem_sync.h"

namespace tandem::test {

class Gathering {
  public:
    explicit Gathering(int size) : arrived_(size) {}

    void all_gather(int rank, const void* mine, std::size_t bytes, void* all, int size) {
        arrived_.arrive_and_wait();  // nobody reads the last one any more
        if (rank == 0) memory_.resize(bytes * static_cast<std::size_t>(size));
        arrived_.arrive_and_wait();
        std::memcpy(memory_.data() + bytes * static_cast<std::size_t>(rank), mine, bytes);
        arrived_.arrive_and_wait();
        std::memcpy(all, memory_.data(), memory_.size());
    }

  private:
    std::barrier<> arrived_;
    std::vector<std::byte> memory_;
};

// Calls body on `size` threads, each with its group.
inline void as_ranks(int size, const std::function<void(const td_group&)>& body) {
    struct Rank {
        Gathering* gathering;
        int rank, size;
    };
    Gathering gathering(size);
    std::vector<Rank> ranks;
    for (int rank = 0; rank < size; ++rank) ranks.push_back({&gathering, rank, size});
    std::vector<std::jthread> threads;
    for (Rank& rank : ranks) {
        threads.emplace_back([&body, &rank] {
            td_group group{};
            group.size = sizeof group;
            group.rank = rank.rank;
            group.world_size = rank.size;
            group.context = &rank;
            group.all_gather = [](void* context, const void* mine, std::size_t bytes, void* all) {
                const Rank& self = *static_cast<Rank*>(context);
                self.gathering->all_gather(self.rank, mine, bytes, all, self.size);
                return 0;
            };
            body(group);
        });
    }
}

}  // namespace tandem::test
