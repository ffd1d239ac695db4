// The receivers of the C ABI: versions staged in the caller's memory, for whoever loads them from there.
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "common/error.h"
#include "engine_adapter/receiver/receiver.h"
#include "engine_adapter/transport/tcp/dial.h"
#include "sync/capi/errors.h"
#include "sync/capi/tandem_sync.h"
#include "sync/capi/tensors.h"

namespace {

using namespace tandem;
using engine::WeightSlot;
using sync::capi::guarded;

// Memory that nothing is generated from: what is half written harms nobody, and a pause is the server's affair.
class StagingTarget final : public engine::WeightTarget {
  public:
    explicit StagingTarget(std::vector<WeightSlot> weights) : weights_(std::move(weights)) {}

    const std::vector<WeightSlot>& weights() const override { return weights_; }
    std::int64_t version() const override {
        const std::lock_guard lock(mutex_);
        return staged_;
    }
    void begin_update(std::int64_t version) override {
        const std::lock_guard lock(mutex_);
        if (taken_) {
            throw ProtocolError(
                fmt::format("version {} is refused: version {} is being loaded from where it would be staged",
                            version, staged_));
        }
        open_ = true;
    }
    void commit_update(std::int64_t version) override {
        const std::lock_guard lock(mutex_);
        open_ = false;
        staged_ = version;
    }
    void abort_update(const std::string&, bool dirty) override {
        const std::lock_guard lock(mutex_);
        open_ = false;
        if (dirty) staged_ = 0;
    }

    // Why it cannot be taken; empty: it is now.
    std::string take(std::int64_t version) {
        const std::lock_guard lock(mutex_);
        if (taken_) return fmt::format("version {} is taken already", staged_);
        if (open_) return fmt::format("version {} cannot be taken: another is on its way", version);
        if (version < 1 || staged_ != version)
            return fmt::format("version {} is not staged: {}", version,
                               staged_ == 0 ? "no whole one is" : fmt::format("{} is", staged_));
        taken_ = true;
        return "";
    }
    void give_back() {
        const std::lock_guard lock(mutex_);
        taken_ = false;
    }

  private:
    const std::vector<WeightSlot> weights_;
    mutable std::mutex mutex_;
    std::int64_t staged_ = 0;  // whole; 0: none
    bool open_ = false;
    bool taken_ = false;
};

std::vector<WeightSlot> slots_of(const td_tensor* tensors, std::size_t count) {
    enforce(tensors != nullptr && count > 0, "a receiver without tensors");
    std::vector<WeightSlot> slots;
    std::set<std::string> names;
    const auto* at = reinterpret_cast<const std::byte*>(tensors);
    for (std::size_t i = 0; i < count; ++i) {
        const auto* given = reinterpret_cast<const td_tensor*>(at);
        const td_tensor tensor = sync::capi::read_struct(given, "td_tensor");
        engine::TensorInfo info = sync::capi::info_of(tensor);
        enforce(names.insert(info.name).second, "tensor '{}' is there twice", info.name);
        enforce(tensor.device_type == TD_CPU, "tensor '{}' is not in memory of the CPU", info.name);
        enforce(tensor.mesh == nullptr, "tensor '{}' has a mesh: versions are received whole", info.name);
        const Span memory{static_cast<std::byte*>(tensor.data), engine::tensor_bytes(info)};
        enforce(tensor.data != nullptr || memory.bytes == 0, "tensor '{}': data is NULL", info.name);
        slots.push_back({std::move(info), memory});
        at += given->size;
    }
    return slots;
}

engine::ReceiverOptions receiver_options(const td_receiver_options* given) {
    const td_receiver_options options = sync::capi::read_struct(given, "td_receiver_options");
    enforce(options.engine != nullptr && *options.engine != '\0', "td_receiver_options.engine is NULL");
    enforce(options.threads >= 0 && options.threads <= 1024, "{} threads", options.threads);
    engine::ReceiverOptions receiver;
    receiver.engine = options.engine;
    receiver.copy_threads = options.threads;
    const auto text = [](const char* given_text) { return std::string(given_text ? given_text : ""); };
    if (const std::string listen = text(options.data_listen); !listen.empty()) {
        const engine::TcpAddress at = engine::parse_tcp_address(listen);
        receiver.data_plane = engine::TcpListen{at.host, at.port, text(options.key)};
        enforce(
            !receiver.data_plane->key.empty(),
            "td_receiver_options.data_listen is {}, without a key: anybody who reaches it could push weights",
            listen);
    }
    return receiver;
}

}  // namespace

struct td_receiver {
    td_receiver(const td_receiver_options* options, const td_tensor* tensors, std::size_t count)
        : target(slots_of(tensors, count)), receiver(target, receiver_options(options)) {}
    StagingTarget target;
    engine::Receiver receiver;
};

namespace {

td_receiver& usable(td_receiver* receiver) {
    enforce(receiver != nullptr, "receiver is NULL");
    return *receiver;
}

void put_text(const std::string& text, const char* what, char* to, std::size_t capacity) {
    enforce(to != nullptr && capacity > text.size(), "{} takes {} bytes", what, text.size() + 1);
    std::memcpy(to, text.c_str(), text.size() + 1);
}

}  // namespace

int td_receiver_open(const td_receiver_options* options, const td_tensor* tensors, size_t count,
                     td_receiver** out) {
    return guarded([&] {
        enforce(out != nullptr, "out is NULL");
        *out = nullptr;
        *out = std::make_unique<td_receiver>(options, tensors, count).release();
    });
}

int td_receiver_address(td_receiver* receiver, char* address, size_t capacity) {
    return guarded([&] { put_text(usable(receiver).receiver.address(), "the address", address, capacity); });
}

int td_host(char* host, size_t capacity) {
    return guarded([&] { put_text(engine::tcp::host_fingerprint(), "the host's name", host, capacity); });
}

int td_receiver_data_plane(td_receiver* receiver, int32_t* port, char* host, size_t capacity) {
    return guarded([&] {
        enforce(port != nullptr, "port is NULL");
        *port = usable(receiver).receiver.data_port();
        put_text(engine::tcp::host_fingerprint(), "the host's name", host, capacity);
    });
}

int td_receiver_staged(td_receiver* receiver, int64_t* version) {
    return guarded([&] {
        enforce(version != nullptr, "version is NULL");
        *version = usable(receiver).target.version();
    });
}

int td_receiver_take(td_receiver* receiver, int64_t version) {
    std::string refused;
    const int status = guarded([&] { refused = usable(receiver).target.take(version); });
    return refused.empty() ? status : sync::capi::remember({TD_CONFLICT, -1, -1, "take", "", refused});
}

int td_receiver_give_back(td_receiver* receiver) {
    return guarded([&] { usable(receiver).target.give_back(); });
}

int td_receiver_close(td_receiver* receiver) {
    return guarded([&] { delete receiver; });
}
