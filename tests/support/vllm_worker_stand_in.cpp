#include "tests/support/vllm_worker_stand_in.h"

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

VllmWorkerStandIn::VllmWorkerStandIn(const std::string& model, std::string data_listen, std::string key)
    : data_listen_(std::move(data_listen)), key_(std::move(key)) {
    const auto files = model::Safetensors::open(model);
    for (const std::string& name : files.names()) {
        const Tensor tensor = files.tensor(name);
        slots_.push_back({name,
                          {tensor.shape().begin(), tensor.shape().end()},
                          static_cast<std::int32_t>(tensor.dtype()),
                          std::vector<std::byte>(tensor.bytes())});
    }
}

VllmWorkerStandIn::~VllmWorkerStandIn() {
    td_receiver_close(receiver_);
}

void VllmWorkerStandIn::init() {
    failure_.clear();
    if (receiver_ == nullptr) {
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
        const td_receiver_options options{sizeof options, "vllm", 1, data_listen_.c_str(), key_.c_str()};
        check(td_receiver_open(&options, tensors.data(), tensors.size(), &receiver_));
    }
    check(td_receiver_give_back(receiver_));
}

std::string VllmWorkerStandIn::address() const {
    if (!elsewhere_.empty()) return elsewhere_;
    if (receiver_ == nullptr) return "";
    std::array<char, 256> text{};
    check(td_receiver_address(receiver_, text.data(), text.size()));
    return text.data();
}

std::string VllmWorkerStandIn::state(const std::string* note) {
    if (note != nullptr) note_ = *note;
    std::array<char, 256> host{};
    std::int32_t port = 0;
    if (receiver_ != nullptr) check(td_receiver_data_plane(receiver_, &port, host.data(), host.size()));
    return nlohmann::json{{"protocol", protocol_}, {"rank", 0},
                          {"receiver", address()}, {"memory", "/proc/1/fd/2"},
                          {"whole", whole_},       {"version", version_},
                          {"note", note_},         {"load_ms", 0.0},
                          {"open", open_},         {"failure", failure_},
                          {"data_port", port},     {"host", host_.empty() ? host.data() : host_}}
        .dump();
}

void VllmWorkerStandIn::start() {
    open_ = true;
}

std::optional<std::map<std::string, std::string>> VllmWorkerStandIn::update(std::int64_t version) {
    failure_.clear();
    try {
        return load(version);
    } catch (const std::exception& error) {
        failure_ = error.what();
        return std::nullopt;
    }
}

std::map<std::string, std::string> VllmWorkerStandIn::load(std::int64_t version) {
    const Fails fails = std::exchange(fails_, Fails::no);
    if (fails == Fails::before_the_load) throw std::runtime_error("the worker refuses");
    check(td_receiver_take(receiver_, version));
    if (fails == Fails::in_the_load) {
        whole_ = false;
        check(td_receiver_give_back(receiver_));
        throw std::runtime_error("the worker stumbles");
    }
    std::map<std::string, std::string> model;
    for (const Slot& slot : slots_)
        model[slot.name] = {reinterpret_cast<const char*>(slot.memory.data()), slot.memory.size()};
    whole_ = true;
    version_ = version;
    return model;
}

void VllmWorkerStandIn::finish() {
    open_ = false;
    check(td_receiver_give_back(receiver_));
}

}  // namespace tandem::test
