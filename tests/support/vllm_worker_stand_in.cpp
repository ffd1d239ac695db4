#include "tests/support/vllm_worker_stand_in.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace tandem::test {

VllmWorkerStandIn::VllmWorkerStandIn(const std::string& model, const std::string& data_listen,
                                     const std::string& key)
    : staging_(model, "vllm", data_listen, key) {}

void VllmWorkerStandIn::init() {
    failure_.clear();
    staging_.open();
    staging_.give_back();
}

std::string VllmWorkerStandIn::state(const std::string* note) {
    if (note != nullptr) note_ = *note;
    nlohmann::json state = staging_.whereabouts();
    state.update({{"protocol", protocol_},
                  {"rank", 0},
                  {"memory", "/proc/1/fd/2"},
                  {"whole", whole_},
                  {"version", version_},
                  {"note", note_},
                  {"load_ms", 0.0},
                  {"open", open_},
                  {"failure", failure_}});
    return state.dump();
}

void VllmWorkerStandIn::start() {
    open_ = true;
}

std::optional<std::map<std::string, std::string>> VllmWorkerStandIn::update(std::int64_t version) {
    failure_.clear();
    try {
        return load(version);
    } catch (const std::exception& error) {
        failure_ = error.what();
        return std::nullopt;
    }
}

std::map<std::string, std::string> VllmWorkerStandIn::load(std::int64_t version) {
    const Fails fails = std::exchange(fails_, Fails::no);
    if (fails == Fails::before_the_load) throw std::runtime_error("the worker refuses");
    staging_.take(version);
    if (fails == Fails::in_the_load) {
        whole_ = false;
        staging_.give_back();
        throw std::runtime_error("the worker stumbles");
    }
    whole_ = true;
    version_ = version;
    return staging_.content();
}

void VllmWorkerStandIn::finish() {
    open_ = false;
    staging_.give_back();
}

}  // namespace tandem::test
