// The tensors of an engine rank: names, shapes and parts as SGLang and vLLM have them.
#include "sync/plan/engine_layout.h"

#include <gmock/gmock.h>

#include <numeric>

#include "common/error.h"
#include "sync/bench/shapes.h"
#include "tests/unit/sync/plan/reshard_model.h"

namespace tandem::sync {
namespace {

using engine::Part;
using engine::TensorInfo;
using testing::ElementsAre;
using testing::HasSubstr;

const TensorInfo& named(const std::vector<TensorInfo>& tensors, std::string_view name) {
    for (const TensorInfo& tensor : tensors)
        if (tensor.name == name) return tensor;
    throw InvalidArgument("no tensor " + std::string(name));
}

constexpr const char* kLayer = "model.layers.0.";

TEST(EngineLayout, FusesQkvAndGateUp) {
    const auto layout = engine_layout(small_model(), {2, 1, true}, DType::bfloat16);
    ASSERT_EQ(layout.size(), 2u);
    std::vector<std::string> names;
    for (const TensorInfo& tensor : layout[1]) names.push_back(tensor.name);
    EXPECT_THAT(
        names, ElementsAre("model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                           "model.layers.0.self_attn.qkv_proj.weight",
                           "model.layers.0.self_attn.qkv_proj.bias", "model.layers.0.self_attn.o_proj.weight",
                           "model.layers.0.self_attn.o_proj.bias", "model.layers.0.mlp.gate_up_proj.weight",
                           "model.layers.0.mlp.gate_up_proj.bias", "model.layers.0.mlp.down_proj.weight",
                           "model.layers.0.mlp.down_proj.bias", "model.layers.1.mlp.gate.weight",
                           "model.layers.1.mlp.experts.w13_weight", "model.layers.1.mlp.experts.w2_weight"));
    const std::string attention = std::string(kLayer) + "self_attn.";
    const TensorInfo& qkv = named(layout[1], attention + "qkv_proj.weight");
    EXPECT_EQ(qkv.shape, (Shape{8, 8}));
    EXPECT_EQ(qkv.dtype, DType::bfloat16);
    EXPECT_THAT(qkv.parts, ElementsAre(Part{attention + "q_proj.weight", {4, 0}, {4, 8}, 0, {8, 1}},
                                       Part{attention + "k_proj.weight", {2, 0}, {2, 8}, 32, {8, 1}},
                                       Part{attention + "v_proj.weight", {2, 0}, {2, 8}, 48, {8, 1}}));
    const TensorInfo& gate_up = named(layout[0], "model.layers.0.mlp.gate_up_proj.weight");
    EXPECT_THAT(gate_up.parts,
                ElementsAre(Part{"model.layers.0.mlp.gate_proj.weight", {0, 0}, {6, 8}, 0, {8, 1}},
                            Part{"model.layers.0.mlp.up_proj.weight", {0, 0}, {6, 8}, 48, {8, 1}}));
    const TensorInfo& o = named(layout[1], attention + "o_proj.weight");
    EXPECT_EQ(o.shape, (Shape{8, 4}));
    EXPECT_THAT(o.parts, ElementsAre(Part{attention + "o_proj.weight", {0, 4}, {8, 4}, 0, {4, 1}}));
    EXPECT_TRUE(named(layout[1], "model.layers.0.input_layernorm.weight").parts.empty());
    EXPECT_EQ(named(layout[1], "model.embed_tokens.weight").parts[0].start, (Shape{6, 0}));
}

// A bias is cut like the rows of its weight; where the weight is cut along its columns, each rank has it
// whole.
TEST(EngineLayout, CutsBiasesLikeTheirWeights) {
    const auto layout = engine_layout(small_model(), {4, 1, true}, DType::bfloat16);
    const std::string attention = std::string(kLayer) + "self_attn.", mlp = std::string(kLayer) + "mlp.";
    const TensorInfo& qkv = named(layout[3], attention + "qkv_proj.bias");
    EXPECT_EQ(qkv.shape, (Shape{6}));
    EXPECT_THAT(qkv.parts, ElementsAre(Part{attention + "q_proj.bias", {6}, {2}, 0, {1}},
                                       Part{attention + "k_proj.bias", {2}, {2}, 2, {1}},
                                       Part{attention + "v_proj.bias", {2}, {2}, 4, {1}}));
    EXPECT_THAT(named(layout[1], mlp + "gate_up_proj.bias").parts,
                ElementsAre(Part{mlp + "gate_proj.bias", {3}, {3}, 0, {1}},
                            Part{mlp + "up_proj.bias", {3}, {3}, 3, {1}}));
    for (const std::string& whole : {attention + "o_proj.bias", mlp + "down_proj.bias"}) {
        EXPECT_EQ(named(layout[1], whole).shape, (Shape{8}));
        EXPECT_TRUE(named(layout[1], whole).parts.empty());
    }
}

TEST(EngineLayout, SharesKeyAndValueHeads) {
    const auto layout = engine_layout(small_model(), {4, 1, true}, DType::bfloat16);
    for (int rank = 0; rank < 4; ++rank) {  // 4 query heads, 2 key heads
        const auto& parts =
            named(layout[static_cast<std::size_t>(rank)], "model.layers.0.self_attn.qkv_proj.weight").parts;
        EXPECT_EQ(parts[0].start, (Shape{rank * 2, 0}));
        EXPECT_EQ(parts[1].start, (Shape{rank / 2 * 2, 0}));
        EXPECT_EQ(parts[2].size, (Shape{2, 8}));
    }
}

TEST(EngineLayout, DividesExpertsOverRanks) {
    const auto layout = engine_layout(small_model(), {1, 2, true}, DType::float32);
    ASSERT_EQ(layout.size(), 2u);
    const std::string experts = "model.layers.1.mlp.experts.";
    const TensorInfo& w13 = named(layout[1], experts + "w13_weight");
    EXPECT_EQ(w13.shape, (Shape{2, 8, 8}));
    EXPECT_THAT(w13.parts, ElementsAre(Part{experts + "2.gate_proj.weight", {0, 0}, {4, 8}, 0, {8, 1}},
                                       Part{experts + "2.up_proj.weight", {0, 0}, {4, 8}, 32, {8, 1}},
                                       Part{experts + "3.gate_proj.weight", {0, 0}, {4, 8}, 64, {8, 1}},
                                       Part{experts + "3.up_proj.weight", {0, 0}, {4, 8}, 96, {8, 1}}));
    const TensorInfo& w2 = named(layout[0], experts + "w2_weight");
    EXPECT_EQ(w2.shape, (Shape{2, 8, 4}));
    EXPECT_THAT(w2.parts, ElementsAre(Part{experts + "0.down_proj.weight", {0, 0}, {8, 4}, 0, {4, 1}},
                                      Part{experts + "1.down_proj.weight", {0, 0}, {8, 4}, 32, {4, 1}}));
    // attention and dense layers are whole, on both
    EXPECT_EQ(named(layout[0], "model.layers.0.self_attn.qkv_proj.weight").parts,
              named(layout[1], "model.layers.0.self_attn.qkv_proj.weight").parts);
}

TEST(EngineLayout, CutsExpertsWhereTheyAreNotDivided) {
    const auto layout = engine_layout(small_model(), {2, 1, true}, DType::float32);
    const TensorInfo& w13 = named(layout[1], "model.layers.1.mlp.experts.w13_weight");
    EXPECT_EQ(w13.shape, (Shape{4, 4, 8}));
    EXPECT_EQ(w13.parts[1],
              (Part{"model.layers.1.mlp.experts.0.up_proj.weight", {2, 0}, {2, 8}, 16, {8, 1}}));
    const TensorInfo& w2 = named(layout[1], "model.layers.1.mlp.experts.w2_weight");
    EXPECT_EQ(w2.shape, (Shape{4, 8, 2}));
    EXPECT_EQ(w2.parts[1],
              (Part{"model.layers.1.mlp.experts.1.down_proj.weight", {0, 2}, {8, 2}, 16, {2, 1}}));
}

// Four ranks, experts in two groups: each group's two ranks cut their experts in halves.
TEST(EngineLayout, CutsAndDividesExperts) {
    const auto layout = engine_layout(small_model(), {4, 2, true}, DType::float32);
    const auto& parts = named(layout[3], "model.layers.1.mlp.experts.w13_weight").parts;
    EXPECT_EQ(parts[0], (Part{"model.layers.1.mlp.experts.2.gate_proj.weight", {2, 0}, {2, 8}, 0, {8, 1}}));
}

TEST(EngineLayout, UnfusedKeepsTheTrainersNames) {
    const auto model = small_model();
    const auto layout = engine_layout(model, {2, 1, false}, DType::float32);
    ASSERT_EQ(layout[0].size(), model.size());
    for (std::size_t i = 0; i < model.size(); ++i) EXPECT_EQ(layout[0][i].name, model[i].name);
    EXPECT_EQ(named(layout[0], "model.layers.0.self_attn.k_proj.weight").shape, (Shape{2, 8}));
    EXPECT_EQ(named(layout[0], "model.layers.1.mlp.experts.3.down_proj.weight").shape, (Shape{8, 2}));
    const auto divided = engine_layout(model, {1, 4, false}, DType::float32);
    EXPECT_EQ(divided[2].size(), model.size() - 9);
    EXPECT_TRUE(named(divided[2], "model.layers.1.mlp.experts.2.up_proj.weight").parts.empty());
}

TEST(EngineLayout, LatentAttention) {
    const auto layout =
        engine_layout(model_tensors(std::string(TANDEM_SOURCE_DIR) + "/examples/shapes/moe-1t-61x384.json"),
                      {8, 1, true}, DType::bfloat16);
    const std::string attention = "model.layers.5.self_attn.";
    EXPECT_EQ(named(layout[7], attention + "q_b_proj.weight").shape, (Shape{1536, 1536}));
    EXPECT_EQ(named(layout[7], attention + "kv_b_proj.weight").parts[0].start, (Shape{14336, 0}));
    EXPECT_EQ(named(layout[7], attention + "o_proj.weight").shape, (Shape{7168, 1024}));
    for (const char* whole : {"q_a_proj", "q_a_layernorm", "kv_a_proj_with_mqa", "kv_a_layernorm"})
        EXPECT_TRUE(named(layout[7], attention + whole + ".weight").parts.empty()) << whole;
    EXPECT_EQ(named(layout[7], "model.layers.5.mlp.shared_experts.gate_up_proj.weight").shape,
              (Shape{512, 7168}));
}

// As vLLM's VocabParallelEmbedding loads it, row by row: -1 is a row of zeros.
std::vector<std::vector<std::int64_t>> padded_and_cut(std::int64_t vocabulary, int tp) {
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < vocabulary; ++row) rows.push_back(row);
    const auto pad_to = [&](std::size_t multiple) {
        while (rows.size() % multiple != 0) rows.push_back(-1);
    };
    pad_to(64);
    if (rows.size() % static_cast<std::size_t>(tp) != 0) pad_to(64 * static_cast<std::size_t>(tp));
    std::vector<std::vector<std::int64_t>> ranks(static_cast<std::size_t>(tp));
    const std::size_t each = rows.size() / ranks.size();
    for (std::size_t i = 0; i < rows.size(); ++i) ranks[i / each].push_back(rows[i]);
    return ranks;
}

TEST(EngineLayout, PadsVocabulariesThatDoNotDivide) {
    for (std::int64_t vocabulary = 1; vocabulary < 300; ++vocabulary) {
        for (const int tp : {1, 2, 3, 4, 5, 8, 16}) {
            const auto oracle = padded_and_cut(vocabulary, tp);
            for (int rank = 0; rank < tp; ++rank) {
                const VocabularyRows rows = vocabulary_rows(vocabulary, tp, rank);
                std::vector<std::int64_t> held(static_cast<std::size_t>(rows.size));
                std::iota(held.begin(), held.end(), rows.start);
                held.resize(held.size() + static_cast<std::size_t>(rows.padding), -1);
                ASSERT_EQ(held, oracle[static_cast<std::size_t>(rank)])
                    << vocabulary << " rows, rank " << rank << " of " << tp;
            }
        }
    }
}

TEST(EngineLayout, HoldsTheRowsOfAVocabularyThatExist) {
    const std::vector<model::ParameterSpec> model{{"embed", {101, 8}, model::Cut::vocabulary, 0},
                                                  {"lm_head", {101, 8}, model::Cut::vocabulary, 0}};
    const auto halves = engine_layout(model, {2, 1, true}, DType::float32);
    EXPECT_EQ(named(halves[0], "embed").shape, (Shape{64, 8}));
    EXPECT_THAT(named(halves[0], "embed").parts, ElementsAre(Part{"embed", {0, 0}, {64, 8}, 0, {8, 1}}));
    EXPECT_EQ(named(halves[1], "lm_head").shape, (Shape{37, 8}));
    EXPECT_THAT(named(halves[1], "lm_head").parts, ElementsAre(Part{"lm_head", {64, 0}, {37, 8}, 0, {8, 1}}));
    const auto eighths = engine_layout(model, {8, 1, true}, DType::float32);
    EXPECT_EQ(named(eighths[6], "embed").shape, (Shape{5, 8}));
    EXPECT_EQ(named(eighths[7], "embed").shape, (Shape{0, 8}));
    EXPECT_TRUE(named(engine_layout(model, {}, DType::float32)[0], "embed").parts.empty());
}

std::string refusal(const std::vector<model::ParameterSpec>& model, const EngineParallel& parallel) {
    try {
        engine_layout(model, parallel, DType::float32);
    } catch (const InvalidArgument& error) {
        return error.what();
    }
    return "accepted";
}

TEST(EngineLayout, RefusesWhatDoesNotDivide) {
    const auto model = small_model();
    EXPECT_THAT(refusal(model, {3, 1, true}), HasSubstr("4 heads do not divide by tensor parallelism 3"));
    EXPECT_THAT(refusal(model, {8, 1, true}), HasSubstr("model.embed_tokens.weight"));
    EXPECT_THAT(
        refusal({model::named_parameter("a.q_proj.weight", {8, 8}, model::Cut::column, 4)}, {8, 1, true}),
        HasSubstr("'a.q_proj.weight': 4 heads do not divide by tensor parallelism 8"));
    EXPECT_THAT(refusal(model, {1, 3, true}), HasSubstr("4 experts do not divide by expert parallelism 3"));
    EXPECT_THAT(refusal(model, {2, 3, true}), HasSubstr("one must divide the other"));
    EXPECT_THAT(refusal({{"w", {8, 6}, model::Cut::row, 0}}, {4, 1, true}), HasSubstr("dim 1"));
    EXPECT_THAT(refusal({{"w", {8}, model::Cut::row, 0}}, {4, 1, true}), HasSubstr("dim 1"));
    EXPECT_THAT(
        refusal({model::named_parameter("a.up_proj.weight", {8, 8}, model::Cut::column)}, {2, 1, true}),
        HasSubstr("the first part of 'a.gate_up_proj.weight' has to come first"));
    EXPECT_THAT(refusal({{"w", {8, 8}, model::Cut::expert, 0}}, {1, 2, true}), HasSubstr(".experts.N."));
}

}  // namespace
}  // namespace tandem::sync
