#include "sync/main/bench_engine.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <vector>

#include "common/align.h"
#include "common/device/export.h"
#include "common/device/memory.h"
#include "common/log.h"
#include "engine_adapter/receiver/receiver.h"

namespace tandem::sync {
namespace {

// Weights without an engine around them: what the receiver needs, nothing else.
class BareWeights final : public engine::WeightTarget {
  public:
    BareWeights(const std::vector<engine::TensorInfo>& tensors, Device device) : device_(device) {
        if (device.type == DeviceType::cuda) {
            put_on_gpu(tensors);
            return;
        }
        for (const auto& tensor : tensors) {
            memory_.emplace_back(engine::tensor_bytes(tensor), "engine weights");
            std::fill_n(memory_.back().data(), memory_.back().bytes(), std::byte{0});
            weights_.push_back({tensor, memory_.back().span()});
        }
    }
    Device device() const override { return device_; }
    const std::vector<engine::WeightSlot>& weights() const override { return weights_; }
    std::int64_t version() const override { return version_; }
    void begin_update(std::int64_t) override {}
    void commit_update(std::int64_t version) override { version_ = version; }
    void abort_update(const std::string& reason, bool) override { log_error("update aborted: {}", reason); }
    bool can_alias() const override { return true; }
    void point_weights(const std::vector<Span>&, std::shared_ptr<const void> owner) override {
        owner_ = std::move(owner);  // nothing computes with these weights
    }
    void lose_weights(const std::string&) override {
        owner_.reset();
        version_ = 0;
    }

  private:
    void put_on_gpu(const std::vector<engine::TensorInfo>& tensors) {
        constexpr std::size_t kAlign = 256;
        const auto aligned = [](const engine::TensorInfo& tensor) {
            return round_up(engine::tensor_bytes(tensor), kAlign);
        };
        std::size_t bytes = 0;
        for (const auto& tensor : tensors) bytes += aligned(tensor);
        arena_ = ExportArena::create(device_, std::max<std::size_t>(bytes, 1), "engine weights");
        Stream stream = Stream::make(device_, "engine weights");
        fill_zero(stream, arena_.span());
        stream.synchronize();
        std::size_t at = 0;
        for (const auto& tensor : tensors) {
            weights_.push_back({tensor, arena_.span().subspan(at, engine::tensor_bytes(tensor))});
            at += aligned(tensor);
        }
    }

    const Device device_;
    std::vector<Buffer> memory_;
    ExportArena arena_;  // of a GPU
    std::vector<engine::WeightSlot> weights_;
    std::shared_ptr<const void> owner_;
    std::int64_t version_ = 0;
};

}  // namespace

int bench_engine(const BenchOptions& options, int rank) {
    BareWeights weights(options.engine_tensors(rank), options.engine_device(rank));
    engine::ReceiverOptions receiver_options;
    receiver_options.link_bytes_per_s = options.link_gbps * 1e9;
    const engine::Receiver receiver(weights, receiver_options);
    std::cout << receiver.address() << std::endl;
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) > 0) continue;
    return 0;
}

}  // namespace tandem::sync
