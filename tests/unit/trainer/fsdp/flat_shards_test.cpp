// The flat layout of shards, and initial weights that do not depend on the mesh.
#include "trainer/fsdp/flat_shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "common/error.h"
#include "trainer/policy/initial_weights.h"

namespace tandem::trainer {
namespace {

std::vector<Parameter> some_parameters() {
    std::vector<Parameter> parameters;
    for (const auto& [name, shape] :
         {std::pair<const char*, Shape>{"a", {9, 3}}, {"b", {1}}, {"c", {5, 7}}, {"d", {4}}})
        parameters.push_back({{name, shape}, shape, {}, {}});
    return parameters;
}

TEST(FlatShards, RebuildsEveryParameterFromItsShards) {
    const auto parameters = some_parameters();
    const std::vector<std::vector<int>> groups{{2, 0}, {1, 3}};
    for (const int ranks : {1, 2, 3, 4}) {
        std::vector<std::vector<float>> rebuilt(parameters.size());
        for (int rank = 0; rank < ranks; ++rank) {
            const FlatShards layout(parameters, groups, ranks, rank);
            const Tensor flat = Tensor::zeros({layout.numel()}, DType::float32, "test");
            for (std::size_t i = 0; i < parameters.size(); ++i) {
                const auto& entry = layout.entry(static_cast<int>(i));
                const Tensor local = layout.local(flat, static_cast<int>(i));
                ASSERT_EQ(local.dim(0), entry.local_rows);
                const float first =
                    static_cast<float>(100 * i) + static_cast<float>(entry.first_row * entry.row_numel);
                std::iota(local.values<float>().begin(), local.values<float>().end(), first);
                ASSERT_EQ(layout.padded(flat, static_cast<int>(i)).raw(), local.raw());
            }
            for (std::size_t i = 0; i < parameters.size(); ++i) {  // shards do not overlap
                const auto values = layout.local(flat, static_cast<int>(i)).to_vector<float>();
                rebuilt[i].insert(rebuilt[i].end(), values.begin(), values.end());
            }
        }
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            std::vector<float> expected(static_cast<std::size_t>(numel(parameters[i].shape)));
            std::iota(expected.begin(), expected.end(), static_cast<float>(100 * i));
            EXPECT_EQ(rebuilt[i], expected) << parameters[i].name << " over " << ranks;
        }
    }
}

TEST(FlatShards, NineRowsOverFourLeaveARankEmpty) {
    const FlatShards layout(some_parameters(), {{0, 1, 2, 3}}, 4, 3);
    EXPECT_EQ(layout.entry(0).local_rows, 0);
    EXPECT_EQ(layout.entry(0).first_row, 9);
    EXPECT_EQ(layout.entry(0).padded_rows, 3);
}

TEST(FlatShards, RefusesScalars) {
    const std::vector<Parameter> parameters{{{"s", {}}, {}, {}, {}}};
    EXPECT_THROW(FlatShards(parameters, {{0}}, 2, 0), InvalidArgument);
}

model::ParameterSpec named(const std::string& name, const Shape& shape) {
    return model::named_parameter("model.layers.0." + name, shape, model::Cut::replicate);
}

TEST(InitialWeights, ArePiecewiseTheSameAndNormal) {
    const InitialWeights init{5, 0.5f, 8};
    const Shape shape{64, 50};
    std::vector<float> whole(3200);
    fill_initial_weights(init, named("mlp.up_proj.weight", shape), 0, whole);
    for (const auto& [first, count] :
         std::vector<std::pair<int, std::size_t>>{{0, 1}, {1, 1}, {1234, 701}, {77, 60}}) {
        std::vector<float> piece(count);
        fill_initial_weights(init, named("mlp.up_proj.weight", shape), first, piece);
        EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + first)) << first;
    }

    const auto mean = std::accumulate(whole.begin(), whole.end(), 0.0) / 3200;
    double squares = 0;
    for (const float value : whole) squares += static_cast<double>(value) * value;
    EXPECT_NEAR(mean, 0.0, 0.03);
    EXPECT_NEAR(std::sqrt(squares / 3200), 0.5, 0.02);

    std::vector<float> down(3200);
    fill_initial_weights(init, named("mlp.down_proj.weight", shape), 0, down);
    double down_squares = 0;
    for (const float value : down) down_squares += static_cast<double>(value) * value;
    EXPECT_NEAR(std::sqrt(down_squares / 3200), 0.125, 0.005);  // 0.5 / sqrt(2 * 8)

    std::vector<float> norm(4);
    fill_initial_weights(init, named("input_layernorm.weight", {64}), 8, norm);
    EXPECT_EQ(norm, std::vector<float>(4, 1.0f));
    std::vector<float> other(3200);
    fill_initial_weights({6, 0.5f, 8}, named("mlp.up_proj.weight", shape), 0, other);
    EXPECT_NE(other, whole);
}

}  // namespace
}  // namespace tandem::trainer
