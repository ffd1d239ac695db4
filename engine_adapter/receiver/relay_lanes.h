// The engine's side of a relay (engine_adapter/relay.h): a thread on each core that the trainer's ranks write on takes what
// they have written there.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine_adapter/receiver/weight_writer.h"
#include "engine_adapter/relay.h"

namespace tandem::engine {

struct RelayOrder {
    const RelayWords& words;
    std::size_t engine = 0;
    std::uint64_t from = 0;
    std::function<void()> check;  // called every few milliseconds; throws to end the relay
};

std::vector<int> distinct_cores(std::span<const std::int64_t> cores);

// Calls take(bucket, rank), on cores[rank], for each of so many buckets as soon as the rank has written its part of it, and says
// that it was taken when the call returns. WeightWriter::can_relay of these cores. Throws what take or check throws, having
// stopped the words, and ProtocolError when somebody else has.
void take_relayed(const RelayOrder& order, std::span<const std::int64_t> cores, std::uint64_t buckets,
                  WeightWriter& writer, const std::function<void(std::size_t, std::size_t)>& take);

}  // namespace tandem::engine
