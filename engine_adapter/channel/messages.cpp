#include "engine_adapter/channel/messages.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>

#include "common/device/devices.h"
#include "common/error.h"
#include "engine_adapter/channel/channel.h"

namespace tandem::engine::messages {

// --- payloads

template <typename T>
std::vector<T> from_bytes(ConstSpan payload, std::size_t count) {
    if (count > payload.bytes || payload.bytes != count * sizeof(T)) {
        throw MalformedMessage(fmt::format("a payload of {} bytes where {} items of {} were announced",
                                           payload.bytes, count, sizeof(T)));
    }
    std::vector<T> values(count);
    if (count > 0) std::memcpy(static_cast<void*>(values.data()), payload.data, payload.bytes);
    return values;
}
template std::vector<ops::Checksum> from_bytes(ConstSpan, std::size_t);
template std::vector<DeltaEntry> from_bytes(ConstSpan, std::size_t);

std::vector<std::byte> pack_plan(const TransferPlan& plan) {
    const ConstSpan transfers = as_bytes(std::span<const Transfer>(plan.transfers));
    const ConstSpan first = as_bytes(std::span<const std::uint64_t>(plan.first));
    std::vector<std::byte> payload(transfers.bytes + first.bytes);
    if (transfers.bytes > 0) std::memcpy(payload.data(), transfers.data, transfers.bytes);
    std::memcpy(payload.data() + transfers.bytes, first.data, first.bytes);
    return payload;
}

TransferPlan unpack_plan(ConstSpan payload, std::size_t transfers, std::size_t buckets) {
    // Bound each by the payload first, so that nothing below overflows.
    if (transfers > payload.bytes / sizeof(Transfer) || buckets > payload.bytes / 8) {
        throw MalformedMessage(fmt::format("a plan of {} transfers in {} buckets in a payload of {} bytes",
                                           transfers, buckets, payload.bytes));
    }
    const std::size_t split = transfers * sizeof(Transfer);
    TransferPlan plan;
    plan.first = from_bytes<std::uint64_t>(payload.subspan(split, payload.bytes - split), buckets + 1);
    plan.transfers = from_bytes<Transfer>(payload.subspan(0, split), transfers);
    for (const Transfer& t : plan.transfers) {
        if (t.from_dtype.number > static_cast<std::uint32_t>(DType::float16))
            throw MalformedMessage(fmt::format("a transfer of dtype number {}", t.from_dtype.number));
    }
    return plan;
}

namespace {

// --- fields of a header

std::int64_t integer(const nlohmann::json& value, const char* field, std::int64_t minimum) {
    if (!value.is_number_integer()) throw MalformedMessage(fmt::format("'{}' is not an integer", field));
    const bool too_large =
        value.is_number_unsigned() &&
        value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    if (too_large || value.get<std::int64_t>() < minimum) {
        throw MalformedMessage(fmt::format("'{}' is {}, out of range", field, value.dump()));
    }
    return value.get<std::int64_t>();
}

const nlohmann::json& field_of(const nlohmann::json& header, const char* field, const char* kind) {
    const auto found = header.find(field);
    if (found == header.end())
        throw MalformedMessage(fmt::format("a message without the {} '{}'", kind, field));
    return *found;
}

}  // namespace

std::int64_t integer_field(const nlohmann::json& header, const char* field, std::int64_t minimum) {
    return integer(field_of(header, field, "integer"), field, minimum);
}

std::vector<std::int64_t> integers_field(const nlohmann::json& header, const char* field,
                                         std::int64_t minimum) {
    const nlohmann::json& list = field_of(header, field, "list");
    if (!list.is_array()) throw MalformedMessage(fmt::format("'{}' is not a list", field));
    std::vector<std::int64_t> values;
    for (const nlohmann::json& value : list) values.push_back(integer(value, field, minimum));
    return values;
}

bool bool_field(const nlohmann::json& header, const char* field) {
    const nlohmann::json& value = field_of(header, field, "flag");
    if (!value.is_boolean()) throw MalformedMessage(fmt::format("'{}' is not true or false", field));
    return value.get<bool>();
}

double number_field(const nlohmann::json& header, const char* field) {
    const nlohmann::json& value = field_of(header, field, "number");
    if (!value.is_number()) throw MalformedMessage(fmt::format("'{}' is not a number", field));
    return value.get<double>();
}

const std::string& string_field(const nlohmann::json& header, const char* field) {
    const nlohmann::json& value = field_of(header, field, "text");
    if (!value.is_string()) throw MalformedMessage(fmt::format("'{}' is not a text", field));
    return value.get_ref<const std::string&>();
}

std::int64_t timeout_ms(Deadline deadline) {
    return std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
}

Deadline deadline_field(const nlohmann::json& header) {
    constexpr std::int64_t kDay = 24LL * 3600 * 1000;
    return Deadline::after_ms(std::min(integer_field(header, "timeout_ms", 0), kDay));
}

// --- what an engine is

nlohmann::json capabilities_to_json(const Capabilities& capabilities) {
    nlohmann::json tensors = nlohmann::json::array();
    for (const TensorInfo& info : capabilities.tensors) {
        nlohmann::json tensor = {
            {"name", info.name}, {"shape", info.shape}, {"dtype", dtype_name(info.dtype)}};
        for (const Part& part : info.parts) {
            tensor["parts"].push_back({{"name", part.name},
                                       {"start", part.start},
                                       {"size", part.size},
                                       {"offset", part.offset},
                                       {"stride", part.stride}});
        }
        tensors.push_back(std::move(tensor));
    }
    nlohmann::json header = {{"engine", capabilities.engine}, {"version", capabilities.version},
                             {"newest", capabilities.newest}, {"depth", capabilities.depth},
                             {"alias", capabilities.alias},   {"device", to_string(capabilities.device)},
                             {"tensors", std::move(tensors)}};
    if (capabilities.architecture) header["architecture"] = capabilities.architecture->as_json();
    if (capabilities.context_length > 0) header["context_length"] = capabilities.context_length;
    return header;
}

Capabilities capabilities_from_json(const nlohmann::json& header) {
    constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::min();
    try {
        Capabilities capabilities;
        capabilities.engine = string_field(header, "engine");
        capabilities.version = integer_field(header, "version", 0);
        capabilities.newest =
            header.contains("newest") ? integer_field(header, "newest", 0) : capabilities.version;
        capabilities.depth = static_cast<int>(integer_field(header, "depth", 1));
        capabilities.alias = bool_field(header, "alias");
        capabilities.device = device_from_name(string_field(header, "device"));
        for (const auto& tensor : field_of(header, "tensors", "list")) {
            TensorInfo& info = capabilities.tensors.emplace_back();
            info.name = string_field(tensor, "name");
            info.shape = integers_field(tensor, "shape", 0);
            info.dtype = dtype_from_name(string_field(tensor, "dtype"));
            if (!tensor.contains("parts")) continue;
            for (const auto& part : tensor.at("parts")) {
                info.parts.push_back({string_field(part, "name"), integers_field(part, "start", 0),
                                      integers_field(part, "size", 0), integer_field(part, "offset", kAny),
                                      integers_field(part, "stride", kAny)});
            }
        }
        if (const auto found = header.find("architecture"); found != header.end())
            capabilities.architecture = model::Architecture::from_json(*found, "its architecture");
        if (header.contains("context_length"))
            capabilities.context_length = integer_field(header, "context_length", 0);
        return capabilities;
    } catch (const ConfigError& error) {
        throw MalformedMessage(std::string("the engine's capabilities: ") + error.what());
    } catch (const InvalidArgument& error) {
        throw MalformedMessage(std::string("the engine's capabilities: ") + error.what());
    } catch (const nlohmann::json::exception& error) {
        throw MalformedMessage(std::string("the engine's capabilities: ") + error.what());
    }
}

namespace {

// --- failures

constexpr std::array kCodes{Code::ok,          Code::invalid,  Code::not_found, Code::conflict,
                            Code::unavailable, Code::deadline, Code::corrupt,   Code::internal};
}  // namespace

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
            throw BadInput(text);
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

}  // namespace tandem::engine::messages
