// What the engine gives back while others need the machine's memory: its cache, and its weights where the
// next update brings them again. Addresses stay, so receivers keep writing to the same places.
#include "common/error.h"
#include "engine_adapter/embedded/embedded_engine.h"

namespace tandem::engine {

void EmbeddedEngine::release_memory(bool kv_cache, bool weights) {
    const std::lock_guard lock(mutex_);
    enforce(live_.empty(), "{} requests are there: memory is released of an idle engine only", live_.size());
    decoder_.release_graphs();
    if (weights && !weights_.released()) {
        enforce(state_ != WeightState::updating,
                "the weights cannot be released: version {} is being written", next_version_);
        weights_.release();
        decoder_.release_packed();
        state_ = WeightState::none;
        reason_ = "the weights' memory was released: resume it and publish a version";
    }
    if (kv_cache) cache_.release();
    trim_cpu_pool();
    if (device() != Device{}) trim_device_pool(device());
}

void EmbeddedEngine::resume_memory(bool kv_cache, bool weights) {
    const std::lock_guard lock(mutex_);
    if (kv_cache) cache_.resume();
    if (weights && weights_.released()) {
        weights_.restore();
        reason_ = "the weights' memory is back and holds no version yet: publish one";
    }
    changed_.notify_all();
}

}  // namespace tandem::engine
