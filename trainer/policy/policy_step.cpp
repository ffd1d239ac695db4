// The optimizer's step of a policy, and what keeps it from making weights infinite or NaN: the gradients are looked at
// before it, by their norm, and its results as they are written.
#include <cmath>
#include <limits>

#include "common/mesh/dist_reduce.h"
#include "common/ops/elementwise.h"
#include "common/ops/finite.h"
#include "common/trace.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer {

namespace {

// Gradients up to here, squared or over the square root of a small moment, are far from the end of float32.
constexpr double kFarFromOverflow = 1e15;

// True on one of the ranks of tp and pp that hold the same part of a parameter.
bool is_counted(const Holding& holding) {
    for (int axis = 0; axis < holding.mesh.ndim(); ++axis) {
        const auto at = static_cast<std::size_t>(axis);
        const std::string& name = holding.mesh.names()[at];
        if ((name.starts_with("tp") || name.starts_with("pp")) && holding.placements[at].is_replicate() &&
            holding.mesh.coordinate(axis) != 0)
            return false;
    }
    return true;
}

}  // namespace

// Of the parameters that lie on several ranks of tp or pp those of one rank. Without such that is all of it, in one piece.
std::vector<Tensor> Policy::gradients_to_count() const {
    const Tensor& all = reduced_gradients();
    const FlatShards& layout = fsdp_.layout();
    std::vector<Tensor> parts;
    std::int64_t begin = 0;
    const auto end_at = [&](std::int64_t end) {
        if (begin < end) parts.push_back(all.rows(begin, end - begin));
    };
    for (const std::vector<int>& group : decoder_.groups()) {
        for (const int member : group) {
            const Holding& holding = holdings_[static_cast<std::size_t>(member)];
            if (is_counted(holding)) continue;
            const FlatShards::Entry& entry = layout.entry(member);
            end_at(entry.offset);
            begin = entry.offset + entry.padded_numel();
        }
    }
    end_at(all.numel());
    return parts;
}

double Policy::apply(double lr) {
    const trace::Scope scope("optimizer", "trainer");
    const MemoryPhase phase("optimizer");
    own_allocations();
    wake_for(Sleep::none);
    // A sum of squares in fp64 is finite where every element is.
    const double norm = global_norm(compute_, gradients_to_count(), *shard_mesh_.distinct);
    if (anywhere(!std::isfinite(norm)))
        return std::isfinite(norm) ? std::numeric_limits<double>::quiet_NaN() : norm;
    const float scale = clip_scale(norm, options_.clip_grad_norm);
    non_finite_before();
    if (would_overflow(lr, scale, norm)) return std::numeric_limits<double>::infinity();
    const std::int64_t non_finite =
        optimizer_.step(compute_, fsdp_.state(), fsdp_.gradients(), lr, scale, fsdp_.rounded_for_step());
    fsdp_.step_done();
    check_step(non_finite);
    discard_gradients();
    return norm;
}

// Whether the step makes something infinite or NaN. Gradients that are far from it are not looked at one by one.
bool Policy::would_overflow(double lr, float scale, double norm) {
    if (norm * static_cast<double>(scale) < kFarFromOverflow) return false;
    const std::int64_t after = optimizer_.look(compute_, fsdp_.state(), fsdp_.gradients(), lr, scale);
    return anywhere(after > *non_finite_before_);
}

// The last net: a step that was let through has left more elements infinite or NaN than there were. None becomes finite
// again, so their number tells.
void Policy::check_step(std::int64_t non_finite) {
    if (!anywhere(non_finite > *non_finite_before_)) return;
    throw Error(
        fmt::format("the optimizer's step made weights or moments infinite or NaN from a finite loss and "
                    "finite gradients: {}; "
                    "nothing of it is saved or published",
                    text_of(non_finite_weights())));
}

void Policy::discard_gradients() {
    fsdp_.discard_gradients();
    gradients_in_use_ = false;
}

std::vector<NonFiniteTensor> Policy::non_finite_gradients() {
    own_allocations();
    return tandem::trainer::find_non_finite(gradients(), compute_, *shard_mesh_.world);
}

std::vector<NonFiniteTensor> Policy::non_finite_weights() {
    const OnloadScope onloaded(*this);
    auto found = find_non_finite(as_dtensors(fsdp_.shards(), Which::both), compute_, *shard_mesh_.world);
    if (!non_finite_before_) non_finite_before_ = ops::find_non_finite(compute_, fsdp_.shards()).count;
    return found;
}

std::vector<NonFiniteTensor> Policy::non_finite_reference() {
    const OnloadScope onloaded(*this);
    return find_non_finite(reference_parameters(), compute_, *shard_mesh_.world);
}

std::int64_t Policy::non_finite_before() {
    if (!non_finite_before_) {
        const OnloadScope onloaded(*this);
        non_finite_before_ = ops::find_non_finite(compute_, fsdp_.shards()).count;
    }
    return *non_finite_before_;
}

bool Policy::anywhere(bool here) {
    return max_over(here ? 1 : 0, *shard_mesh_.world) > 0;
}

}  // namespace tandem::trainer
