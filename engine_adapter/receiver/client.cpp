#include "engine_adapter/receiver/client.h"

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/http/client.h"
#include "engine_adapter/channel/messages.h"
#include "engine_adapter/transport/cuda_ipc/transport.h"
#include "engine_adapter/transport/nccl/transport.h"
#include "engine_adapter/transport/shm/transport.h"

namespace tandem::engine {
namespace {

class HttpControl final : public GenerationControl {
  public:
    explicit HttpControl(const std::string& url) : client_(url) {}
    // retract: running requests go back to the queue and restart on the new weights.
    void pause(Deadline deadline) override {
        client_.post_json("/pause_generation", {{"mode", "retract"}}, deadline);
    }
    void resume(Deadline deadline) override {
        client_.post_json("/continue_generation", nlohmann::json::object(), deadline);
    }
    nlohmann::json model_info(Deadline deadline) { return client_.get_json("/model_info", deadline); }

  private:
    http::Client client_;
};

class ReceiverClient final : public Engine {
  public:
    ReceiverClient(Channel channel, std::unique_ptr<GenerationControl> control, Deadline deadline)
        : connection_(std::make_shared<Connection>(std::move(channel))), control_(std::move(control)) {
        capabilities_ = messages::capabilities_from_json(
            request({{"op", "hello"}, {"protocol", messages::kProtocol}}, "hello", deadline).header);
        transport_ = make_transport(device_);
    }

    const std::shared_ptr<Connection>& connection() const { return connection_; }
    // From now on buckets go through this group, as its engine rank `engine`.
    void join(const std::shared_ptr<NcclGroup>& group, int engine) {
        transport_ = std::make_unique<NcclTransport>(connection_, group, engine);
        over_nccl_ = true;
        capabilities_.alias = false;
    }

    const Capabilities& capabilities() const override { return capabilities_; }
    std::string peer() const override { return connection_->peer(); }

    void pause(Deadline deadline) override {
        if (control_) control_->pause(deadline);
    }
    void resume(Deadline deadline) override {
        if (control_) control_->resume(deadline);
    }

    void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override {
        const Device from = regions.empty() ? Device{} : regions.front().device;
        if (over_nccl_ || from.type == device_.type) return transport_->stage(regions, plan, deadline);
        auto transport = make_transport(from);
        transport->stage(regions, plan, deadline);
        transport_ = std::move(transport);
        device_ = from;
    }
    void release(Deadline deadline) override { request({{"op", "release"}}, "release", deadline); }
    double probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes,
                 Deadline deadline) override {
        const nlohmann::json header = {
            {"op", "probe"}, {"offset", offset}, {"bytes", bytes}, {"piece_bytes", piece_bytes}};
        return messages::number_field(request(header, "probe", deadline).header, "ms");
    }
    Held held(Deadline deadline) override {
        const nlohmann::json reply = request({{"op", "held"}}, "held", deadline).header;
        return {messages::integer_field(reply, "version", 0),
                ops::checksum_from_hex(messages::string_field(reply, "manifest"))};
    }

    void begin(std::int64_t version, Deadline deadline) override {
        request({{"op", "begin"}, {"version", version}}, "begin", deadline);
    }
    void load_async(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline) override {
        transport_->post(bucket, checksums, deadline);
    }
    void load_delta_async(int bucket, std::span<const DeltaEntry> entries, Deadline deadline) override {
        transport_->post_delta(bucket, entries, deadline);
    }
    double wait_loaded(int bucket, Deadline deadline) override { return transport_->wait(bucket, deadline); }
    double verify(std::span<const ops::Checksum> checksums, Deadline deadline) override {
        const Message reply = request_all({{"op", "verify"}}, checksums, "verify", deadline);
        return messages::number_field(reply.header, "ms");
    }
    void adopt(std::uint64_t shift, std::span<const ops::Checksum> checksums, Deadline deadline) override {
        request_all({{"op", "adopt"}, {"shift", shift}}, checksums, "adopt", deadline);
    }
    void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override {
        request({{"op", "commit"}, {"version", version}, {"manifest", ops::to_hex(manifest)}}, "commit",
                deadline);
    }
    void abort(const std::string& reason, Deadline deadline) override {
        // What was in flight is worth nothing any more, also when the engine does not answer.
        try {
            request({{"op", "abort"}, {"reason", reason}}, "abort", deadline);
        } catch (const std::exception&) {
            transport_->release();
            throw;
        }
        transport_->release();
    }

