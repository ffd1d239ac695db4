#include "engine_adapter/transport/nccl/messages.h"

#include <charconv>

#include "engine_adapter/channel/channel.h"

namespace tandem::engine::messages {

std::string id_to_hex(const comm::nccl::UniqueId& id) {
    std::string text;
    for (const char byte : id.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}

comm::nccl::UniqueId id_from_hex(const std::string& text) {
    comm::nccl::UniqueId id{};
    if (text.size() != 2 * sizeof(id.bytes))
        throw MalformedMessage(fmt::format("an NCCL id of {} hexadecimal digits, not 256", text.size()));
    for (std::size_t i = 0; i < sizeof(id.bytes); ++i) {
        unsigned char value = 0;
        const char* begin = text.data() + 2 * i;
        const auto result = std::from_chars(begin, begin + 2, value, 16);
        if (result.ec != std::errc{} || result.ptr != begin + 2)
            throw MalformedMessage(fmt::format("'{}' is not hexadecimal", std::string(begin, 2)));
        id.bytes[i] = static_cast<char>(value);
    }
    return id;
}

std::string_view form_name(NcclForm form) {
    return form == NcclForm::broadcast ? "broadcast" : "send";
}

NcclForm form_from_name(const std::string& name) {
    for (const NcclForm form : {NcclForm::broadcast, NcclForm::send}) {
        if (name == form_name(form)) return form;
    }
    throw MalformedMessage("no form '" + name + "' of a bucket");
}

}  // namespace tandem::engine::messages
