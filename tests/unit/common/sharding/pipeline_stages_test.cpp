// How a model is cut into stages, and who has which parameter.
#include "common/sharding/pipeline_stages.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "common/sharding/tensor_cut.h"

namespace tandem {
namespace {

// TorchTitan's generate_llm_fqn_per_model_part, executed.
TEST(PipelineStages, HaveTheLayersThatTorchTitanGivesThem) {
    const auto layers = [](int stages, int of, int first_less, int last_less) {
        std::vector<int> counts;
        int at = 0;
        for (const DecoderPart& part : pipeline_stages(of, stages, first_less, last_less)) {
            EXPECT_EQ(part.first_layer, at);
            at = part.end_layer;
            counts.push_back(part.layers());
        }
        EXPECT_EQ(at, of);
        return counts;
    };
    using Counts = std::vector<int>;
    EXPECT_EQ(layers(4, 32, 1, 1), (Counts{8, 9, 8, 7}));
    EXPECT_EQ(layers(8, 32, 1, 1), (Counts{4, 5, 4, 4, 4, 4, 4, 3}));
    EXPECT_EQ(layers(4, 7, 1, 1), (Counts{2, 2, 2, 1}));
    EXPECT_EQ(layers(5, 8, 1, 1), (Counts{1, 2, 2, 2, 1}));
    EXPECT_EQ(layers(6, 10, 2, 2), (Counts{1, 3, 2, 2, 2, 0}));
    EXPECT_EQ(layers(4, 32, 2, 3), (Counts{8, 9, 9, 6}));
    EXPECT_EQ(layers(2, 3, 3, 1), (Counts{1, 2}));
    EXPECT_EQ(layers(10, 8, 1, 1), (Counts{0, 1, 1, 1, 1, 1, 1, 1, 1, 0}));
    EXPECT_EQ(layers(1, 5, 1, 1), (Counts{5}));
    EXPECT_THROW(pipeline_stages(8, 11), BadInput);
    EXPECT_THROW(pipeline_stages(3, 0), BadInput);
    EXPECT_THROW(pipeline_stages(4, 4, 3, 0), BadInput);
    EXPECT_THROW(pipeline_stages(3, 2, 4, 0), BadInput);  // 7 in two: 4 and 3
}

TEST(PipelineStages, HaveEveryParameterOnceButForATiedTable) {
    model::DecoderSizes sizes;
    sizes.vocab_size = 11;
    sizes.hidden_size = 8;
    sizes.intermediate_size = 12;
    sizes.num_hidden_layers = 5;
    sizes.num_attention_heads = sizes.num_key_value_heads = 2;
    sizes.head_dim = 4;
    for (const bool tied : {false, true}) {
        sizes.tie_word_embeddings = tied;
        for (int count = 1; count <= 7; ++count) {
            const auto parts = pipeline_stages(5, count);
            std::int64_t held = 0, model = 0, table = 0;
            for (const DecoderPart& part : parts) held += largest_shard(sizes, 1, 1, {part});
            for (const model::ParameterSpec& spec : model::parameter_specs(sizes)) {
                int holders = 0;
                for (const DecoderPart& part : parts) holders += part.holds(spec, tied) ? 1 : 0;
                const bool shared = tied && spec.role == model::Role::embedding && count > 1;
                EXPECT_EQ(holders, shared ? 2 : 1) << spec.name << " " << count;
                model += numel(spec.shape);
                if (shared) table = numel(spec.shape);
            }
            EXPECT_EQ(held, model + table);
            EXPECT_EQ(largest_shard(sizes, 1, 1, parts), model) << "a rank with all stages has one table";
        }
    }
}

}  // namespace
}  // namespace tandem
