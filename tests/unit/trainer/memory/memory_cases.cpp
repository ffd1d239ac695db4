#include "tests/unit/trainer/memory/memory_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/device/memory.h"
#include "trainer/memory/predict.h"

namespace tandem::trainer::testing {
namespace {

using Mode = PolicyOptions::ContextMode;
constexpr int kLength = 64;  // of a sequence

model::ModelConfig family(int index) {
    auto config = tiny_config();
    config.vocab_size = 500;
    config.hidden_size = 64;
    config.intermediate_size = 160;
    config.head_dim = 16;
    config.num_hidden_layers = 5;
    if (index == 1) {
        config.tie_word_embeddings = false;
        config.qk_norm = false;
    }
    if (index == 2) {  // groups large enough for a thread of their own
        config.hidden_size = 256;
        config.intermediate_size = 700;
        config.num_hidden_layers = 3;
    }
    return config;
}

PolicyOptions options_of(const MemoryCase& c) {
    PolicyOptions options;
    options.compute_dtype = c.dtype;
    options.checkpointing = c.checkpointing;
    options.context = c.context;
    options.max_tokens_per_rank = c.rows;
    options.reduce_every_micro_batch = c.reduce_every;
    options.reshard_after_forward = c.reshard;
    options.logits_chunk_rows = 64;
    options.offload = {c.offload_optimizer, c.offload_parameters, ::testing::TempDir()};
    if (c.gpu) options.device = {DeviceType::cuda, 0};
    options.deepest_sleep = c.sleep;
    return options;
}

memory::Prediction predicted_of(const MemoryCase& c) {
    memory::Workload work;
    work.micro_batches = c.micro_batches;
    work.train = {{c.rows, c.rows - c.rows / kLength, c.mesh.cp, c.context == Mode::zigzag}};
    work.scores = work.train;
    const int ranks = c.mesh.dp * c.mesh.cp;
    work.score_tokens = c.rows * ranks * c.micro_batches;
    const int replicas = std::max(1, c.mesh.dp_replicate);
    PolicyOptions options = options_of(c);
    if (replicas > 1) options.shard_axes = {"dp_shard", "cp"};
    return memory::predict(family(c.model), options, {ranks / replicas, replicas, c.mesh.cp}, work);
}

std::map<std::string, MemoryPeak> measured_of(std::shared_ptr<comm::Communicator> world,
                                              const MemoryCase& c) {
    const auto config = family(c.model);
    const int ranks = world->size();
    std::vector<Sample> samples = random_samples(
        std::vector<int>(static_cast<std::size_t>(c.rows * ranks * c.micro_batches / kLength), kLength),
        config.vocab_size, 3);
    for (Sample& sample : samples) sample.target_mask.assign(sample.tokens.size(), 1);
    PolicyOptions options = options_of(c);
    if (c.mesh.dp_replicate > 1) options.shard_axes = {"dp_shard", "cp"};
    Policy policy(make_mesh(std::move(world), c.mesh), config, options);
    reset_memory_peaks();
    for (int step = 0; step < 2; ++step) {
        policy.logprobs(samples);
        policy.accumulate(samples, supervised_loss());
        policy.apply(1e-3);
        policy.sleep(c.sleep);
    }
    return memory_phase_peaks();
}

std::uint64_t at(const std::map<std::string, std::uint64_t>& by_tag, const std::string& tag) {
    const auto found = by_tag.find(tag);
    return found == by_tag.end() ? 0 : found->second;
}

}  // namespace

std::string describe(const MemoryCase& c) {
    return fmt::format("model {} dp {} replicas {} cp {} {} checkpointing {}{} micro-batches {}", c.model,
                       c.mesh.dp, c.mesh.dp_replicate, c.mesh.cp, dtype_name(c.dtype),
                       static_cast<int>(c.checkpointing), c.context == Mode::zigzag ? " zigzag" : "",
                       c.micro_batches) +
           (c.gpu ? fmt::format(" on a GPU, offload {}{} sleep {}", c.offload_optimizer, c.offload_parameters,
                                static_cast<int>(c.sleep))
                  : "");
}

std::string check_memory(std::shared_ptr<comm::Communicator> world, const MemoryCase& c) {
    const auto measured = measured_of(std::move(world), c);
    const auto predicted = predicted_of(c);
    std::string wrong;
    for (const auto& [phase, expected] : predicted.phases) {
        const MemoryPeak& found = measured.at(phase);
        // The communicator's own few kilobytes would count in models as small as these.
        std::uint64_t sum = 0;
        for (const auto& [tag, bytes] : found.by_tag) {
            if (!tag.starts_with("comm")) sum += bytes;
        }
        const auto off = [](double a, double b, double share) { return std::abs(a - b) > share * b + 512; };
        if (off(static_cast<double>(sum), static_cast<double>(expected.bytes), 0.1))
            wrong += fmt::format("{}: {} bytes, predicted {}\n", phase, sum, expected.bytes);
        for (const auto& [tag, bytes] : expected.by_tag) {
            const std::uint64_t there = at(found.by_tag, tag);
            if (off(static_cast<double>(there), static_cast<double>(bytes), 0.02))
                wrong += fmt::format("{}, {}: {} bytes, predicted {}\n", phase, tag, there, bytes);
        }
    }
    return wrong;
}

std::vector<MemoryCase> one_rank_cases() {
    std::vector<MemoryCase> cases;
    for (const Checkpointing mode : {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            for (int model = 0; model < 3; ++model) cases.push_back({model, {1, 1}, dtype, mode});
        }
    }
    cases.push_back({0, {1, 1}, DType::float32, Checkpointing::none, Mode::packed, 128, 3});
    for (int model = 0; model < 3; ++model) {
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            MemoryCase c{model, {1, 1}, dtype, Checkpointing::full};
            c.offload_optimizer = true;
            cases.push_back(c);
            c.offload_parameters = true;
            cases.push_back(c);
        }
    }
    return cases;
}

