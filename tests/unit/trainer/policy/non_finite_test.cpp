// What is infinite or NaN is never applied: weights and moments keep their bits on every rank, and tensors and rows are
// named alike on all of them.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/tensor/host_access.h"
#include "tests/support/grpo_loss.h"
#include "tests/unit/trainer/policy/block_tensors.h"
#include "tests/unit/trainer/policy/policy_run.h"
#include "trainer/policy/non_finite.h"

namespace tandem::trainer::testing {
namespace {

using Values = std::map<std::string, std::vector<float>>;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

model::ModelConfig untied_config() {
    model::ModelConfig config = tiny_config();
    config.tie_word_embeddings = false;
    return config;
}

// Without the last token of the vocabulary.
std::vector<Sample> samples_without_last(unsigned seed) {
    const auto last = static_cast<std::int32_t>(untied_config().vocab_size - 1);
    auto samples = random_samples({11, 3, 9, 6}, untied_config().vocab_size, seed);
    for (Sample& sample : samples) {
        for (std::int32_t& token : sample.tokens) token = token == last ? 0 : token;
    }
    return samples;
}

Values state_of(Policy& policy) {
    const Policy::OnloadScope onloaded(policy, true);
    return full_values(policy.training_state());
}

void on_untied_mesh(MeshSizes sizes, PolicyOptions options, const std::function<void(Policy&)>& body) {
    options.init_std = 0.2f;
    options.max_tokens_per_rank = 24;
    options.value_head = true;
    options.offload.directory = ::testing::TempDir();
    comm::run_threads(sizes.dp * sizes.cp, [&](std::shared_ptr<comm::Communicator> world) {
        PolicyOptions here = options;
        here.device = device_of(world->rank());
        if (sizes.dp_replicate > 0) here.shard_axes = {"dp_shard", "cp"};
        Policy policy(make_mesh(std::move(world), sizes), untied_config(), here);
        body(policy);
    });
}

double take_step(Policy& policy, unsigned seed) {
    policy.accumulate(samples_without_last(seed), supervised_loss());
    const double norm = policy.apply(1e-2);
    policy.sleep(policy.device() == Device{} ? Policy::Sleep::all : Policy::Sleep::none);
    return norm;
}

// A step whose third sample has this advantage everywhere.
double with_advantage(Policy& policy, float advantage) {
    auto samples = samples_without_last(3);
    samples[2].advantages.assign(samples[2].tokens.size(), advantage);
    policy.accumulate(samples, grpo_loss(0.2f, 0.2f));
    return policy.apply(1e-2);
}

TEST(NonFinite, AStepIsAppliedOnAllRanksOrOnNone) {
    for (const MeshSizes& sizes :
         {MeshSizes{1, 1}, MeshSizes{2, 1}, MeshSizes{1, 2}, MeshSizes{2, 2}, MeshSizes{4, 1, 2}}) {
        for (const bool offload : {false, true}) {
            SCOPED_TRACE(sizes.dp * 10 + sizes.cp);
            PolicyOptions options;
            options.compute_dtype = offload ? DType::bfloat16 : DType::float32;
            options.offload.parameters = options.offload.optimizer = offload;
            on_untied_mesh(sizes, options, [&](Policy& policy) {
                EXPECT_TRUE(std::isfinite(take_step(policy, 1)));
                const Values before = state_of(policy);
                EXPECT_FALSE(std::isfinite(with_advantage(policy, kNan)));
                EXPECT_FALSE(policy.non_finite_gradients().empty());
                EXPECT_EQ(policy.optimizer_steps(), 1);
                policy.discard_gradients();
                EXPECT_THAT(policy.non_finite_gradients(), IsEmpty());
                EXPECT_EQ(state_of(policy), before);
                EXPECT_TRUE(std::isfinite(take_step(policy, 2)));
                EXPECT_THAT(policy.non_finite_weights(), IsEmpty());
            });
        }
    }
}

TEST(NonFinite, FiniteGradientsWhoseSquaresAreNot) {
    for (const MeshSizes& sizes : {MeshSizes{1, 1}, MeshSizes{2, 2}}) {
        for (const bool offload : {false, true}) {
            PolicyOptions options;
            options.offload.optimizer = offload;
            options.clip_grad_norm = 0;
            on_untied_mesh(sizes, options, [&](Policy& policy) {
                take_step(policy, 1);
                const Values before = state_of(policy);
                EXPECT_EQ(with_advantage(policy, 1e30f), kInfinity);
                EXPECT_THAT(policy.non_finite_gradients(), IsEmpty());
                policy.discard_gradients();
                EXPECT_EQ(state_of(policy), before);
                EXPECT_TRUE(std::isfinite(with_advantage(policy, 1e16f))) << "large, and not too large";
            });
            options.clip_grad_norm = 1;
            on_untied_mesh(sizes, options, [&](Policy& policy) {
                EXPECT_TRUE(std::isfinite(with_advantage(policy, 1e30f)));
            });
        }
    }
}

// Rows that nobody filled refuse nothing, and are named by their place in the whole tensor.
TEST(NonFinite, WhatTheModelBeganWithStays) {
    const std::string name = "model.embed_tokens.weight";
    const std::int64_t last = untied_config().vocab_size - 1;
    for (const MeshSizes& sizes : {MeshSizes{1, 1}, MeshSizes{2, 1}, MeshSizes{2, 2}, MeshSizes{4, 1, 2}}) {
        on_untied_mesh(sizes, {}, [&](Policy& policy) {
            std::vector<float> full;
            Shape shape;
            {
                const Policy::OnloadScope onloaded(policy);
                shape = policy.parameters()[0].second.shape();
                full = full_values(policy.parameters()).at(name);
            }
            full[static_cast<std::size_t>(last * shape[1])] = kInfinity;
            full[static_cast<std::size_t>(last * shape[1]) + 1] = kNan;
            policy.load_parameter(name, Tensor::from(std::span<const float>(full), shape));
            const auto check = [&] {
                const auto found = policy.non_finite_weights();
                ASSERT_EQ(found.size(), 1u);
                EXPECT_EQ(found[0].name, name);
                EXPECT_EQ(found[0].elements, 2);
                EXPECT_THAT(found[0].first_rows, ElementsAre(last));
                EXPECT_EQ(text_of(found), fmt::format("{} (2 elements in row {})", name, last));
            };
            check();
            EXPECT_TRUE(std::isfinite(take_step(policy, 1)));
            EXPECT_TRUE(std::isfinite(take_step(policy, 2)));
            check();
        });
    }
}

// The last net: a moment that was damaged makes a weight NaN, though loss and gradients are fine.
TEST(NonFinite, AStepThatMadeSomethingNonFiniteThrowsOnEveryRank) {
    for (const MeshSizes& sizes : {MeshSizes{1, 1}, MeshSizes{2, 1}}) {
        on_untied_mesh(sizes, {}, [&](Policy& policy) {
            take_step(policy, 1);
            {
                const Policy::OnloadScope onloaded(policy, true);
                for (const auto& [name, tensor] : policy.training_state()) {
                    const bool mine = tensor.layout().offsets[0] == 0;
                    if (name != "exp_avg/lm_head.weight" || !mine) continue;
                    const Tensor nan = Tensor::zeros({1, tensor.shape()[1]}, DType::float32, "test");
                    nan.values<float>()[2] = kNan;
                    HostAccess().write(nan, tensor.local().rows(0, 1));
                }
            }
            try {
                take_step(policy, 2);
                ADD_FAILURE();
            } catch (const Error& error) {
                EXPECT_THAT(error.what(), HasSubstr("lm_head.weight (1 element in row 0)"));
            }
        });
    }
}

// A block's elements as a mesh holds them, with NaN at these positions of the whole tensors.
std::vector<std::pair<std::string, DTensor>> with_nan_at(
    const std::shared_ptr<comm::Communicator>& world, const BlockMesh& mesh,
    const std::map<std::string, std::vector<std::size_t>>& places) {
    std::vector<std::pair<std::string, DTensor>> tensors;
    for (const model::ParameterSpec& spec : block_specs(mesh.tp)) {
        const Tensor full = values_of(spec);
        const auto found = places.find(spec.name);
        for (const std::size_t place : found == places.end() ? std::vector<std::size_t>{} : found->second)
            full.values<float>()[place] = kNan;
        tensors.emplace_back(spec.name, as_held(world, mesh, spec, full));
    }
    return tensors;
}

std::vector<NonFiniteTensor> find_on_device(const std::vector<std::pair<std::string, DTensor>>& tensors,
                                            comm::Communicator& world) {
    Stream stream = Stream::make(device_of(world.rank()), "test");
    return find_non_finite(tensors, stream, world);
}

// Columns of a row are on several ranks: their elements are added, the row is counted once. Replicas count once.
TEST(NonFinite, EveryMeshCountsElementsAndRowsAlike) {
    const std::size_t row = 11;  // elements of o's
    const std::map<std::string, std::vector<std::size_t>> places = {
        {"q", {3, 12 * 7}},
        {"k", {0, 41}},
        {"o", {0, 10, row + 10, 2 * row, 2 * row + 5, 2 * row + 6, 4 * row + 3, 5 * row, 6 * row + 10}},
        {"down", {1, 4}},
        {"experts", {9, 10, 19}},
        {"norm", {6}}};
    for (const BlockMesh& mesh : kBlockMeshes) {
        SCOPED_TRACE(mesh.text());
        comm::run_threads(mesh.ranks(), [&](std::shared_ptr<comm::Communicator> world) {
            const auto found = find_on_device(with_nan_at(world, mesh, places), *world);
            ASSERT_EQ(found.size(), 6u);
            EXPECT_EQ(text_of({found[0], found[1], found[2]}),
                      "q (2 elements in rows 0, 12), k (2 elements in rows 0, 5), "
                      "o (9 elements in rows 0, 1, 2, 4 and 2 more)");
            EXPECT_EQ(text_of({found[3], found[4], found[5]}),
                      "down (2 elements in rows 0, 2), experts (3 elements in rows 0, 1), "
                      "norm (1 element in row 6)");
            EXPECT_EQ(found[2].rows, 6);
        });
    }
}

// One of the ranks that hold the same elements is damaged.
TEST(NonFinite, AReplicaThatAloneHasSomeIsSeen) {
    for (const BlockMesh& mesh : {BlockMesh{2, 1, 1}, BlockMesh{2, 2, 1}, BlockMesh{2, 1, 3}}) {
        for (int damaged = 0; damaged < mesh.ranks(); damaged += mesh.ranks() - 1) {
            comm::run_threads(mesh.ranks(), [&](std::shared_ptr<comm::Communicator> world) {
                const std::size_t at = damaged == 0 ? 0 : 76;
                const bool here = world->rank() == damaged;
                const auto found = find_on_device(
                    with_nan_at(world, mesh, {{"o", here ? std::vector{at} : std::vector<std::size_t>{}}}),
                    *world);
                EXPECT_EQ(text_of(found), damaged == 0 ? "o (1 element in row 0)" : "o (1 element in row 6)");
            });
        }
    }
}

TEST(NonFinite, TheTextNamesAFew) {
    const NonFiniteTensor one{"a", 1, 1, {5}};
    const NonFiniteTensor many{"b", 70, 9, {1, 2, 3, 8}};
    EXPECT_EQ(text_of(std::vector<NonFiniteTensor>{}), "");
    EXPECT_EQ(text_of(std::vector{one, many}),
              "a (1 element in row 5), b (70 elements in rows 1, 2, 3, 8 and 5 more)");
    EXPECT_EQ(text_of(std::vector{one, one, one, one}),
              "a (1 element in row 5), a (1 element in row 5), a (1 element in row 5) and 1 more tensor");
}

}  // namespace
}  // namespace tandem::trainer::testing
