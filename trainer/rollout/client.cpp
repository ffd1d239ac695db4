#include "trainer/rollout/client.h"

#include "trainer/config/engine_url.h"
#include "trainer/rollout/sglang_client.h"
#include "trainer/rollout/vllm_client.h"

namespace tandem::trainer {

std::unique_ptr<RolloutClient> make_rollout_client(const std::string& url,
                                                   const RolloutClientOptions& options) {
    if (engine_kind(url) == EngineKind::vllm) return std::make_unique<VllmClient>(url, options);
    return std::make_unique<SglangClient>(url, options);
}

}  // namespace tandem::trainer
