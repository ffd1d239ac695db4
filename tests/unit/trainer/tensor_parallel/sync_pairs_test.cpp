// Sixty drawn pairs of a trainer's mesh and an engine's layout: what lands is, byte by byte, what the boxes of the engine's
// tensors say of the policy's full weights.
#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "common/comm/launch.h"
#include "common/sharding/tensor_cut.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/receiver/receiver.h"
#include "sync/plan/engine_layout.h"
#include "sync/session/modes.h"
#include "sync/session/session.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"
#include "tests/unit/trainer/tensor_parallel/tensor_run.h"

namespace tandem::trainer::testing {
namespace {

using engine::TestTarget;

constexpr int kPairs = 60;
constexpr int kMostRanks = 8;

class OfPolicy final : public sync::WeightSource {
  public:
    explicit OfPolicy(const Policy& policy) {
        for (const auto& [name, tensor] : policy.parameters()) tensors_.push_back({name, tensor});
    }
    const std::vector<sync::NamedTensor>& tensors() const override { return tensors_; }
    Event ready() const override { return {}; }

  private:
    std::vector<sync::NamedTensor> tensors_;
};

struct Pair {
    model::ModelConfig config;
    MeshSizes mesh;
    int engine_tp = 1;
    bool fused = true;
    DType dtype = DType::float32;
    sync::Mode mode = sync::Mode::gather;

    std::string text() const {
        return describe(mesh) + " -> tp " + std::to_string(engine_tp) + (fused ? " fused " : " ") +
               std::string(dtype_name(dtype)) + " by " + std::string(sync::mode_name(mode));
    }
};

Pair drawn(std::mt19937& random) {
    const auto one_of = [&](const auto& list) { return list[random() % std::size(list)]; };
    Pair pair;
    pair.config = one_of(std::vector{llama_with_biases(), qwen2_tied(), qwen3_of_few_kv_heads()});
    pair.config.intermediate_size = 12;
    do {
        pair.mesh = one_of(meshes_of(1 + static_cast<int>(random() % kMostRanks)));
    } while (tensor_degrees(pair.config, pair.mesh.tp).back() != pair.mesh.tp);
    pair.engine_tp = one_of(std::vector{1, 2, 4});
    pair.fused = random() % 2 == 0;
    pair.dtype = one_of(std::vector{DType::float32, DType::bfloat16});
    pair.mode =
        one_of(std::vector{sync::Mode::gather, sync::Mode::direct, sync::Mode::alias, sync::Mode::delta});
    if (pair.mesh.ranks() == 1 && pair.mode == sync::Mode::direct)
        pair.mode = sync::Mode::gather;  // one rank alone has no memory that others map
    return pair;
}

// Every element of the part's box, by its place in the engine's tensor.
void expect_part(const engine::Part& part, const Shape& whole, const std::vector<float>& full,
                 const engine::TensorInfo& info, const std::vector<std::byte>& memory) {
    Shape at(part.size.size(), 0);
    for (std::int64_t i = 0; i < numel(part.size); ++i) {
        std::int64_t from = 0, to = part.offset;
        for (std::size_t dim = 0; dim < at.size(); ++dim) {
            from = from * whole[dim] + part.start[dim] + at[dim];
            to += at[dim] * part.stride[dim];
        }
        const float value = full[static_cast<std::size_t>(from)];
        const std::byte* const found = memory.data() + static_cast<std::size_t>(to) * dtype_size(info.dtype);
        if (info.dtype == DType::float32) {
            ASSERT_EQ(*reinterpret_cast<const float*>(found), value) << info.name << " of " << part.name;
        } else {
            const bfloat16 rounded(value);
            ASSERT_EQ(std::memcmp(found, &rounded, sizeof(rounded)), 0) << info.name << " of " << part.name;
        }
        for (std::size_t dim = at.size(); dim-- > 0;) {
            if (++at[dim] < part.size[dim]) break;
            at[dim] = 0;
        }
    }
}

void expect_weights(const TestTarget& target, const model::ModelConfig& config, const Values& full) {
    std::map<std::string, Shape> shapes;
    for (const auto& spec : model::parameter_specs(config)) shapes[spec.name] = spec.shape;
    for (std::size_t t = 0; t < target.weights().size(); ++t) {
        const engine::TensorInfo& info = target.weights()[t].info;
        const std::vector<std::byte> memory = target.read(t);
        std::vector<engine::Part> parts = info.parts;
        if (parts.empty()) {
            engine::Part& all = parts.emplace_back();
            all = {info.name, Shape(info.shape.size(), 0), info.shape, 0, Shape(info.shape.size(), 1)};
            for (std::size_t dim = info.shape.size() - 1; dim-- > 0;)
                all.stride[dim] = all.stride[dim + 1] * info.shape[dim + 1];
        }
        for (const engine::Part& part : parts)
            expect_part(part, shapes.at(part.name), full.at(part.name), info, memory);
    }
}

void expect_pair(const Pair& pair) {
    std::vector<std::unique_ptr<TestTarget>> targets;
    std::vector<std::unique_ptr<engine::Receiver>> receivers;
    for (const auto& tensors : sync::engine_layout(model::parameter_specs(pair.config),
                                                   {pair.engine_tp, 1, pair.fused}, pair.dtype)) {
        targets.push_back(std::make_unique<TestTarget>(tensors));
        receivers.push_back(std::make_unique<engine::Receiver>(*targets.back(), engine::ReceiverOptions{}));
    }
    comm::run_threads(pair.mesh.ranks(), [&](const std::shared_ptr<comm::Communicator>& world) {
        Policy policy(make_mesh(world, pair.mesh), pair.config, {});
        const OfPolicy source(policy);
        sync::Engines engines;
        for (const auto& receiver : receivers) {
            if (world->rank() == 0)
                engines.push_back(engine::connect(receiver->address(), Deadline::after_ms(10'000)));
        }
        sync::SessionOptions options;
        options.mode = pair.mode;
        options.bucket_bytes = 4096;
        options.depth = 2;
        sync::Session session(world, source, std::move(engines), options);
        for (int version = 1; version <= 2; ++version) {
            randomise(policy, static_cast<unsigned>(version));
            session.push(version);
            const Values full = full_values(policy.parameters());
            if (world->rank() == 0) {
                for (const auto& target : targets) expect_weights(*target, pair.config, full);
            }
            EXPECT_TRUE(session.weights_match().match);
        }
    });
}

TEST(SyncPairs, DrawnOnesByteByByte) {
    std::mt19937 random(3);
    for (int i = 0; i < kPairs; ++i) {
        const Pair pair = drawn(random);
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, pair.text());
        expect_pair(pair);
        if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace tandem::trainer::testing
