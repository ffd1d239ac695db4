// The TCP transport joins the contract: a receiver in this process, regions in plain memory. The control channel is the
// host's own (a Unix socket) or TCP, as for an engine of another host; rows of every length.
#include <array>

#include "engine_adapter/transport/tcp/transport.h"
#include "tests/contract/transport/engine_here.h"
#include "tests/support/soon.h"

namespace tandem::engine {
namespace {

const std::string kKey = "a key";

ReceiverOptions with_data_plane() {
    ReceiverOptions options;
    options.data_plane = TcpListen{.key = kKey};
    return options;
}

class TcpRig final : public TransportRig {
  public:
    TcpRig(bool remote, int connections) : engine_({}, with_data_plane()) {
        for (auto& region : memory_) region.resize(kRegionBytes);
        const TcpAddress to{"127.0.0.1", std::to_string(engine_.data_port())};
        const TcpOptions options{.connections = connections};
        const Deadline deadline = test::soon();
        connection_ = std::make_shared<Connection>(
            remote ? Channel(std::move(tcp::dial(to, tcp::Kind::control, kKey, 1, options, "the engine",
                                                 "connect", deadline)
                                           .front()),
                             "the engine")
                   : Channel::connect(engine_.address(), deadline));
        transport_ = std::make_unique<TcpTransport>(connection_, to, options);
    }
    Transport& transport() override { return *transport_; }
    std::vector<Region> regions() override {
        return {{{memory_[0].data(), kRegionBytes}}, {{memory_[1].data(), kRegionBytes}}};
    }
    void write(std::size_t region, std::size_t offset, ConstSpan bytes) override {
        std::memcpy(memory_[region].data() + offset, bytes.data, bytes.bytes);
    }
    std::vector<std::byte> weights(int tensor) override { return engine_.weights(tensor); }
    void stop_engine() override { engine_.stop(); }

  private:
    EngineHere engine_;
    std::array<std::vector<std::byte>, 2> memory_;
    std::unique_ptr<TcpTransport> transport_;
};

Backend backend(const char* name, bool remote, int connections) {
    return {name, [=] { return std::make_unique<TcpRig>(remote, connections); }};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(tcp, TransportContract,
                         testing::Values(backend("here", false, 1), backend("remote", true, 3)));

}  // namespace tandem::engine
