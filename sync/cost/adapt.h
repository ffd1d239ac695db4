// Follows a machine that changes: which costs hold now, when to measure them again, and when other buckets are worth the
// change. Pure: told what was seen, by a clock of the caller's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "sync/cost/cores.h"
#include "sync/cost/predict.h"

namespace tandem::sync {

class Adapt {
  public:
    static constexpr int kSeen = 2;      // pushes in a row that see another state before it counts
    static constexpr int kStrange = 3;   // pushes in a row that take another time than they did
    static constexpr double kOff = 1.3;  // … by this factor
    // Buckets are changed only for more than this factor: more than measuring and predicting are out by.
    static constexpr double kWorth = 1.1;
    // Pushes in a state until its costs are measured again, each time twice as many: it may have been busy meanwhile.
    static constexpr int kAgain = 64;
    // Of the time since the session began, for measuring again; the first look at each state is free.
    static constexpr double kShare = 0.02;

    Adapt(std::size_t bytes, const Buckets& requested, double now_ms)
        : bytes_(bytes), requested_(requested), began_ms_(now_ms) {
        wait_.fill(kAgain);
    }

    // Costs of a state, measured or remembered. With what it took, where that counts. What was measured after kAgain pushes
    // does not replace what predicts those better.
    void know(Cores cores, const Costs& costs, double spent_ms = 0);
    const std::optional<Costs>& known(Cores cores) const { return costs_[static_cast<std::size_t>(cores)]; }

    void begin(Cores cores) { cores_ = cores; }
    // Before a push. True: measure costs now, for cores(), and know() them.
    bool look(Cores seen, double now_ms);
    Cores cores() const { return cores_; }

    // The buckets for the push; those that it had before, if others are not worth the change. Costs must be known.
    Buckets choose();
    Prediction predicted() const;  // with these
    void pushed(double ms);        // prepare and pause to resume

  private:
    const Costs& costs() const;
    double push_ms(const Costs& costs, const Buckets& buckets) const;
    bool predicts_worse(const Costs& costs) const;  // than those known, the pushes since
    void forget_usual();

    const std::size_t bytes_;
    const Buckets requested_;
    const double began_ms_;
    std::array<std::optional<Costs>, kCoresStates> costs_;
    std::array<int, kCoresStates> pushes_{};  // since costs were measured
    std::array<int, kCoresStates> wait_;      // so many, then they are measured again
    bool again_ = false;                      // they are, for that
    Cores cores_ = Cores::unknown;            // that buckets are chosen for
    int seen_ = 0;                            // pushes in a row that saw another
    Cores other_ = Cores::unknown;
    std::optional<Buckets> active_;
    std::vector<double> first_;  // measured over predicted, of the first pushes like these
    double usual_ = 0;           // their median; 0: not yet
    int strange_ = 0;
    double spent_ms_ = 0, last_ms_ = 0;  // of measuring again
};

}  // namespace tandem::sync
