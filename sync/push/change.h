// Evidence that works for every server which generates: whether it answers one fixed prompt otherwise than before the push.
// What it finds is no proof of the right weights (that is the probe's, probe.h), and finding nothing is none of wrong ones:
// the same weights may have been pushed again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "engine_adapter/engine.h"
#include "sync/push/probe.h"

namespace tandem::sync {

// What a server says after prompts, kProbeTokens each. Any thread. Throws what asking throws.
using Ask =
    std::function<std::vector<Said>(const std::string& url, const Prompts& prompts, Deadline deadline)>;

class ChangeProbe {
  public:
    // `ask` and `url` must outlive it. tensors: that the server holds, by which it is known how many tokens there are.
    ChangeProbe(const Ask& ask, const std::string& url, const std::vector<engine::TensorInfo>& tensors);

    // These ask twice: the answers of a busy server vary, and what varies anyway says nothing. Neither throws for a server
    // that does not answer within the deadline.
    void before(Deadline deadline) { before_ = ask_twice(deadline); }
    bool changed(Deadline deadline) const;  // since before()

  private:
    std::vector<Said> ask_twice(Deadline deadline) const;

    const Ask& ask_;
    const std::string& url_;
    Prompts prompt_;
    std::vector<Said> before_;
};

// Whether all of `before` are farther from all of `after` than two of the same are from each other. Two answers each, or none.
bool differ(const std::vector<Said>& before, const std::vector<Said>& after);

}  // namespace tandem::sync
