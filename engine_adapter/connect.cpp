#include "engine_adapter/connect.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/error.h"
#include "common/host_port.h"
#include "common/http/client.h"
#include "engine_adapter/sglang/engine.h"
#include "engine_adapter/tandem/engine.h"
#include "engine_adapter/vllm/engine.h"

namespace tandem::engine {
namespace {

struct Kind {
    std::string_view prefix;  // of its names
    std::vector<std::unique_ptr<Engine>> (*connect)(const std::vector<std::string>& names,
                                                    const ConnectOptions& options, Deadline deadline);
};

constexpr std::array kKinds{
    Kind{"tandem://", connect_tandem},     Kind{"http://", connect_tandem},  // an engine of ours, too
    Kind{"unix:/", connect_tandem},        Kind{"unix-abstract:", connect_tandem},
    Kind{"tcp://", connect_tandem},        Kind{"vllm://", connect_vllm},
    Kind{"sglang://", connect_sglang},     Kind{"sglang+tensor://", connect_sglang},
    Kind{"sglang+ipc://", connect_sglang}, Kind{"sglang+nccl://", connect_sglang},
};

const Kind& kind_of(const std::string& name) {
    const auto* found = std::find_if(kKinds.begin(), kKinds.end(),
                                     [&](const Kind& kind) { return name.starts_with(kind.prefix); });
    if (found == kKinds.end()) {
        std::string known;
        for (const Kind& kind : kKinds)
            known += fmt::format("{}{}…", known.empty() ? "" : " or ", kind.prefix);
        throw BadInput(fmt::format("'{}' names no engine: {}", name, known));
    }
    return *found;
}

}  // namespace

InFlight in_flight_from_name(const std::string& name) {
    if (name == "wait") return InFlight::wait;
    if (name == "abort") return InFlight::abort;
    if (name == "keep") return InFlight::keep;
    throw BadInput(fmt::format("requests in flight can be wait, abort or keep, not '{}'", name));
}

void check_name(const std::string& name) {
    const std::string_view prefix = kind_of(name).prefix;
    if (!prefix.ends_with("://")) return;
    const std::string server = name.substr(prefix.size(), name.find('?') - prefix.size());
    if (prefix == "tcp://") {
        parse_host_port(server);
    } else {
        http::parse_url("http://" + server, name);
    }
}

std::unique_ptr<Engine> connect(const std::string& name, Deadline deadline, const ConnectOptions& options) {
    return std::move(connect_ranks({name}, deadline, options).front());
}

std::vector<std::unique_ptr<Engine>> connect_ranks(const std::vector<std::string>& names, Deadline deadline,
                                                   const ConnectOptions& options) {
    enforce(!names.empty(), "an engine without ranks");
    const Kind& kind = kind_of(names.front());
    for (const std::string& name : names)
        enforce(kind_of(name).connect == kind.connect, "'{}' and '{}' are not ranks of one engine",
                names.front(), name);
    enforce(!options.only || kind.connect == connect_vllm,
            "{} takes all weights or none, not some of them (--only)", names.front());
    return kind.connect(names, options, deadline);
}

}  // namespace tandem::engine
