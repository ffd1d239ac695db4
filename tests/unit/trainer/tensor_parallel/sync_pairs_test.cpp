// Sixty drawn pairs of a trainer's mesh and an engine's layout, two of three with stages: what lands is, byte by byte, what the
// boxes of the engine's tensors say of the policy's full weights.
#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <random>

#include "common/comm/launch.h"
#include "common/sharding/tensor_cut.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/receiver/receiver.h"
#include "sync/plan/engine_layout.h"
#include "sync/session/modes.h"
#include "sync/session/session.h"
#include "tests/support/soon.h"
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
        for (const auto& [name, tensor] : policy.parameters()) {
            if (tensor.is_here()) tensors_.push_back({name, tensor});
        }
    }
    const std::vector<sync::NamedTensor>& tensors() const override { return tensors_; }
    Event ready() const override { return {}; }

  private:
    std::vector<sync::NamedTensor> tensors_;
};

struct Pair {
    model::ModelConfig config;
    MeshSizes mesh;
    pipeline::Options pipeline;
    int engine_tp = 1;
    bool fused = true;
    DType dtype = DType::float32;
    sync::Mode mode = sync::Mode::gather;

    std::string text() const {
        const std::string stages =
            pipeline.schedule + " of " + std::to_string(pipeline.stages_per_rank) + " stages a rank, ";
        return (mesh.pp > 1 ? stages : std::string()) + describe(mesh) +
               (config.tie_word_embeddings ? " tied" : "") + " -> tp " + std::to_string(engine_tp) +
               (fused ? " fused " : " ") + std::string(dtype_name(dtype)) + " by " +
               std::string(sync::mode_name(mode));
    }
};

// Layers in stages, one or two a rank.
void draw_stages(std::mt19937& random, Pair& pair) {
    const auto one_of = [&](const auto& list) { return list[random() % std::size(list)]; };
    pair.config.num_hidden_layers = 7;
    pair.mesh.pp = one_of(std::vector{2, 2, 3, 4, 8});
    const std::vector<const char*> two_a_rank{"Interleaved1F1B", "ZBVZeroBubble"};
    const std::vector<const char*> one_a_rank{"1F1B", "GPipe"};
    const bool two = pair.mesh.pp <= 4 && random() % 2 == 0;
    pair.pipeline.schedule = one_of(two ? two_a_rank : one_a_rank);
    pair.pipeline.stages_per_rank = two ? 2 : 1;
}

Pair drawn(std::mt19937& random, int number) {
    const bool staged = number % 3 != 0;
    const auto one_of = [&](const auto& list) { return list[random() % std::size(list)]; };
    Pair pair;
    pair.config = one_of(std::vector{llama_with_biases(), qwen2_tied(), qwen3_of_few_kv_heads()});
    pair.config.intermediate_size = 12;
    if (staged) draw_stages(random, pair);
    const int stages = std::max(pair.mesh.pp, 1);
    const auto most_ranks = static_cast<unsigned>(kMostRanks / stages);
    do {
        pair.mesh = one_of(meshes_of(1 + static_cast<int>(random() % most_ranks)));
    } while (tensor_degrees(pair.config, pair.mesh.tp).back() != pair.mesh.tp);
    pair.mesh.pp = staged ? stages : 0;
    pair.engine_tp = one_of(std::vector{1, 2, 4});
    pair.fused = random() % 2 == 0;
    pair.dtype = one_of(std::vector{DType::float32, DType::bfloat16});
    pair.mode = std::array{sync::Mode::gather, sync::Mode::direct, sync::Mode::alias,
                           sync::Mode::delta}[static_cast<std::size_t>(number) % 4];
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
    std::mutex mutex;
    Values full[2];  // [version - 1]: of all stages
    comm::run_threads(pair.mesh.ranks(), [&](const std::shared_ptr<comm::Communicator>& world) {
        PolicyOptions policy_options;
        policy_options.pipeline = pair.pipeline;
        Policy policy(make_mesh(world, pair.mesh), pair.config, policy_options);
        const OfPolicy source(policy);
        sync::Engines engines;
        for (const auto& receiver : receivers) {
            if (world->rank() == 0) engines.push_back(engine::connect(receiver->address(), test::soon()));
        }
        sync::SessionOptions options;
        options.mode = pair.mode;
        options.bucket_bytes = 4096;
        options.depth = 2;
        sync::Session session(world, source, std::move(engines), options);
        for (int version = 1; version <= 2; ++version) {
            randomise(policy, static_cast<unsigned>(version));
            session.push(version);
            Values& whole = full[version - 1];
            for (const auto& [name, values] : full_values(policy.parameters())) {
                const std::lock_guard lock(mutex);
                EXPECT_EQ(whole.emplace(name, values).first->second, values) << name;
            }
            world->barrier();
            if (world->rank() == 0) {
                for (const auto& target : targets) expect_weights(*target, pair.config, whole);
            }
            EXPECT_TRUE(session.weights_match().match);
        }
    });
}

TEST(SyncPairs, DrawnOnesByteByByte) {
    std::mt19937 random(3);
    std::map<sync::Mode, int> staged, two_a_rank, shared_tables;
    for (int i = 0; i < kPairs; ++i) {
        const Pair pair = drawn(random, i);
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, pair.text());
        expect_pair(pair);
        if (::testing::Test::HasFailure()) return;
        if (pair.mesh.pp < 2) continue;
        ++staged[pair.mode];
        if (pair.pipeline.stages_per_rank > 1) ++two_a_rank[pair.mode];
        const bool two_ranks = pair.pipeline.schedule != "ZBVZeroBubble";  // which has both ends on rank 0
        if (pair.config.tie_word_embeddings && two_ranks) ++shared_tables[pair.mode];
    }
    for (const auto& [mode, pairs] : staged) {
        EXPECT_GE(pairs, 5) << sync::mode_name(mode);
        EXPECT_GE(two_a_rank[mode], 1) << sync::mode_name(mode);
        EXPECT_GE(shared_tables[mode], 1) << sync::mode_name(mode);
    }
    EXPECT_EQ(staged.size(), 4u);
}

}  // namespace
}  // namespace tandem::trainer::testing
