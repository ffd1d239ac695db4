// A trainer's message (transport/shm/wire.h) turned into a call of the updater, and its result into a reply.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_adapter/receiver/updater.h"
#include "engine_adapter/transport/shm/channel.h"

namespace tandem::engine {

class Requests {
  public:
    // `updater` is borrowed. engine, depth: what hello tells.
    Requests(Updater& updater, std::string engine, int depth)
        : updater_(updater), engine_(std::move(engine)), depth_(depth) {}

    // The reply's fields; fills its payload. Throws MalformedMessage when the message makes no sense, and
    // whatever the updater throws.
    nlohmann::json answer(Message& message, std::vector<std::byte>& payload);

  private:
    nlohmann::json hello(const nlohmann::json& header) const;
    void attach(Message& message);
    std::vector<MappedRegion> map_on_cpu(std::vector<FileDescriptor>& fds,
                                         const std::vector<std::int64_t>& sizes) const;
    std::vector<MappedRegion> map_on_gpu(const nlohmann::json& header,
                                         const std::vector<std::int64_t>& sizes);
    nlohmann::json probe(const nlohmann::json& header);

    Updater& updater_;
    const std::string engine_;
    const int depth_;
};

}  // namespace tandem::engine
