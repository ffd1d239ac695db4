// A WeightTarget over plain memory, or a GPU's, which notes what the receiver told it. For tests of receiver,
// transport and sync.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/device/export.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "engine_adapter/receiver/weight_target.h"
#include "tests/support/device_bytes.h"

namespace tandem::engine {

class TestTarget final : public WeightTarget {
  public:
    explicit TestTarget(const std::vector<TensorInfo>& tensors, bool can_alias = true, Device device = {})
        : device_(device), can_alias_(can_alias) {
        for (const TensorInfo& tensor : tensors) {
            const std::size_t bytes = std::max<std::size_t>(tensor_bytes(tensor), 1);
            const std::vector<std::byte> start(bytes, std::byte{0xee});
            Span memory;
            if (device.type == DeviceType::cpu) {
                memory = memory_.emplace_back(bytes, "test weights").span();
            } else {
                memory = arenas_.emplace_back(ExportArena::create(device, bytes, "test weights")).span();
            }
            test::upload(device, {start.data(), bytes}, memory);
            weights_.push_back({tensor, memory.subspan(0, tensor_bytes(tensor))});
            reading_.push_back(weights_.back().memory);
        }
    }

    const std::vector<WeightSlot>& weights() const override { return weights_; }
    Device device() const override { return device_; }
    std::optional<model::Architecture> architecture() const override { return said_; }
    void say(const model::Architecture& architecture) { said_ = architecture; }  // before a trainer comes
    std::int64_t version() const override {
        const std::lock_guard lock(mutex_);
        return version_;
    }
    void pause(Deadline) override {
        const std::lock_guard lock(mutex_);
        held_ = true;
    }
    void resume() override {
        const std::lock_guard lock(mutex_);
        held_ = false;
    }
    double packed_ms() const override { return packed_ms_; }
    void say_packed(double ms) { packed_ms_ = ms; }  // between pushes
    void withhold(const std::string& reason) override {
        const std::lock_guard lock(mutex_);
        require(!updating_, "weights withheld while an update is open");
        refusing_ = true;
        version_ = 0;
        reason_ = reason;
    }
    void begin_update(std::int64_t version) override {
        const std::lock_guard lock(mutex_);
        enforce(paused_, "begin of version {} while generating", version);
        updating_ = true;
    }
    void commit_update(std::int64_t version) override {
        const std::lock_guard lock(mutex_);
        updating_ = refusing_ = false;
        version_ = version;
        ++commits_;
    }
    void abort_update(const std::string& reason, bool dirty) override {
        const std::lock_guard lock(mutex_);
        updating_ = false;
        refusing_ = refusing_ || dirty;
        reason_ = reason;
        ++aborts_;
    }
    bool can_alias() const override { return can_alias_; }
    void point_weights(const std::vector<Span>& memory, std::shared_ptr<const void> owner) override {
        const std::lock_guard lock(mutex_);
        require(updating_, "weights moved without an open update");
        reading_ = memory;
        owner_ = std::move(owner);
    }

    void lose_weights(const std::string& reason) override {
        const std::lock_guard lock(mutex_);
        require(!updating_, "weights lost while an update is open");
        refusing_ = true;
        version_ = 0;
        reason_ = reason;
        for (std::size_t i = 0; i < reading_.size(); ++i) reading_[i] = weights_[i].memory;
        owner_.reset();
    }

    void set_paused(bool paused) {
        const std::lock_guard lock(mutex_);
        paused_ = paused;
    }
    bool held() const {  // by a trainer
        const std::lock_guard lock(mutex_);
        return held_;
    }
    // May anything be generated?
    bool serves() const { return !held() && !refusing(); }
    bool refusing() const {
        const std::lock_guard lock(mutex_);
        return refusing_ || updating_;
    }
    std::string reason() const {
        const std::lock_guard lock(mutex_);
        return reason_;
    }
    int aborts() const {
        const std::lock_guard lock(mutex_);
        return aborts_;
    }
    int commits() const {
        const std::lock_guard lock(mutex_);
        return commits_;
    }
    // Where tensor `index` is read now: its own memory, or a trainer's after adopt.
    Span reading(std::size_t index) const {
        const std::lock_guard lock(mutex_);
        return reading_[index];
    }
    // The bytes that it reads there.
    std::vector<std::byte> read(std::size_t index) const { return test::download(device_, reading(index)); }

  private:
    mutable std::mutex mutex_;
    const Device device_;
    std::vector<Buffer> memory_;
    std::vector<ExportArena> arenas_;  // of a GPU
    std::vector<WeightSlot> weights_;
    std::vector<Span> reading_;
    std::shared_ptr<const void> owner_;
    std::atomic<double> packed_ms_ = 0;
    const bool can_alias_;
    std::optional<model::Architecture> said_;
    std::int64_t version_ = 0;
    bool paused_ = true;
    bool held_ = false;
    bool updating_ = false;
    bool refusing_ = false;
    std::string reason_;
    int aborts_ = 0;
    int commits_ = 0;
};

}  // namespace tandem::engine
