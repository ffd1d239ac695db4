#include "tests/support/staging_stand_in.h"

#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "common/model/safetensors.h"

namespace tandem::test {
namespace {

void check(int status) {
    if (status != TD_OK) throw std::runtime_error(td_last_error());
}

}  // namespace

StagingStandIn::StagingStandIn(const std::string& model, std::string engine, std::string data_listen,
                               std::string key)
    : engine_(std::move(engine)), data_listen_(std::move(data_listen)), key_(std::move(key)) {
    const auto files = model::Safetensors::open(model);
    for (const std::string& name : files.names()) {
        const Tensor tensor = files.tensor(name);
        slots_.push_back({name,
                          {tensor.shape().begin(), tensor.shape().end()},
                          static_cast<std::int32_t>(tensor.dtype()),
                          std::vector<std::byte>(tensor.bytes())});
    }
}

StagingStandIn::~StagingStandIn() {
    td_receiver_close(receiver_);
}

void StagingStandIn::open() {
    if (receiver_ != nullptr) return;
    std::vector<td_tensor> tensors;
    for (Slot& slot : slots_) {
        td_tensor tensor{};
        tensor.size = sizeof tensor;
        tensor.name = slot.name.c_str();
        tensor.data = slot.memory.data();
        tensor.dtype = slot.dtype;
        tensor.device_type = TD_CPU;
        tensor.ndim = static_cast<std::int32_t>(slot.shape.size());
        tensor.global_shape = slot.shape.data();
        tensors.push_back(tensor);
    }
    const td_receiver_options options{sizeof options, engine_.c_str(), 1, data_listen_.c_str(), key_.c_str()};
    check(td_receiver_open(&options, tensors.data(), tensors.size(), &receiver_));
}

void StagingStandIn::take(std::int64_t version) {
    check(td_receiver_take(receiver_, version));
}

void StagingStandIn::give_back() {
    check(td_receiver_give_back(receiver_));
}

std::map<std::string, std::string> StagingStandIn::content() const {
    std::map<std::string, std::string> content;
    for (const Slot& slot : slots_)
        content[slot.name] = {reinterpret_cast<const char*>(slot.memory.data()), slot.memory.size()};
    return content;
}

std::string StagingStandIn::address() const {
    if (!elsewhere_.empty()) return elsewhere_;
    if (receiver_ == nullptr) return "";
    std::array<char, 256> text{};
    check(td_receiver_address(receiver_, text.data(), text.size()));
    return text.data();
}

nlohmann::json StagingStandIn::whereabouts() const {
    std::array<char, 256> host{};
    std::int32_t port = 0;
    if (receiver_ != nullptr) check(td_receiver_data_plane(receiver_, &port, host.data(), host.size()));
    return {{"receiver", address()}, {"data_port", port}, {"host", host_.empty() ? host.data() : host_}};
}

}  // namespace tandem::test
