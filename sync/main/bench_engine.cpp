#include "sync/main/commands.h"

#include <algorithm>
#include <atomic>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/align.h"
#include "common/device/export.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "common/host_port.h"
#include "common/http/access.h"
#include "common/log.h"
#include "common/ops/batched_copy.h"
#include "engine_adapter/receiver/receiver.h"
#include "engine_adapter/transport/tcp/dial.h"
#include "sync/bench/shapes.h"

namespace tandem::sync {
namespace {

using Padding = std::unordered_map<std::string, std::int64_t>;  // by tensor: rows

// Weights without an engine around them: what the receiver needs, nothing else.
class BareWeights final : public engine::WeightTarget {
  public:
    // `padding`: by tensor, rows of zeros behind it.
    BareWeights(const std::vector<engine::TensorInfo>& tensors, Device device, Padding padding)
        : device_(device), padding_(std::move(padding)) {
        constexpr std::size_t kAlign = 256;
        std::size_t bytes = 0;
        for (const auto& tensor : tensors) bytes += round_up(padded_bytes(tensor), kAlign);
        std::byte* at = zeros(std::max<std::size_t>(bytes, 1));
        for (const auto& tensor : tensors) {
            weights_.push_back({tensor, {at, engine::tensor_bytes(tensor)}});
            reading_.push_back({at, padded_bytes(tensor)});
            at += round_up(padded_bytes(tensor), kAlign);
        }
    }
    Device device() const override { return device_; }
    const std::vector<engine::WeightSlot>& weights() const override { return weights_; }
    std::int64_t version() const override { return version_; }
    void begin_update(std::int64_t) override {}
    void commit_update(std::int64_t version) override { version_ = version; }
    void abort_update(const std::string& reason, bool) override { log_error("update aborted: {}", reason); }
    bool can_alias() const override { return padding_.empty(); }  // a trainer has no zeros behind its rows
    void point_weights(const std::vector<Span>& memory, std::shared_ptr<const void> owner) override {
        reading_ = memory;
        owner_ = std::move(owner);
    }
    void lose_weights(const std::string&) override {
        for (std::size_t i = 0; i < weights_.size(); ++i) reading_[i] = weights_[i].memory;
        owner_.reset();
        version_ = 0;
    }

    nlohmann::json held() const {
        enforce(device_.type == DeviceType::cpu, "checksums of weights on {}: only the CPU's are read here",
                to_string(device_));
        nlohmann::json tensors = nlohmann::json::object();
        for (std::size_t i = 0; i < weights_.size(); ++i)
            tensors[weights_[i].info.name] = ops::to_hex(ops::checksum(reading_[i]));
        return {{"version", version_.load()}, {"tensors", std::move(tensors)}};
    }

  private:
    std::size_t padded_bytes(const engine::TensorInfo& tensor) const {
        const auto rows = padding_.find(tensor.name);
        if (rows == padding_.end()) return engine::tensor_bytes(tensor);
        engine::TensorInfo all = tensor;
        all.shape[0] += rows->second;
        return engine::tensor_bytes(all);
    }
    // In one block, as tandem-engine's lie.
    std::byte* zeros(std::size_t bytes) {
        if (device_.type == DeviceType::cpu) {
            memory_ = Buffer(bytes, "engine weights");
            std::fill_n(memory_.data(), bytes, std::byte{0});
            return memory_.data();
        }
        arena_ = ExportArena::create(device_, bytes, "engine weights");
        Stream stream = Stream::make(device_, "engine weights");
        fill_zero(stream, arena_.span());
        stream.synchronize();
        return arena_.span().data;
    }

    const Device device_;
    const Padding padding_;
    Buffer memory_;      // of the CPU
    ExportArena arena_;  // of a GPU
    std::vector<engine::WeightSlot> weights_;
    std::vector<Span> reading_;  // with the zeros behind
    std::shared_ptr<const void> owner_;
    std::atomic<std::int64_t> version_ = 0;
};

// Rows that pad a vocabulary, as vLLM and SGLang pad it.
Padding padding_rows(const BenchOptions& options, int rank) {
    Padding padding;
    for (const model::ParameterSpec& tensor : model_tensors(options.shapes)) {
        if (options.engine_tp == 1 || tensor.cut != model::Cut::vocabulary) continue;
        const std::int64_t rows = vocabulary_rows(tensor.shape[0], options.engine_tp, rank).padding;
        if (rows > 0) padding[tensor.name] = rows;
    }
    return padding;
}

}  // namespace

int bench_engine(const BenchOptions& options, int rank) {
    BareWeights weights(options.engine_tensors(rank), options.engine_device(rank),
                        padding_rows(options, rank));
    engine::ReceiverOptions receiver_options;
    const bool tcp = options.over_tcp();
    const engine::TcpAddress listen = engine::parse_tcp_address(options.data_listen);
    if (tcp)
        receiver_options.data_plane =
            engine::TcpListen{listen.host, listen.port, http::key_from_environment()};
    const engine::Receiver receiver(weights, receiver_options);
    std::cout << (tcp ? "tcp://" + to_host_port(listen.host, receiver.data_port()) : receiver.address())
              << std::endl;
    for (std::string line; std::getline(std::cin, line);) std::cout << weights.held() << std::endl;
    return 0;
}

}  // namespace tandem::sync