    std::vector<ops::Checksum> checksums(Deadline deadline) override {
        const Message reply = request({{"op", "checksums"}}, "checksums", deadline);
        return messages::from_bytes<ops::Checksum>({reply.payload.data(), reply.payload.size()},
                                                   capabilities_.tensors.size());
    }

  private:
    // Where the regions lie says how the engine comes to them.
    std::unique_ptr<BucketRequests> make_transport(Device regions) const {
        if (regions.type == DeviceType::cuda) return std::make_unique<CudaIpcTransport>(connection_);
        return std::make_unique<ShmTransport>(connection_);
    }
    Message request(nlohmann::json header, const char* phase, Deadline deadline) {
        return connection_->request(std::move(header), {}, {}, phase, deadline);
    }
    // With a checksum for each transfer of the plan.
    Message request_all(nlohmann::json header, std::span<const ops::Checksum> checksums, const char* phase,
                        Deadline deadline) {
        require(checksums.size() == transport_->transfers(), "{}: {} checksums for {} transfers", phase,
                checksums.size(), transport_->transfers());
        header["checksums"] = checksums.size();
        return connection_->request(std::move(header), messages::as_bytes(checksums), {}, phase, deadline);
    }

    std::shared_ptr<Connection> connection_;
    std::unique_ptr<GenerationControl> control_;
    Capabilities capabilities_;
    Device device_;  // of the regions that are attached
    bool over_nccl_ = false;
    std::unique_ptr<BucketRequests> transport_;
};

}  // namespace

namespace {

// Of an engine that is tandem-engine, and how it is paused.
std::unique_ptr<ReceiverClient> find_receiver(const std::string& url, Deadline deadline) {
    auto control = std::make_unique<HttpControl>(url);
    const nlohmann::json info = control->model_info(deadline);
    const auto tandem = info.find("tandem");
    if (tandem == info.end() || !tandem->is_object() || !tandem->contains("receiver") ||
        !tandem->at("receiver").is_string()) {
        throw TransportError("engine " + url, "connect",
                             "/model_info names no \"tandem\": {\"receiver\"}: not tandem-engine");
    }
    return std::make_unique<ReceiverClient>(
        Channel::connect(tandem->at("receiver").get<std::string>(), deadline), std::move(control), deadline);
}

std::vector<std::unique_ptr<Engine>> join(std::vector<std::unique_ptr<ReceiverClient>> clients,
                                          const NcclOptions& options) {
    std::vector<std::shared_ptr<Connection>> connections;
    for (const auto& client : clients) connections.push_back(client->connection());
    const auto group = std::make_shared<NcclGroup>(std::move(connections), options);
    std::vector<std::unique_ptr<Engine>> engines;
    for (auto& client : clients) {
        client->join(group, static_cast<int>(engines.size()));
        engines.push_back(std::move(client));
    }
    return engines;
}

}  // namespace

std::unique_ptr<Engine> connect_receiver(const std::string& address, Deadline deadline,
                                         std::unique_ptr<GenerationControl> control) {
    return std::make_unique<ReceiverClient>(Channel::connect(address, deadline), std::move(control),
                                            deadline);
}

std::unique_ptr<Engine> connect_tandem(const std::string& url, Deadline deadline) {
    return find_receiver(url, deadline);
}

std::vector<std::unique_ptr<Engine>> connect_over_nccl(const std::vector<std::string>& addresses,
                                                       const NcclOptions& options, Deadline deadline) {
    std::vector<std::unique_ptr<ReceiverClient>> clients;
    for (const std::string& address : addresses) {
        clients.push_back(
            std::make_unique<ReceiverClient>(Channel::connect(address, deadline), nullptr, deadline));
    }
    return join(std::move(clients), options);
}

std::unique_ptr<Engine> connect_tandem_over_nccl(const std::string& url, const NcclOptions& options,
                                                 Deadline deadline) {
    std::vector<std::unique_ptr<ReceiverClient>> one;
    one.push_back(find_receiver(url, deadline));
    return std::move(join(std::move(one), options).front());
}

}  // namespace tandem::engine
