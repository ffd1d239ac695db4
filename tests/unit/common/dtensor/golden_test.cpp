// PyTorch's own layouts and redistributions (tests/golden/make_dtensor.py) against ours, index by index.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "common/comm/launch.h"
#include "common/dtensor/dtensor.h"
#include "tests/unit/common/dtensor/oracle.h"

namespace tandem {
namespace {

using nlohmann::json;

const json& golden() {
    static const json data = [] {
        std::ifstream file(TANDEM_SOURCE_DIR "/tests/golden/data/dtensor.json");
        return json::parse(file);
    }();
    return data;
}

Placements placements_of(const json& words) {
    std::string text;
    for (const json& word : words) {
        if (!text.empty()) text += ',';
        text += word.get<std::string>();
    }
    return parse_placements(text);
}

std::vector<float> values_of(const json& runs) {  // [first, count, …]
    std::vector<float> result;
    for (std::size_t i = 0; i < runs.size(); i += 2) {
        for (int k = 0; k < runs[i + 1].get<int>(); ++k)
            result.push_back(static_cast<float>(runs[i].get<int>() + k));
    }
    return result;
}

// The values of the global tensor 0, 1, 2, … that a layout gives to these coordinates.
std::vector<float> values_of(const LocalLayout& layout, const Shape& shape) {
    std::vector<float> result{0};
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
        std::vector<float> next;
        for (const float value : result) {
            for (const auto& [start, stop] : layout.runs[dim]) {
                for (std::int64_t i = start; i < stop; ++i) {
                    next.push_back(value * static_cast<float>(shape[dim]) + static_cast<float>(i));
                }
            }
        }
        result = std::move(next);
    }
    return result;
}

std::vector<int> coordinates(const std::vector<int>& sizes, int rank) {
    std::vector<int> result(sizes.size());
    for (std::size_t axis = sizes.size(); axis-- > 0; rank /= sizes[axis]) result[axis] = rank % sizes[axis];
    return result;
}

TEST(Golden, HasAtLeast500Cases) {
    EXPECT_GE(golden()["redistribute"].size() + golden()["tp_fsdp"].size(), 500u);
    EXPECT_GE(golden()["redistribute"].size(), 450u);
    EXPECT_GE(golden()["tp_fsdp"].size(), 40u);
}

// Local shapes, offsets and the very elements, before and after, without moving anything.
TEST(Golden, LayoutsAndOffsets) {
    for (const json& c : golden()["redistribute"]) {
        const auto sizes = c["mesh"].get<std::vector<int>>();
        const auto shape = c["shape"].get<Shape>();
        for (std::size_t rank = 0; rank < c["ranks"].size(); ++rank) {
            const json& expected = c["ranks"][rank];  // shape, offset, runs; shape, runs
            const std::vector<int> at = coordinates(sizes, static_cast<int>(rank));
            const LocalLayout before = local_layout(shape, sizes, placements_of(c["from"]), at);
            ASSERT_EQ(before.shape, expected[0].get<Shape>()) << c;
            ASSERT_EQ(values_of(before, shape), values_of(expected[2])) << c;
            for (std::size_t dim = 0; dim < shape.size(); ++dim) {
                // Where nothing is held PyTorch 2.6 adds up what its steps left; its documentation, and we,
                // say the end.
                const auto offset =
                    before.shape[dim] == 0 ? shape[dim] : expected[1][dim].get<std::int64_t>();
                ASSERT_EQ(before.offsets[dim], offset) << c;
            }
            const LocalLayout after = local_layout(shape, sizes, placements_of(c["to"]), at);
            ASSERT_EQ(after.shape, expected[3].get<Shape>()) << c;
            ASSERT_EQ(values_of(after, shape), values_of(expected[4])) << c;
        }
    }
}

// TP first, then FSDP: what fully_shard made of a tensor-parallel weight. On the mesh (tp, fsdp) plain shards are the same.
TEST(Golden, TensorParallelThenFsdp) {
    for (const json& c : golden()["tp_fsdp"]) {
        const auto sizes = c["mesh"].get<std::vector<int>>();
        const auto shape = c["shape"].get<Shape>();
        const Placement of_tp = c["style"] == "colwise" ? Shard(0) : Shard(1);
        for (std::size_t rank = 0; rank < c["ranks"].size(); ++rank) {
            const std::vector<int> at = coordinates(sizes, static_cast<int>(rank));
            const LocalLayout layout = local_layout(shape, sizes, placements_of(c["placements"]), at);
            ASSERT_EQ(local_layout(shape, {sizes[1], sizes[0]}, {of_tp, Shard(0)}, {at[1], at[0]}).runs,
                      layout.runs)
                << c;
            ASSERT_EQ(layout.shape, c["ranks"][rank][0].get<Shape>()) << c;
            ASSERT_EQ(values_of(layout, shape), values_of(c["ranks"][rank][1])) << c;
        }
    }
}

void check(const Tensor& got, const json& shape, const std::vector<float>& values, const json& c) {
    const std::span<const float> elements = got.values<float>();
    if (got.shape() == shape.get<Shape>() &&
        std::equal(elements.begin(), elements.end(), values.begin(), values.end()))
        return;
    throw std::runtime_error(fmt::format("{} instead, in {}", oracle::text_of(got), c.dump()));
}

// Every case for real, ranks as threads: PyTorch's source pieces in, PyTorch's results out.
TEST(Golden, Redistributions) {
    std::map<std::vector<int>, std::vector<const json*>> by_mesh;
    for (const char* kind : {"redistribute", "tp_fsdp"}) {
        for (const json& c : golden()[kind]) by_mesh[c["mesh"].get<std::vector<int>>()].push_back(&c);
    }
    for (const auto& entry : by_mesh) {
        const std::vector<int>& sizes = entry.first;
        int world_size = 1;
        for (const int size : sizes) world_size *= size;
        comm::run_threads(world_size, [&](const std::shared_ptr<comm::Communicator>& world) {
            const std::vector<std::string> letters = {"a", "b", "c"};
            const DeviceMesh mesh = DeviceMesh::create(
                world, sizes, {letters.begin(), letters.begin() + static_cast<std::ptrdiff_t>(sizes.size())});
            for (const json* c : entry.second) {
                const json& mine = (*c)["ranks"][static_cast<std::size_t>(world->rank())];
                const auto shape = (*c)["shape"].get<Shape>();
                if (c->contains("placements")) {
                    const std::vector<float> piece = values_of(mine[1]);
                    const DTensor weight =
                        DTensor::from_local(Tensor::from<float>(piece, mine[0].get<Shape>()), mesh,
                                            placements_of((*c)["placements"]), shape);
                    std::vector<float> whole(static_cast<std::size_t>(numel(shape)));
                    for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
                    check(weight.full_tensor(), (*c)["shape"], whole, *c);
                    continue;
                }
                // The oracle counts from 1 and makes the terms of a Partial; PyTorch's script counts from 0.
                const Placements from = placements_of((*c)["from"]);
                const DTensor source = DTensor::from_local(
                    oracle::piece(shape, sizes, from, mesh.coordinates()), mesh, from, shape);
                std::vector<float> expected = values_of(mine[4]);
                for (float& value : expected) value += 1;
                check(source.redistribute(placements_of((*c)["to"])).local(), mine[3], expected, *c);
            }
        });
    }
}

}  // namespace
}  // namespace tandem
