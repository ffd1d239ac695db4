// What trainer and engine make of a Hugging Face directory, for scripts that know what it should be
// (tests/golden/compare_transformers.py, check_greedy.py).
//   model_probe --model DIR --request DIR --out FILE [--dtype float32|bfloat16] [--train]
// The request is a directory with one model.safetensors: tokens.N [length] int32 for N = 0, 1, …; mask.N with
// --train; candidates.N [length, K] int32, or the whole vocabulary where there are none. Written: trainer.N
// [length, K] log-probs, engine.N [length, vocab] logits, config.json's text as we write it (config); with
// --train loss, grad.NAME and trained.NAME.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <string>

#include "common/error.h"
#include "common/model/safetensors.h"
#include "common/ops/matmul.h"
#include "tests/support/model_forward.h"

namespace tandem {
namespace {

using testing::Tokens;

struct Options {
    std::string model, request, out;
    std::string dtype = "float32";
    bool train = false;
    int threads = 1;
};

Tensor as_tensor(const std::vector<std::vector<float>>& rows) {
    const Shape shape{static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows.at(0).size())};
    Tensor result = Tensor::empty(shape, DType::float32, "test");
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const Tensor row = result.rows(static_cast<std::int64_t>(i), 1);
        std::memcpy(row.raw(), rows[i].data(), row.bytes());
    }
    return result;
}

std::vector<Tokens> rows_of(const Tensor& candidates) {
    std::vector<Tokens> rows;
    for (std::int64_t i = 0; i < candidates.dim(0); ++i)
        rows.push_back(candidates.rows(i, 1).to_vector<std::int32_t>());
    return rows;
}

void probe(const Options& options) {
    const DType dtype = dtype_from_name(options.dtype);
    const model::ModelConfig config = model::read_model_config(options.model);
    const auto request = model::Safetensors::open(options.request);
    std::vector<std::pair<std::string, Tensor>> results;
    std::vector<Tokens> tokens, masks;
    for (int i = 0; request.contains("tokens." + std::to_string(i)); ++i) {
        const std::string index = std::to_string(i);
        tokens.push_back(request.tensor("tokens." + index).to_vector<std::int32_t>());
        if (options.train) masks.push_back(request.tensor("mask." + index).to_vector<std::int32_t>());
        const auto candidates = request.contains("candidates." + index)
                                    ? rows_of(request.tensor("candidates." + index))
                                    : testing::whole_vocabulary(config, tokens.back().size());
        results.emplace_back("trainer." + index, as_tensor(testing::trainer_logprobs(
                                                     options.model, dtype, tokens.back(), candidates)));
        results.emplace_back("engine." + index, testing::engine_logits(options.model, dtype, tokens.back()));
    }
    const std::string json = model::to_json(config);
    const Tensor text = Tensor::empty({static_cast<std::int64_t>(json.size())}, DType::uint8, "test");
    std::memcpy(text.raw(), json.data(), json.size());
    results.emplace_back("config", text);
    if (options.train) {
        const testing::Trained trained = testing::train(options.model, dtype, tokens, masks);
        const Tensor loss = Tensor::empty({1}, DType::float32, "test");
        loss.data<float>()[0] = static_cast<float>(trained.loss);
        results.emplace_back("loss", loss);
        for (const auto& [name, tensor] : trained.gradients) results.emplace_back("grad." + name, tensor);
        for (const auto& [name, tensor] : trained.parameters) results.emplace_back("trained." + name, tensor);
    }
    model::write_safetensors(options.out, results);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
    tandem::Options options;
    CLI::App app{
        "Numbers of trainer and engine for a model directory. "
        "Example: model_probe --model DIR --request TOKENS --out numbers.safetensors"};
    app.add_option("--model", options.model, "Hugging Face directory")->required();
    app.add_option("--request", options.request, "directory with the tokens")->required();
    app.add_option("--out", options.out, "safetensors file")->required();
    app.add_option("--dtype", options.dtype)->check(CLI::IsMember({"float32", "bfloat16"}));
    app.add_flag("--train", options.train, "gradients and ten AdamW steps too");
    app.add_option("--threads", options.threads)->check(CLI::Range(1, 256));
    CLI11_PARSE(app, argc, argv);
    try {
        tandem::ops::set_compute_threads(options.threads);
        tandem::probe(options);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "model_probe: %s\n", error.what());
        return 1;
    }
}
