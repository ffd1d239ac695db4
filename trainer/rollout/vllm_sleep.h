// A vLLM server whose memory sleeps while the trainer computes. It is paused for as long, and resumed when the last of its
// memory is back.
//
//   memory.engine_sleep   given away                            by
//   kv_cache              the cache                             /pause, /release_kv_cache_memory
//   all                   both; the next sync brings weights    /sleep?level=2
//   all, "sparse_nccl"    both; the weights are kept in the     /sleep?level=1
//                         host's memory: what it is sent
//                         changes those
// While its weights are gone it says weight version "loading N", N being the version that comes next, as one whose push did
// not come to its end: the next push, whoever's, heals it. A server that is found asleep, because a run was killed, counts as put to sleep by this one.
#pragma once

#include <chrono>
#include <string>

#include "common/http/client.h"
#include "trainer/rollout/sleeping_engine.h"

namespace tandem::trainer {

class VllmSleep final : public SleepingEngine {
  public:
    // weights: those sleep, too. Of the environment, VLLM_API_KEY is sent. Throws Error saying how to start a server that
    // cannot sleep, or does not say whether it does.
    VllmSleep(const std::string& url, bool weights, std::chrono::nanoseconds deadline);

    bool asleep() const override { return asleep_; }
    bool sleep() override;
    void wake_weights() override;
    void wake_cache() override;

  private:
    void check_server();
    bool is_paused();
    std::string weight_version();
    void set_weight_version(const std::string& version);
    void release_cache();
    void drop_weights();
    bool wake(const std::string& tag);  // whether all of it is awake
    void check(const std::string& target, const http::Response& answer) const;
    void post(const std::string& target);
    Deadline soon() const { return Deadline::after(deadline_); }

    http::Client client_;
    bool weights_;
    bool keeps_weights_ = false;  // in the host's memory
    bool asleep_ = false;
    std::chrono::nanoseconds deadline_;
};

}  // namespace tandem::trainer
