#include "common/model/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/error.h"
#include "common/file_kind.h"
#include "common/json_text.h"

namespace tandem::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit

json parse_header_json(ConstSpan bytes, const std::string& file, std::size_t& data_begin) {
    std::uint64_t length = 0;
    const auto refuse = [&](const std::string& why) {
        const std::string kind =
            file_kind({reinterpret_cast<const char*>(bytes.data), std::min(bytes.bytes, kFileHeadBytes)});
        throw ConfigError(file, "", kind.empty() ? why : fmt::format("{} ({})", kind, why));
    };
    if (bytes.bytes < sizeof(length))
        refuse(fmt::format("truncated: {} bytes, too short for a safetensors header", bytes.bytes));
    std::memcpy(&length, bytes.data, sizeof(length));
    if (length < 2 || length > kMaxHeaderBytes || length > bytes.bytes - sizeof(length)) {
        refuse(fmt::format("truncated or not safetensors: header of {} bytes in a file of {}", length,
                           bytes.bytes));
    }
    data_begin = sizeof(length) + static_cast<std::size_t>(length);
    const char* text = reinterpret_cast<const char*>(bytes.data + sizeof(length));
    json header = parse_json_file({text, static_cast<std::size_t>(length)}, file);
    if (!header.is_object()) throw ConfigError(file, "", "malformed header: not a JSON object");
    return header;
}

DType entry_dtype(const json& entry, const std::string& file, const std::string& name) {
    if (!entry.contains("dtype") || !entry["dtype"].is_string())
        throw ConfigError(file, name, "has no dtype");
    const auto text = entry["dtype"].get<std::string>();
    for (const DType dtype :
         {DType::float32, DType::bfloat16, DType::float16, DType::int32, DType::int64, DType::uint8}) {
        if (safetensors_dtype_name(dtype) == text) return dtype;
    }
    throw ConfigError(file, name,
                      "dtype \"" + text + "\" is not supported; supported: F32, BF16, F16, I32, I64, U8");
}

Shape entry_shape(const json& entry, const std::string& file, const std::string& name) {
    if (!entry.contains("shape") || !entry["shape"].is_array()) throw ConfigError(file, name, "has no shape");
    Shape shape;
    for (const json& dim : entry["shape"]) {
        const bool fits = dim.is_number_unsigned() && dim.get<std::uint64_t>() < (std::uint64_t{1} << 48);
        if (!fits)
            throw ConfigError(file, name, "shape " + entry["shape"].dump() + " is not a list of sizes");
        shape.push_back(dim.get<std::int64_t>());
    }
    return shape;
}

std::uint64_t needed_bytes(const Shape& shape, DType dtype, const std::string& file,
                           const std::string& name) {
    std::uint64_t total = dtype_size(dtype);
    for (const std::int64_t dim : shape) {
        if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(dim), &total)) {
            throw ConfigError(file, name, "shape " + tandem::to_string(shape) + " overflows");
        }
    }
    return total;
}

SafetensorsEntry parse_entry(const json& entry, const std::string& file, const std::string& name,
                             std::size_t data_begin, std::size_t data_bytes) {
    if (!entry.is_object()) throw ConfigError(file, name, "header entry is not an object");
    SafetensorsEntry result;
    result.dtype = entry_dtype(entry, file, name);
    result.shape = entry_shape(entry, file, name);
    const json offsets = entry.value("data_offsets", json());
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
        throw ConfigError(file, name, "data_offsets must be two offsets");
    }
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    if (begin > end || end > data_bytes) {
        throw ConfigError(
            file, name,
            fmt::format("data_offsets [{}, {}] lie outside the file's {} bytes of data: truncated, half "
                        "copied or downloaded?",
                        begin, end, data_bytes));
    }
    const std::uint64_t needed = needed_bytes(result.shape, result.dtype, file, name);
    if (end - begin != needed) {
        throw ConfigError(
            file, name,
            fmt::format("{} of {} needs {} bytes, data_offsets hold {}", tandem::to_string(result.shape),
                        safetensors_dtype_name(result.dtype), needed, end - begin));
    }
    result.begin = data_begin + static_cast<std::size_t>(begin);
    result.end = data_begin + static_cast<std::size_t>(end);
    return result;
}

// The format allows neither holes nor overlaps: the tensors tile the data exactly.
void check_tiling(const std::map<std::string, SafetensorsEntry>& entries, std::size_t data_begin,
                  std::size_t file_bytes, const std::string& file) {
    std::vector<const std::pair<const std::string, SafetensorsEntry>*> order;
    for (const auto& entry : entries) order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
        return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
    });
    std::size_t at = data_begin;
    for (const auto* entry : order) {
        if (entry->second.begin < at) throw ConfigError(file, entry->first, "overlaps another tensor");
        if (entry->second.begin > at)
            throw ConfigError(file, entry->first, "leaves a hole before it in the file");
        at = entry->second.end;
    }
    if (at != file_bytes) {
        throw ConfigError(file, "", fmt::format("{} bytes after the last tensor", file_bytes - at));
    }
}

}  // namespace

std::map<std::string, SafetensorsEntry> parse_safetensors_header(ConstSpan bytes, const std::string& file) {
    std::size_t data_begin = 0;
    const json header = parse_header_json(bytes, file, data_begin);
    std::map<std::string, SafetensorsEntry> entries;
    for (const auto& [name, entry] : header.items()) {
        if (name == "__metadata__") continue;
        entries[name] = parse_entry(entry, file, name, data_begin, bytes.bytes - data_begin);
    }
    check_tiling(entries, data_begin, bytes.bytes, file);
    return entries;
}

}  // namespace tandem::model
