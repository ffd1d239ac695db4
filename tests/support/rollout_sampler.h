// What a stand-in for a third-party server generates: it computes with the weights that it holds and samples from them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tandem::test {

struct RolloutRoutes {
    std::string model;      // the directory that the stand-in was started with, float32
    std::string scratch;    // folder for directories of its own
    bool scale_out = true;  // vLLM: /inference/v1/generate is there
    int eos = -1;           // would end an answer unless ignore_eos
};

// Of a stand-in, in whose routes alone they are called.
struct HeldWeights {
    std::function<const std::map<std::string, std::string>&()> weights;  // name → bytes
    std::function<const std::string&()> version;
    std::function<void(const std::string& what)> violate;
};
template <class StandIn>
HeldWeights held_by(StandIn& server) {
    return {[&server]() -> const std::map<std::string, std::string>& { return server.held_weights(); },
            [&server]() -> const std::string& { return server.held_version(); },
            [&server](const std::string& what) { server.violate(what); }};
}

struct SamplerRequest {
    std::uint64_t seed = 0;
    std::size_t max_tokens = 1;
    double temperature = 1;  // 0: the likeliest
    std::vector<std::int32_t> stops;
    bool ignore_eos = false;
};

struct Sampled {
    std::vector<std::int32_t> tokens;  // with the stop token
    std::vector<double> logprobs;      // that they were sampled by
    bool stopped = false;
};

class RolloutSampler {
  public:
    RolloutSampler(HeldWeights held, RolloutRoutes options);
    Sampled complete(std::vector<std::int32_t> prompt, const SamplerRequest& request);
    const std::string& version() const { return held_.version(); }

  private:
    std::string held_directory();

    HeldWeights held_;
    RolloutRoutes options_;
    std::string version_;  // of the directory
};

}  // namespace tandem::test