std::vector<MemoryCase> process_cases() {
    std::vector<MemoryCase> cases;
    for (const Checkpointing mode : {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
        cases.push_back({2, {2, 1}, DType::float32, mode});
        cases.push_back({1, {2, 1}, DType::bfloat16, mode});
        cases.push_back({0, {1, 2}, DType::float32, mode, Mode::packed});
        cases.push_back({1, {1, 2}, DType::bfloat16, mode, Mode::zigzag});
    }
    cases.push_back({2, {2, 1}, DType::bfloat16, Checkpointing::none, Mode::packed, 128, 3, false});
    cases.push_back({2, {2, 1}, DType::bfloat16, Checkpointing::full, Mode::packed, 128, 1, true, false});
    cases.push_back({0, {4, 1}, DType::bfloat16, Checkpointing::full, Mode::packed, 128, 1, true, 2});
    cases.push_back({0, {4, 1, 2}, DType::float32, Checkpointing::full});
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        MemoryCase c{2, {2, 1}, dtype, Checkpointing::selective};
        c.offload_parameters = true;
        cases.push_back(c);
        c.offload_optimizer = true;
        cases.push_back(c);
    }
    return cases;
}

std::vector<MemoryCase> gpu_cases() {
    using Sleep = PolicyOptions::Sleep;
    std::vector<MemoryCase> cases;
    const auto add = [&](MemoryCase c) {
        c.gpu = true;
        cases.push_back(c);
    };
    for (const MeshSizes mesh : {MeshSizes{1, 1}, MeshSizes{2, 1}}) {
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            MemoryCase c{2, mesh, dtype, Checkpointing::selective};
            add(c);
            c.offload_optimizer = true;
            add(c);
            c.offload_parameters = true;
            add(c);
            c.sleep = Sleep::optimizer;
            add(c);
            MemoryCase sleeper{0, mesh, dtype, Checkpointing::none};
            sleeper.sleep = Sleep::all;
            add(sleeper);
        }
    }
    add({0, {1, 2}, DType::float32, Checkpointing::full, Mode::zigzag});
    MemoryCase replicas{0, {4, 1, 2}, DType::bfloat16, Checkpointing::none, Mode::packed, 128, 3, false};
    add(replicas);
    return cases;
}

}  // namespace tandem::trainer::testing
