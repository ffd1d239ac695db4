#include "engine_adapter/transport/shm/wire.h"

#include <array>
#include <cstring>
#include <limits>

#include "common/error.h"
#include "engine_adapter/transport/shm/channel.h"

namespace tandem::engine::wire {

template <typename T>
std::vector<T> from_bytes(const std::vector<std::byte>& payload, std::size_t count) {
    if (count > payload.size() || payload.size() != count * sizeof(T)) {
        throw MalformedMessage(fmt::format("a payload of {} bytes where {} items of {} were announced",
                                           payload.size(), count, sizeof(T)));
    }
    std::vector<T> values(count);
    if (count > 0) std::memcpy(static_cast<void*>(values.data()), payload.data(), payload.size());
    return values;
}
template std::vector<Entry> from_bytes(const std::vector<std::byte>&, std::size_t);
template std::vector<ops::Checksum> from_bytes(const std::vector<std::byte>&, std::size_t);

std::int64_t integer_field(const nlohmann::json& header, const char* field, std::int64_t minimum) {
    const auto found = header.find(field);
    if (found == header.end() || !found->is_number_integer()) {
        throw MalformedMessage(fmt::format("a message without the integer '{}'", field));
    }
    const bool too_large =
        found->is_number_unsigned() &&
        found->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    if (too_large || found->get<std::int64_t>() < minimum) {
        throw MalformedMessage(fmt::format("'{}' is {}, out of range", field, found->dump()));
    }
    return found->get<std::int64_t>();
}

const std::string& string_field(const nlohmann::json& header, const char* field) {
    const auto found = header.find(field);
    if (found == header.end() || !found->is_string()) {
        throw MalformedMessage(fmt::format("a message without the text '{}'", field));
    }
    return found->get_ref<const std::string&>();
}

nlohmann::json capabilities_to_json(const Capabilities& capabilities) {
    nlohmann::json tensors = nlohmann::json::array();
    for (const TensorInfo& tensor : capabilities.tensors) {
        tensors.push_back(
            {{"name", tensor.name}, {"shape", tensor.shape}, {"dtype", dtype_name(tensor.dtype)}});
    }
    return {{"engine", capabilities.engine},
            {"version", capabilities.version},
            {"depth", capabilities.depth},
            {"tensors", std::move(tensors)}};
}

Capabilities capabilities_from_json(const nlohmann::json& header) {
    try {
        Capabilities capabilities;
        capabilities.engine = string_field(header, "engine");
        capabilities.version = integer_field(header, "version", 0);
        capabilities.depth = static_cast<int>(integer_field(header, "depth", 1));
        for (const auto& tensor : header.at("tensors")) {
            capabilities.tensors.push_back({string_field(tensor, "name"), tensor.at("shape").get<Shape>(),
                                            dtype_from_name(string_field(tensor, "dtype"))});
        }
        return capabilities;
    } catch (const nlohmann::json::exception& error) {
        throw MalformedMessage(std::string("the engine's capabilities: ") + error.what());
    }
}

namespace {
constexpr std::array kCodes{Code::ok,          Code::invalid,  Code::not_found, Code::conflict,
                            Code::unavailable, Code::deadline, Code::corrupt,   Code::internal};
}

nlohmann::json error_reply(std::int64_t id, const std::exception& error) {
    const Status status = to_status(error);
    return {{"id", id}, {"ok", false}, {"code", code_name(status.code)}, {"message", status.message}};
}

void throw_if_failed(const nlohmann::json& reply, const std::string& peer, const std::string& phase) {
    const auto ok = reply.find("ok");
    if (ok == reply.end() || !ok->is_boolean()) throw MalformedMessage(peer + ": a reply without 'ok'");
    if (ok->get<bool>()) return;
    const std::string& code = string_field(reply, "code");
    const std::string& message = string_field(reply, "message");
    Code found = Code::internal;
    for (const Code candidate : kCodes) {
        if (code == code_name(candidate)) found = candidate;
    }
    const std::string text = fmt::format("{}, {}: {}", peer, phase, message);
    switch (found) {
        case Code::invalid:
            throw InvalidArgument(text);
        case Code::unavailable:
            throw TransportError(peer, phase, message, true);
        case Code::deadline:
            throw DeadlineExceeded(peer, phase, message, true);
        case Code::corrupt:
        case Code::conflict:
            throw ProtocolError(text);
        default:
            throw Error(text);
    }
}

}  // namespace tandem::engine::wire
