// A session with its ranks as threads and the receivers in the same process, for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "common/device/memory.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/receiver/receiver.h"
#include "sync/session/modes.h"
#include "sync/session/session.h"
#include "tests/support/soon.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"
#include "tests/unit/sync/session/test_source.h"

namespace tandem::sync {

using test::soon;

using engine::TensorInfo;
using engine::TestTarget;

// Small buckets, so that a few tensors take many.
inline SessionOptions options_for(Mode mode, std::size_t bucket_bytes = 16384) {
    SessionOptions options;
    options.mode = mode;
    options.bucket_bytes = bucket_bytes;
    options.depth = 2;
    return options;
}

// Uneven rows, a scalar-like norm, rows shorter and longer than a lane, a tensor larger than a bucket.
inline std::vector<TensorInfo> test_tensors(DType dtype) {
    return {{"embed", {211, 48}, dtype, {}}, {"norm", {7}, dtype, {}},       {"q", {64, 48}, dtype, {}},
            {"one", {1}, dtype, {}},         {"wide", {3, 5000}, dtype, {}}, {"gate", {97, 31}, dtype, {}},
            {"tail", {5, 2, 3}, dtype, {}}};
}

struct Layout {
    std::vector<int> mesh;
    Placements placements;
    Device device = {};  // of the trainer's shards
};

inline DeviceMesh make_mesh(const std::shared_ptr<comm::Communicator>& world, const std::vector<int>& sizes) {
    return DeviceMesh::create(
        world, sizes,
        sizes.size() == 1 ? std::vector<std::string>{"dp"} : std::vector<std::string>{"dp", "cp"});
}

using Body = std::function<void(comm::Communicator&, Session&, TestSource&)>;
using Wrap = std::function<std::unique_ptr<engine::Engine>(std::unique_ptr<engine::Engine>)>;

using Receivers = std::vector<std::unique_ptr<engine::Receiver>>;
inline Receivers make_receivers(const std::vector<TestTarget*>& targets) {
    Receivers receivers;
    for (TestTarget* target : targets)
        receivers.push_back(
            std::make_unique<engine::Receiver>(*target, engine::ReceiverOptions{.copy_threads = 2}));
    return receivers;
}

// Runs body(rank's session, source) on a thread for each rank, against the receivers of one engine's ranks.
// `tensors`: the trainer's. `wrap`: puts something between session and engine.
inline void with_receivers(const Layout& layout, const Receivers& receivers,
                           const std::vector<TensorInfo>& tensors, DType source_dtype,
                           const SessionOptions& options, const Body& body, const Wrap& wrap = {}) {
    int world_size = 1;
    for (const int size : layout.mesh) world_size *= size;
    comm::run_threads(world_size, [&](std::shared_ptr<comm::Communicator> world) {
        const DeviceMesh mesh = make_mesh(world, layout.mesh);
        std::vector<Placements> placements;  // tensors of one dim cannot be cut along the second
        for (const TensorInfo& tensor : tensors) {
            placements.push_back(layout.placements);
            for (Placement& placement : placements.back()) {
                if (placement.is_shard() && placement.dim >= static_cast<int>(tensor.shape.size()))
                    placement = Replicate();
            }
        }
        TestSource source(tensors, mesh, placements, source_dtype, element_value, layout.device);
        Engines engines;
        for (const auto& receiver : receivers) {
            if (world->rank() != 0) continue;
            engines.push_back(engine::connect(receiver->address(), soon()));
            if (wrap) engines.back() = wrap(std::move(engines.back()));
        }
        Session session(world, source, std::move(engines), options);
        body(*world, session, source);
    });
}

inline void with_engines(const Layout& layout, const std::vector<TestTarget*>& targets,
                         const std::vector<TensorInfo>& tensors, DType source_dtype,
                         const SessionOptions& options, const Body& body, const Wrap& wrap = {}) {
    with_receivers(layout, make_receivers(targets), tensors, source_dtype, options, body, wrap);
}

// One engine rank that holds whole tensors.
inline void with_session(const Layout& layout, TestTarget& target, DType source_dtype,
                         const SessionOptions& options, const Body& body, const Wrap& wrap = {}) {
    std::vector<TensorInfo> tensors;
    for (const auto& weight : target.weights()) tensors.push_back(weight.info);
    with_engines(layout, {&target}, tensors, source_dtype, options, body, wrap);
}

// Puts the trainer's tensors where mode alias lets it write the next version.
inline void move_to_writable(Session& session, TestSource& source) {
    for (std::size_t t = 0; t < source.tensors().size(); ++t) {
        const Tensor place = session.writable(t);
        if (place.defined()) source.move_to(t, place);
    }
}

// Mode direct is refused on every rank, with these words, where rank 1's shard of "w" lies in its own memory.
inline void expect_private_shard_refused(Device device, const testing::Matcher<std::string>& words) {
    const std::vector<TensorInfo> tensors{{"w", {64, 8}, DType::float32, {}}};
    TestTarget target(tensors, true, device);
    const Receivers receivers = make_receivers({&target});
    comm::run_threads(2, [&](const std::shared_ptr<comm::Communicator>& world) {
        const Stream stream = Stream::make_compute(device);
        TestSource source(tensors, make_mesh(world, {2}), {{Shard(0)}}, DType::float32, element_value,
                          device);
        if (world->rank() == 1)
            source.move_to(0, Tensor::empty({32, 8}, DType::float32, "elsewhere", device_pool(device)));
        Engines engines;
        if (world->rank() == 0) engines.push_back(engine::connect(receivers[0]->address(), soon()));
        try {
            const Session session(world, source, std::move(engines), options_for(Mode::direct));
            ADD_FAILURE() << "private memory was taken";
        } catch (const SyncError& error) {
            EXPECT_THAT(std::string(error.what()), words);
        }
    });
}

// Of this process, so far.
inline std::uint64_t allocations() {
    std::uint64_t sum = 0;
    for (const auto& [tag, stats] : all_memory_stats()) sum += stats.allocations;
    return sum;
}

inline std::string phase_of_failure(Session& session, std::int64_t version) {
    try {
        session.push(version);
    } catch (const SyncError& error) {
        return error.phase();
    }
    return "none";
}

inline void expect_weights(const TestTarget& target, DType source_dtype, int step) {
    for (std::size_t t = 0; t < target.weights().size(); ++t) {
        const auto& weight = target.weights()[t];
        const std::vector<std::byte> memory = target.read(t);
        const std::size_t width = dtype_size(weight.info.dtype);
        for (std::size_t i = 0; i < memory.size() / width; ++i) {
            float value = element_value(t, i, step);
            if (source_dtype == DType::bfloat16) value = static_cast<float>(bfloat16(value));
            if (source_dtype == DType::float16) value = static_cast<float>(static_cast<_Float16>(value));
            std::array<std::byte, 4> expected{};
            put_value(expected.data(), weight.info.dtype, value);
            ASSERT_EQ(std::memcmp(expected.data(), memory.data() + i * width, width), 0)
                << weight.info.name << " element " << i << " at step " << step;
        }
    }
}

}  // namespace tandem::sync
