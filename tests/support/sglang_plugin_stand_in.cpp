#include "tests/support/sglang_plugin_stand_in.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace tandem::test {

SglangPluginStandIn::SglangPluginStandIn(const std::string& model, const std::string& data_listen,
                                         const std::string& key)
    : staging_(model, "sglang", data_listen, key) {
    staging_.open();
}

nlohmann::json SglangPluginStandIn::state() const {
    nlohmann::json state = staging_.whereabouts();
    state.update({{"protocol", protocol_},
                  {"whole", whole_},
                  {"version", version_},
                  {"note", note_},
                  {"load_ms", 0.0},
                  {"failure", failure_}});
    return state;
}

std::map<std::string, std::string> SglangPluginStandIn::load(std::int64_t version) {
    const Fails fails = std::exchange(fails_, Fails::no);
    if (fails == Fails::before_the_load) throw std::invalid_argument("rank 0: the rank refuses");
    try {
        staging_.take(version);
    } catch (const std::runtime_error& error) {
        throw std::invalid_argument(error.what());
    }
    whole_ = fails == Fails::no;
    const auto content = staging_.content();
    staging_.give_back();
    if (!whole_) throw std::runtime_error("rank 0: the rank stumbles");
    version_ = version;
    return content;
}

}  // namespace tandem::test
