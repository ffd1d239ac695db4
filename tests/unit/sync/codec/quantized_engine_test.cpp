// Whole models in eight bits: which tensors are quantised, and engines that slice, fuse and stack them.
#include <gmock/gmock.h>

#include "sync/bench/bench.h"
#include "sync/bench/quantized_engine.h"
#include "sync/bench/shapes.h"
#include "tests/unit/sync/codec/quantized_oracle.h"
#include "tests/unit/sync/session/engine_ranks.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

// Heads and expert sizes that two ranks cut along blocks of 128.
std::vector<model::ParameterSpec> block_moe() {
    return read_model_shapes(R"({"vocab_size": 96, "hidden_size": 200, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128,
        "attention_bias": true, "mlp_bias": true, "num_experts": 4, "moe_intermediate_size": 256, "n_shared_experts": 1, "first_k_dense_replace": 1})",
                             "moe.json")
        .tensors;
}

TEST(QuantizedEngine, LinearLayersAreQuantisedAndNothingElse) {
    BenchOptions options;
    options.shapes = "Qwen3-MoE-1B";
    options.engine_dtype = "fp8";
    std::vector<std::string> plain;
    std::size_t quantized = 0, scales = 0;
    for (const TensorInfo& tensor : options.engine_tensors(0)) {
        if (is_quantized(tensor.dtype)) {
            ++quantized;
        } else if (tensor.dtype == DType::float32) {
            EXPECT_THAT(tensor.name, HasSubstr("_proj.weight_scale_inv"));
            ++scales;
        } else if (tensor.name.find(".layers.") == std::string::npos ||
                   tensor.name.find(".layers.0.") != std::string::npos) {
            plain.push_back(tensor.name);
        }
    }
    EXPECT_THAT(plain, testing::ElementsAre(
                           "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                           "model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.k_norm.weight",
                           "model.layers.0.post_attention_layernorm.weight", "model.layers.0.mlp.gate.weight",
                           "model.norm.weight"));
    EXPECT_EQ(quantized, 12u * (4 + 32 * 3));
    EXPECT_EQ(scales, quantized);
}

TEST(QuantizedEngine, SlicesCutThroughBlocksAreRefusedByOption) {
    BenchOptions options;
    options.shapes = "SmolLM2-135M";
    options.engine_dtype = "fp8";
    options.engine_tp = 3;  // 192 of 576 rows
    try {
        options.validate();
        ADD_FAILURE() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("--engine-tp"));
        EXPECT_THAT(error.what(), HasSubstr("does not lie along blocks of 128×128"));
    }
    options.engine_dtype = "int8";
    EXPECT_NO_THROW(options.validate());
    options.mode = "delta";
    EXPECT_THROW(options.validate(), ConfigError);
}

// Neighbouring blocks of a weight differ by a factor, so that no scale can stand in for another.
float block_factor(std::int64_t row, std::int64_t column) {
    return std::ldexp(1.0f, static_cast<int>((row / 128 * 3 + column / 128 * 2) % 7));
}

void scale_blocks(const TestSource& source) {
    for (const NamedTensor& named : source.tensors()) {
        const Tensor& local = named.tensor.local();
        if (local.ndim() != 2) continue;
        const std::int64_t first = named.tensor.layout().offsets[0];
        const std::int64_t columns = local.shape()[1];
        for (std::int64_t i = 0; i < local.numel(); ++i) {
            bfloat16& value = local.data<bfloat16>()[i];
            value = bfloat16(static_cast<float>(value) * block_factor(first + i / columns, i % columns));
        }
    }
}

