// A vLLM worker with our plug-in, for tests without vLLM: what sync/python/tandem_sync/vllm/engine.py does, over the same C
// functions; its model is the bytes that it was given.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/support/staging_stand_in.h"
#include "tests/support/vllm_stand_in.h"

namespace tandem::test {

class VllmWorkerStandIn final : public VllmWorkerPlugin {
  public:
    enum class Fails { no, before_the_load, in_the_load };

    // model: the directory whose tensors it wants. data_listen, key: as the plug-in takes them from its environment.
    explicit VllmWorkerStandIn(const std::string& model, const std::string& data_listen = "",
                               const std::string& key = "");

    void init() override;
    std::string state(const std::string* note) override;
    void start() override;
    std::optional<std::map<std::string, std::string>> update(std::int64_t version) override;
    void finish() override;

    void fail(Fails next) { fails_ = next; }
    void leave_note(const std::string& note) { note_ = note; }
    const std::string& note() const { return note_; }
    void speak_protocol(int protocol) { protocol_ = protocol; }
    void say_it_receives_at(const std::string& address) { staging_.say_it_receives_at(address); }
    void say_it_runs_on(const std::string& host) { staging_.say_it_runs_on(host); }
    std::string address() const { return staging_.address(); }
    bool whole() const { return whole_; }

  private:
    std::map<std::string, std::string> load(std::int64_t version);

    StagingStandIn staging_;
    Fails fails_ = Fails::no;
    bool whole_ = true;
    std::int64_t version_ = 0;
    int protocol_ = 1;
    bool open_ = false;
    std::string failure_;
    std::string note_;
};

}  // namespace tandem::test
