// What the engine gives back while others need the machine's memory: its cache, and its weights where the
// next update brings them again. Addresses stay, so receivers keep writing to the same places.
#include "common/error.h"
#include "engine_adapter/embedded/embedded_engine.h"

namespace tandem::engine {

void EmbeddedEngine::release_memory(bool kv_cache, bool weights) {
    const std::lock_guard lock(mutex_);
    require(live_.empty(), "{} requests are there: memory is released of an idle engine only", live_.size());
    require(!weights || device() == Device{},
            "the weights cannot be released: they are on {}, where receivers keep writing to their addresses",
            to_string(device()));
    if (weights && released_weights_.empty()) {
        require(state_ != WeightState::updating,
                "the weights cannot be released: version {} is being written", next_version_);
        const auto current = weights_.current();
        for (std::size_t i = 0; i < current.size(); ++i) {
            require(current[i].memory.data == weights_.slots()[i].memory.data,
                    "the weights cannot be released: the engine reads them in memory that is not its own");
        }
        Released released;
        for (const WeightSlot& slot : weights_.slots())
            released.push_back(std::make_unique<ReleasedPages>(slot.memory, "engine.weights"));
        released_weights_ = std::move(released);
        decoder_.release_packed();
        state_ = WeightState::none;
        reason_ = "the weights' memory was released: resume it and publish a version";
    }
    if (kv_cache && !cache_released_) {
        Released released;
        if (device() != Device{}) cache_.release();  // nobody else knows its addresses
        for (std::int64_t layer = 0; device() == Device{} && layer < config_.num_hidden_layers; ++layer) {
            for (const Tensor& cache :
                 {cache_.k(static_cast<std::size_t>(layer)), cache_.v(static_cast<std::size_t>(layer))})
                released.push_back(std::make_unique<ReleasedPages>(cache.span(), "engine.kv"));
        }
        released_cache_ = std::move(released);
        cache_released_ = true;
    }
    trim_cpu_pool();
}

void EmbeddedEngine::resume_memory(bool kv_cache, bool weights) {
    const std::lock_guard lock(mutex_);
    if (kv_cache && cache_released_) {
        released_cache_.clear();
        if (device() != Device{}) cache_.resume();
        cache_released_ = false;
    }
    if (weights && !released_weights_.empty()) {
        released_weights_.clear();
        reason_ = "the weights' memory is back and holds no version yet: publish one";
    }
    changed_.notify_all();
}

}  // namespace tandem::engine