// Every value with the scale of its block or row in the engine's own tensor, against the trainer's.
void expect_dequantized(const TestTarget& target, const std::vector<TensorInfo>& trainer, int step) {
    std::vector<TensorInfo> held;
    for (const auto& weight : target.weights()) held.push_back(weight.info);
    for (std::size_t t = 0; t < held.size(); ++t) {
        const TensorInfo& tensor = held[t];
        if (!is_quantized(tensor.dtype)) continue;
        const bool fp8 = tensor.dtype == DType::float8_e4m3fn;
        const std::int64_t columns = tensor.shape.back(), rows = tensor.shape[tensor.shape.size() - 2];
        const std::int64_t scale_columns = fp8 ? (columns + 127) / 128 : 1;
        const std::int64_t scale_rows = fp8 ? (rows + 127) / 128 : rows;
        const Span scale_memory = target.reading(index_of(held, scale_name(tensor.name, tensor.dtype)));
        const auto* scales = reinterpret_cast<const float*>(scale_memory.data);
        std::vector<engine::Part> parts = tensor.parts;
        if (parts.empty()) parts.push_back({tensor.name, {0, 0}, tensor.shape, 0, {columns, 1}});
        for (const engine::Part& part : parts) {
            const std::size_t from = index_of(trainer, part.name);
            for (std::int64_t i = 0; i < numel(part.size); i += 3) {
                const std::int64_t row = i / part.size[1], column = i % part.size[1];
                const std::int64_t at = part.offset + row * part.stride[0] + column * part.stride[1];
                const std::int64_t matrix = at / columns / rows, r = at / columns % rows, c = at % columns;
                const double scale =
                    scales[(matrix * scale_rows + (fp8 ? r / 128 : r)) * scale_columns + (fp8 ? c / 128 : 0)];
                const auto code = static_cast<std::uint8_t>(target.reading(t).data[at]);
                const double decoded = fp8 ? decode_e4m3(code) : static_cast<std::int8_t>(code);
                const std::int64_t from_row = part.start[0] + row, from_column = part.start[1] + column;
                const auto index = static_cast<std::size_t>(from_row * trainer[from].shape[1] + from_column);
                const double value =
                    trainer_value(from, index, DType::bfloat16, step) * block_factor(from_row, from_column);
                const double bound = fp8 ? std::max(std::abs(value) / 16, scale / 1024) : scale / 2;
                ASSERT_LE(std::abs(decoded * scale - value), bound + std::ldexp(std::abs(value), -22))
                    << tensor.name << " " << at;
            }
        }
    }
}

TEST(QuantizedEngine, FusedSlicedAndStackedTensorsHoldWhatTheTrainerHolds) {
    const std::vector<model::ParameterSpec> model = block_moe();
    const std::vector<TensorInfo> tensors = tensors_of(model, DType::bfloat16);
    for (const DType dtype : {DType::float8_e4m3fn, DType::int8}) {
        for (const EngineParallel& parallel : {EngineParallel{2, 1, true}, EngineParallel{1, 2, true},
                                               EngineParallel{2, 2, true}, EngineParallel{2, 1, false}}) {
            EngineLayout layout = engine_layout(model, parallel, DType::bfloat16);
            for (std::vector<TensorInfo>& held : layout) held = quantize_linear(held, model, dtype);
            const EngineRanks engine(layout);
            for (const Mode mode : {Mode::gather, Mode::direct, Mode::alias}) {
                SCOPED_TRACE(fmt::format("{} {} tp {} ep {}", dtype_name(dtype), mode_name(mode), parallel.tp,
                                         parallel.ep));
                with_engines({{2, 2}, {Shard(0), Replicate()}}, engine.pointers, tensors, DType::bfloat16,
                             options_for(mode, 64 << 10),
                             [&](comm::Communicator& world, Session& session, TestSource& source) {
                                 const int step = static_cast<int>(mode) + 1;
                                 source.set_step(step);
                                 scale_blocks(source);
                                 EXPECT_EQ(session.push(step).bytes, engine.bytes);
                                 const WeightsMatch match = session.weights_match();
                                 EXPECT_TRUE(match.match) << match.first_mismatch;
                                 if (world.rank() != 0) return;
                                 for (const TestTarget* target : engine.pointers)
                                     expect_dequantized(*target, tensors, step);
                             });
                if (HasFailure()) return;
            }
        }
    }
}

}  // namespace
}  // namespace tandem::sync
