// A rank of an SGLang server with our plug-in, for tests without SGLang: what sync/python/tandem_sync/sglang/worker.py does. The
// server around it is SglangStandIn.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tests/support/sglang_stand_in.h"
#include "tests/support/staging_stand_in.h"

namespace tandem::test {

class SglangPluginStandIn final : public SglangRankPlugin {
  public:
    enum class Fails { no, before_the_load, in_the_load };

    explicit SglangPluginStandIn(const std::string& model, const std::string& data_listen = "",
                                 const std::string& key = "");

    nlohmann::json state() const override;
    std::map<std::string, std::string> load(std::int64_t version) override;
    bool whole() const override { return whole_; }
    void leave_note(int note) override { note_ = note; }

    void fail(Fails next) { fails_ = next; }
    int note() const { return note_; }
    void speak_protocol(int protocol) { protocol_ = protocol; }
    void receive_nothing(const std::string& why) { failure_ = why; }
    StagingStandIn& staging() { return staging_; }

  private:
    StagingStandIn staging_;
    Fails fails_ = Fails::no;
    bool whole_ = true;
    std::int64_t version_ = 0;
    int note_ = 0;
    int protocol_ = 1;
    std::string failure_;
};

}  // namespace tandem::test
