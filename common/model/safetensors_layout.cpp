#include "common/model/safetensors_layout.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/error.h"

namespace tandem::model {

SafetensorsLayout safetensors_layout(const std::vector<SafetensorsItem>& items,
                                     const std::map<std::string, std::string>& metadata) {
    // Widest elements first, so that every tensor is aligned to its element.
    std::vector<std::size_t> order(items.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return dtype_size(items[a].dtype) > dtype_size(items[b].dtype);
    });

    SafetensorsLayout layout;
    layout.begins.resize(items.size());
    nlohmann::ordered_json header;
    header["__metadata__"] = metadata;
    std::size_t at = 0;
    for (const std::size_t i : order) {
        const SafetensorsItem& item = items[i];
        require(!header.contains(item.name), "tensor {} twice in one safetensors file", item.name);
        header[item.name] = {{"dtype", std::string(safetensors_dtype_name(item.dtype))},
                             {"shape", item.shape},
                             {"data_offsets", {at, at + item.bytes()}}};
        layout.begins[i] = at;
        at += item.bytes();
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::uint64_t length = text.size();
    layout.head.resize(sizeof(length));
    std::memcpy(layout.head.data(), &length, sizeof(length));
    layout.head += text;
    for (std::size_t& begin : layout.begins) begin += layout.head.size();
    layout.bytes = layout.head.size() + at;
    return layout;
}

}  // namespace tandem::model
