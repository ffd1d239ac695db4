// Messages of the nccl transport beside channel/messages.h, over a receiver's channel.
#pragma once

#include <string>
#include <string_view>

#include "common/comm/nccl/api.h"

namespace tandem::engine {

// How a bucket leaves trainer rank 0: the same bytes to every engine rank, or to each its own.
enum class NcclForm { broadcast, send };

namespace messages {

std::string id_to_hex(const comm::nccl::UniqueId& id);
// These throw MalformedMessage.
comm::nccl::UniqueId id_from_hex(const std::string& text);
std::string_view form_name(NcclForm form);
NcclForm form_from_name(const std::string& name);

}  // namespace messages
}  // namespace tandem::engine
