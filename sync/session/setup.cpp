#include "sync/session/setup.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "common/error.h"
#include "sync/gather/cache.h"
#include "sync/plan/holdings.h"

namespace tandem::sync {
namespace {

constexpr std::size_t kPage = 4096;

// Staging that stays in the last-level cache makes the engine's read and the next fill cheap, so all slots
// together get three eighths of it. Smaller buckets than a mebibyte cost more in handing over than they save.
constexpr int kDefaultDepth = 3;
std::size_t default_bucket_bytes() {
    return std::clamp(last_level_cache_bytes() / 8, std::size_t{1} << 20, std::size_t{64} << 20);
}

// Pieces are what the engine's threads share a bucket by: several for each, and not so small that each costs.
std::size_t piece_bytes(std::size_t bucket_bytes) {
    return std::clamp(bucket_bytes / 8, std::size_t{64} << 10, std::size_t{1} << 20);
}

std::string to_text(const std::vector<engine::TensorInfo>& tensors) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& t : tensors) list.push_back({t.name, t.shape, static_cast<int>(t.dtype)});
    return list.dump();
}

std::vector<engine::TensorInfo> from_text(const std::string& text) {
    std::vector<engine::TensorInfo> tensors;
    for (const auto& t : nlohmann::json::parse(text)) {
        tensors.push_back({t[0].get<std::string>(), t[1].get<Shape>(), static_cast<DType>(t[2].get<int>())});
    }
    return tensors;
}

// Engine and trainer hold the same tensors; returns, for each of the engine's, its index in the source.
std::vector<std::size_t> match_tensors(const std::vector<engine::TensorInfo>& wanted,
                                       const std::vector<NamedTensor>& offered) {
    std::unordered_map<std::string, std::size_t> index;
    for (std::size_t i = 0; i < offered.size(); ++i) index[offered[i].name] = i;
    std::vector<std::size_t> order;
    for (const auto& tensor : wanted) {
        const auto found = index.find(tensor.name);
        require(found != index.end(), "the engine holds tensor '{}', the trainer does not", tensor.name);
        const Shape& shape = offered[found->second].tensor.shape();
        require(shape == tensor.shape, "tensor '{}' is {} in the trainer and {} in the engine", tensor.name,
                to_string(shape), to_string(tensor.shape));
        order.push_back(found->second);
        index.erase(found);
    }
    require(index.empty(), "the trainer holds tensor '{}', the engine does not",
            index.empty() ? "" : index.begin()->first);
    return order;
}

}  // namespace

SessionOptions choose(SessionOptions options) {
    if (options.bucket_bytes == 0) options.bucket_bytes = default_bucket_bytes();
    if (options.depth == 0) options.depth = kDefaultDepth;
    return options;
}

Setup make_setup(comm::Communicator& world, const WeightSource& source, const engine::Engine* engine,
                 const SessionOptions& options) {
    Health health;
    if (world.rank() == 0 && engine == nullptr) health.fail("connect", "", -1, "rank 0 was given no engine");
    agree(world, health, "sync set-up");

    const auto tensors =
        from_text(broadcast_text(world, engine != nullptr ? to_text(engine->capabilities().tensors) : ""));
    Setup setup;
    std::vector<PlanTensor> wanted;
    std::vector<std::vector<Holding>> mine;
    try {
        require(options.depth >= 2,
                "a depth of {}: one bucket is filled while another is loaded, so at least 2", options.depth);
        setup.order = match_tensors(tensors, source.tensors());
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            const DTensor& tensor = source.tensors()[setup.order[t]].tensor;
            wanted.push_back({tensors[t], tensor.dtype(), {}});
            mine.push_back(holdings(tensor, world.rank()));
        }
    } catch (const std::exception& error) {
        health.fail("plan", "", -1, error.what());
    }
    agree(world, health, "sync set-up");

    auto everybody = exchange_holdings(world, mine);
    try {
        for (std::size_t t = 0; t < wanted.size(); ++t) wanted[t].holdings = std::move(everybody[t]);
        PlanOptions plan_options;
        plan_options.bucket_bytes = options.bucket_bytes;
        plan_options.max_piece_bytes = piece_bytes(options.bucket_bytes);
        plan_options.world_size = world.size();
        setup.plan = make_plan(std::move(wanted), plan_options);
    } catch (const std::exception& error) {
        health.fail("plan", "", -1, error.what());
    }
    agree(world, health, "sync set-up");
    return setup;
}

Staging make_staging(comm::Communicator& world, const Plan& plan, engine::Engine* engine,
                     const SessionOptions& options) {
    // Never above the bucket size that was asked for; whole pages where that leaves room.
    const std::size_t whole_pages = (std::max<std::size_t>(plan.bucket_bytes, 1) + kPage - 1) / kPage * kPage;
    const std::size_t slot_bytes = std::min(whole_pages, options.bucket_bytes);
    Health health;
    std::optional<Staging> staging;
    std::string address;
    try {
        if (engine != nullptr) {
            staging = Staging::create(options.depth, slot_bytes);
            address = staging->address();
        }
    } catch (const std::exception& error) {
        health.fail("staging", "", -1, error.what());
    }
    address = broadcast_text(world, address);
    agree(world, health, "sync set-up");
    try {
        if (engine != nullptr) {
            engine->attach(staging->area(), Deadline::after(options.deadlines.begin));
        } else {
            staging = Staging::open(address, options.depth, slot_bytes);
        }
    } catch (const std::exception& error) {
        health.fail("attach", engine != nullptr ? engine->peer() : "rank 0", -1, error.what());
    }
    agree(world, health, "sync set-up");
    return std::move(*staging);
}

}  // namespace tandem::sync
