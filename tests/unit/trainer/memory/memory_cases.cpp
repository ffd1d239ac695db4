#include "tests/unit/trainer/memory/memory_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "common/device/memory.h"
#include "trainer/memory/predict.h"
#include "trainer/pipeline/schedule.h"

namespace tandem::trainer::testing {
namespace {

using Mode = PolicyOptions::ContextMode;
constexpr std::uint64_t kCounters = 16;  // bytes: the optimizer's, on a GPU
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
    if (index == 3) {  // of which ranks of tp have unequal parts
        config.vocab_size = 499;
        config.intermediate_size = 161;
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
    options.sequence_parallel = c.sequence_parallel;
    options.loss_parallel = c.loss_parallel;
    options.value_head = c.value_head;
    if (c.mesh.pp > 0) options.pipeline.schedule = c.schedule;
    if (c.mesh.dp_replicate > 1) options.shard_axes = {"dp_shard", "cp"};
    return options;
}

std::vector<Sample> samples_of(const MemoryCase& c) {
    const int tokens = c.rows * c.mesh.dp * c.mesh.cp * c.micro_batches;
    std::vector<Sample> samples =
        random_samples(std::vector<int>(static_cast<std::size_t>(tokens / c.length), c.length),
                       family(c.model).vocab_size, 3);
    for (Sample& sample : samples) {
        sample.target_mask.assign(sample.tokens.size(), 1);
        sample.values = sample.returns = sample.advantages;
    }
    return samples;
}

LossOptions loss_of(const MemoryCase& c) {
    LossOptions loss = supervised_loss();
    if (c.value_head) {
        loss.ratio = LossOptions::Ratio::token;
        loss.value_coef = 0.5f;
    }
    return loss;
}

memory::Prediction predicted_of(const MemoryCase& c, const DeviceMesh& mesh) {
    const auto samples = std::make_shared<const std::vector<Sample>>(samples_of(c));
    memory::Work work;
    const memory::Work::Step step{{{{samples, {}}, {.values = c.value_head}}}, {{{samples, {}}, loss_of(c)}}};
    work.steps = {step, step};
    return memory::predict(family(c.model), options_of(c), mesh, work);
}

std::map<std::string, MemoryPeak> measured_of(const DeviceMesh& mesh, const MemoryCase& c) {
    const std::vector<Sample> samples = samples_of(c);
    Policy policy(mesh, family(c.model), options_of(c));
    reset_memory_peaks();
    for (int step = 0; step < 2; ++step) {
        policy.score(samples, {.values = c.value_head});
        policy.accumulate(samples, loss_of(c));
        policy.apply(1e-3);
        policy.sleep(c.sleep);
    }
    return memory_phase_peaks();
}

std::uint64_t at(const std::map<std::string, std::uint64_t>& by_tag, const std::string& tag) {
    const auto found = by_tag.find(tag);
    return found == by_tag.end() ? 0 : found->second;
}

std::uint64_t off(std::uint64_t a, std::uint64_t b) {
    return std::max(a, b) - std::min(a, b);
}

}  // namespace

std::string describe(const MemoryCase& c) {
    std::string text = fmt::format("model {} dp {} replicas {} cp {} {} checkpointing {}{} micro-batches {}",
                                   c.model, c.mesh.dp, c.mesh.dp_replicate, c.mesh.cp, dtype_name(c.dtype),
                                   static_cast<int>(c.checkpointing),
                                   c.context == Mode::zigzag ? " zigzag" : "", c.micro_batches);
    if (c.mesh.tp > 0) {
        text += fmt::format(" tp {} rows {}{}{}", c.mesh.tp, c.rows, c.sequence_parallel ? " cut" : "",
                            c.loss_parallel ? "" : " logits gathered");
    }
    if (c.mesh.pp > 0) text += fmt::format(" pp {} {}", c.mesh.pp, c.schedule);
    if (c.value_head) text += " value head";
    if (!c.gpu) return text;
    return text + fmt::format(" on a GPU, offload {}{} sleep {}", c.offload_optimizer, c.offload_parameters,
                              static_cast<int>(c.sleep));
}

std::string check_memory(std::shared_ptr<comm::Communicator> world, const MemoryCase& c) {
    const DeviceMesh mesh = make_mesh(std::move(world), c.mesh);
    const auto measured = measured_of(mesh, c);
    const auto predicted = predicted_of(c, mesh);
    std::string wrong;
    for (const auto& [phase, expected] : predicted.phases) {
        // The communicator's own few kilobytes would count in models as small as these.
        auto all = measured.at(phase).by_tag;
        for (const char* own : {"comm_groups", "comm_staging"}) all.erase(own);
        std::uint64_t sum = 0;
        for (const auto& [tag, bytes] : all) sum += bytes;
        if (!c.is_exact()) {
            if (off(sum, expected.bytes) > expected.bytes / 10)
                wrong += fmt::format("{}: {} bytes, predicted {}\n", phase, sum, expected.bytes);
            continue;
        }
        all.merge(std::map<std::string, std::uint64_t>(expected.by_tag));  // adds what was not there
        for (const auto& [tag, bytes] : all) {
            const std::uint64_t there = at(measured.at(phase).by_tag, tag),
                                awaited = at(expected.by_tag, tag);
            if (off(there, awaited) > kCounters)
                wrong += fmt::format("{}, {}: {} bytes, predicted {}\n", phase, tag, there, awaited);
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
            MemoryCase valued{model, {1, 1}, dtype};
            valued.value_head = true;
            cases.push_back(valued);
            MemoryCase c{model, {1, 1}, dtype, Checkpointing::full};
            c.offload_optimizer = true;
            cases.push_back(c);
            c.offload_parameters = true;
            cases.push_back(c);
        }
    }
    return cases;
}

namespace {

// Every mesh with each dtype, checkpointing and kind of hidden states; the rest takes turns.
std::vector<MemoryCase> tensor_cases() {
    std::vector<MemoryCase> cases;
    int n = 0;
    for (const MeshSizes mesh : {MeshSizes{1, 1, 0, 2}, MeshSizes{2, 1, 0, 2}, MeshSizes{1, 2, 0, 2},
                                 MeshSizes{1, 1, 0, 4}, MeshSizes{2, 1, 2, 2}}) {
        for (const Checkpointing mode :
             {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
            for (const DType dtype : {DType::float32, DType::bfloat16}) {
                for (const bool sequence_parallel : {true, false}) {
                    MemoryCase c{n / 2 % 4, mesh, dtype, mode};
                    c.sequence_parallel = sequence_parallel;
                    c.loss_parallel = (n + n / 2) % 2 == 0;
                    c.value_head = n / 3 % 2 == 0;
                    if (n / 5 % 2 == 0) {  // a number of rows that no tp divides
                        c.length = 85;
                        c.rows = 3 * c.length;
                    } else if (mesh.cp > 1) {
                        c.context = Mode::zigzag;
                    }
                    c.micro_batches = 1 + 2 * (n / 7 % 2);
                    c.reduce_every = n / 14 % 2 == 0;
                    cases.push_back(c);
                    ++n;
                }
            }
        }
    }
    return cases;
}

}  // namespace

namespace {

// Every schedule on a pipeline alone, and two of them with each other axis; the rest takes turns.
std::vector<MemoryCase> pipeline_cases() {
    std::vector<MemoryCase> cases;
    int n = 0;
    const auto add = [&](const MeshSizes& mesh, const std::string& schedule) {
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            MemoryCase c{n % 2, mesh, dtype, static_cast<Checkpointing>(n % 3)};
            c.schedule = schedule;
            c.rows = 64;
            c.length = 32;
            c.micro_batches = 2 + n % 4;
            c.reduce_every = n / 2 % 2 == 0;
            c.value_head = n / 3 % 2 == 0;
            cases.push_back(c);
            ++n;
        }
    };
    for (const std::string& schedule : pipeline::schedule_names()) add({1, 1, 0, 0, 2}, schedule);
    for (const MeshSizes mesh : {MeshSizes{2, 1, 0, 0, 2}, MeshSizes{1, 1, 0, 2, 2}, MeshSizes{1, 2, 0, 0, 2},
                                 MeshSizes{1, 1, 0, 0, 4}}) {
        add(mesh, "1F1B");
        if (mesh.pp == 2) add(mesh, "InterleavedZeroBubble");
    }
    for (const MeshSizes mesh : {MeshSizes{1, 1, 0, 0, 2}, MeshSizes{2, 1, 0, 0, 2}}) {
        MemoryCase c{2, mesh};
        c.micro_batches = 4;
        cases.push_back(c);
    }
    return cases;
}

}  // namespace

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
    for (const MemoryCase& c : tensor_cases()) cases.push_back(c);
    for (const MemoryCase& c : pipeline_cases()) cases.push_back(c);
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
    for (const bool cut : {true, false}) {
        MemoryCase c{3, {1, 1, 0, 2}, DType::bfloat16, Checkpointing::selective};
        c.sequence_parallel = c.loss_parallel = cut;
        c.value_head = true;
        add(c);
    }
    return cases;
}

}  // namespace tandem::trainer::testing
