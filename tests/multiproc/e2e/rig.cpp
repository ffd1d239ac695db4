#include "tests/multiproc/e2e/rig.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "common/error.h"
#include "common/http/client.h"
#include "common/ops/cross_entropy.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::e2e {

WeightSets::Set::Set(const model::ModelConfig& config)
    : weights(config, DType::float32, stream),
      cache(config, DType::float32, 96, 16),
      decoder(config, weights, cache, stream) {
    for (const engine::WeightSlot& slot : weights.slots())
        tensors.push_back(Tensor::borrow(slot.memory, slot.info.shape, slot.info.dtype));
}

WeightSets::WeightSets(const model::ModelConfig& config, std::size_t count) : config_(config) {
    for (std::size_t i = 0; i < count; ++i)
        engine::fill_weights(sets_.emplace_back(config_).weights.slots(), 100 + i);
}

double WeightSets::misfit(const Sample& sample, std::size_t set) {
    Set& known = sets_[set];
    Stream stream = Stream::make_inline();
    engine::PrefillSequence sequence{sample.prompt, {0, 1, 2, 3, 4, 5}};  // the whole cache
    auto length = static_cast<std::int32_t>(sample.prompt.size());
    Tensor logits = known.decoder.prefill({sequence});
    double largest = 0;
    for (std::size_t i = 0; i < sample.output.size(); ++i) {
        if (i > 0) logits = known.decoder.decode({{sample.output[i - 1]}, {++length}, {sequence.pages}});
        std::vector<float> logprob(1), lse(1);
        ops::token_logprobs(stream, logits, std::vector<std::int32_t>{sample.output[i]},
                            static_cast<float>(sample.temperature), logprob, lse);
        largest = std::max(largest, std::abs(static_cast<double>(logprob[0]) - sample.logprobs[i]));
    }
    return largest;
}

ShardedSet::ShardedSet(const WeightSets& sets, DeviceMesh mesh) : sets_(sets), mesh_(std::move(mesh)) {
    for (std::size_t t = 0; t < sets.tensors(0).size(); ++t) {
        const Tensor& whole = sets.tensors(0)[t];
        const Shape local = DTensor::distribute(whole, mesh_, {Shard(0)}).local().shape();
        homes_.push_back(Tensor::empty(local, whole.dtype(), "test shard", mesh_.memory()));
        tensors_.push_back(
            {sets.slots()[t].info.name, DTensor::from_local(homes_[t], mesh_, {Shard(0)}, whole.shape())});
    }
    hold(0);
}

void ShardedSet::move(std::size_t t, const Tensor& memory) {
    tensors_[t].tensor = DTensor::from_local(memory, mesh_, {Shard(0)}, tensors_[t].tensor.shape());
}

void ShardedSet::move_to_writable(sync::Session& session) {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const Tensor place = session.writable(t);
        move(t, place.defined() ? place : homes_[t]);
    }
}

void ShardedSet::move_home() {
    for (std::size_t t = 0; t < tensors_.size(); ++t) move(t, homes_[t]);
}

void ShardedSet::hold(std::size_t set) {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const Tensor mine = DTensor::distribute(sets_.tensors(set)[t], mesh_, {Shard(0)}).local();
        std::memcpy(tensors_[t].tensor.local().raw(), mine.raw(), mine.bytes());
    }
}

namespace {

Sample ask(http::Client& client, std::uint64_t number) {
    std::mt19937_64 random(number);
    Sample sample;
    sample.prompt.resize(1 + random() % 20);
    for (std::int32_t& token : sample.prompt) token = static_cast<std::int32_t>(random() % 40);
    sample.temperature = number % 3 == 0 ? 0.7 : 1.0;
    const nlohmann::json answer = client.post_json(
        "/generate",
        {{"input_ids", sample.prompt},
         {"sampling_params",
          {{"max_new_tokens", 1 + random() % 60}, {"seed", number}, {"temperature", sample.temperature}}},
         {"return_logprob", true}},
        Deadline::after_ms(20'000));
    sample.output = answer.at("output_ids").get<std::vector<std::int32_t>>();
    for (const auto& item : answer.at("meta_info").at("output_token_logprobs"))
        sample.logprobs.push_back(item.at(0).get<double>());
    sample.version = std::stoll(answer.at("meta_info").at("weight_version").get<std::string>());
    return sample;
}

}  // namespace

Sample ask(const std::string& url, std::uint64_t number) {
    http::Client client(url);
    return ask(client, number);
}

Hammer::Hammer(const std::string& url, int clients) {
    for (int i = 0; i < clients; ++i)
        clients_.emplace_back([this, url, i] { run(url, static_cast<std::uint64_t>(i)); });
}

Hammer::~Hammer() {
    stop();
}

void Hammer::run(const std::string& url, std::uint64_t client) {
    http::Client connection(url);
    for (std::uint64_t i = 0; !stopping_; ++i) {
        try {
            Sample sample = ask(connection, client * 1'000'000 + i);
            const std::lock_guard lock(mutex_);
            samples_.push_back(std::move(sample));
        } catch (const std::exception& error) {
            const std::lock_guard lock(mutex_);
            refusals_.emplace_back(error.what());
            return;
        }
    }
}

bool Hammer::wait_for(std::int64_t version, int count) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::size_t seen = 0;
    int found = 0;
    while (std::chrono::steady_clock::now() < limit) {
        {
            const std::lock_guard lock(mutex_);
            for (; seen < samples_.size(); ++seen) found += samples_[seen].version == version ? 1 : 0;
            if (found >= count) return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

std::vector<Sample> Hammer::stop() {
    stopping_ = true;
    for (std::thread& client : clients_) client.join();
    clients_.clear();
    return std::move(samples_);
}

}  // namespace tandem::e2e
