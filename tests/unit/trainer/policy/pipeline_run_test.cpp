// The walk through a pipeline's lists: what an action gets is what its neighbour made, however transfers and work fall; a rank
// that hangs in any action is named by the others, with theirs.
#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/thread.h"
#include "tests/support/error_of.h"
#include "trainer/pipeline/plan.h"
#include "trainer/policy/pipeline_run.h"

namespace tandem::trainer::testing {
namespace {

using pipeline::Action;
using pipeline::ActionKind;
using ::testing::HasSubstr;

// As long as its micro-batch says, full of one number that says what made it.
Tensor made_by(ActionKind kind, int stage, int microbatch) {
    const Tensor tensor = Tensor::empty({microbatch + 1}, DType::float32, "test");
    const int backward = kind == ActionKind::forward ? 0 : 1;
    for (float& value : tensor.values<float>())
        value = static_cast<float>((stage * 100 + microbatch) * 2 + backward);
    return tensor;
}

void expect_made_by(const Tensor& tensor, ActionKind kind, int stage, int microbatch) {
    ASSERT_TRUE(tensor.defined());
    EXPECT_EQ(tensor.to_vector<float>(), made_by(kind, stage, microbatch).to_vector<float>())
        << "stage " << stage << " micro-batch " << microbatch;
}

// Notes what was done. before: called first in every action.
StageWork checked_work(int stages, std::vector<std::string>& done,
                       const std::function<void(const Action&)>& before) {
    StageWork work;
    const auto note = [&done, before](ActionKind kind, int stage, int microbatch) {
        const Action action{kind, stage, microbatch};
        before(action);
        done.push_back(to_string(action));
    };
    work.room = [](int microbatch) { return Tensor::zeros({microbatch + 1}, DType::float32, "test"); };
    work.forward = [=](int stage, int microbatch, const Tensor& x) {
        note(ActionKind::forward, stage, microbatch);
        if (stage > 0) expect_made_by(x, ActionKind::forward, stage - 1, microbatch);
        EXPECT_EQ(stage == 0, !x.defined());
        return made_by(ActionKind::forward, stage, microbatch);
    };
    const auto backward = [=](ActionKind kind) {
        return [=](int stage, int microbatch, const Tensor& dy) {
            note(kind, stage, microbatch);
            if (stage + 1 < stages) expect_made_by(dy, ActionKind::full_backward, stage + 1, microbatch);
            EXPECT_EQ(stage + 1 == stages, !dy.defined());
            return made_by(ActionKind::full_backward, stage, microbatch);
        };
    };
    work.backward = backward(ActionKind::full_backward);
    work.backward_input = backward(ActionKind::backward_input);
    work.backward_weight = [=](int stage, int microbatch) {
        note(ActionKind::backward_weight, stage, microbatch);
    };
    return work;
}

std::vector<std::string> compute_of(const pipeline::ActionList& list) {
    std::vector<std::string> texts;
    for (const Action& action : list) {
        for (const Action& part : parts_of(action))
            if (is_compute(part.kind)) texts.push_back(to_string(part));
    }
    return texts;
}

pipeline::Plan plan_of(const std::string& schedule, int ranks) {
    pipeline::Options options;
    options.schedule = schedule;
    return {options, ranks, 4 * ranks};
}

void walk(comm::Communicator& world, const pipeline::Plan& plan, int microbatches, bool overlaps,
          const std::function<void(const Action&)>& before) {
    Stream compute = Stream::make_inline();
    PipelineRun run(world, plan.rank_of_stage(), compute, overlaps);
    const auto rank = static_cast<std::size_t>(world.rank());
    for (const pipeline::Schedule& lists : {plan.lists(microbatches), plan.forward_lists(microbatches + 1)}) {
        std::vector<std::string> done;
        run.run(lists.ranks[rank], checked_work(plan.stages(), done, before));
        EXPECT_EQ(done, compute_of(lists.ranks[rank]));
    }
}

TEST(PipelineRun, EveryActionGetsWhatItsNeighbourMade) {
    for (const std::string& schedule : pipeline::schedule_names()) {
        for (const int ranks : {2, 3, 4}) {
            const pipeline::Plan plan = plan_of(schedule, ranks);
            const int count = plan.microbatches(2 * ranks + 1);
            // Transfers run beside work of drawn length, or after it.
            for (const bool overlaps : {true, false}) {
                comm::run_threads(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
                    std::mt19937 random(static_cast<unsigned>(world->rank()));
                    walk(*world, plan, count, overlaps, [&](const Action&) {
                        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
                    });
                });
            }
        }
    }
}

// A rank that stands still in one action until the others have given up.
struct Hang {
    std::string schedule;
    int rank;
    std::size_t action;  // of its compute actions
};

std::vector<std::string> errors_beside(const Hang& hang) {
    constexpr int kRanks = 3;
    const pipeline::Plan plan = plan_of(hang.schedule, kRanks);
    const int count = plan.microbatches(kRanks);
    std::mutex mutex;
    std::condition_variable given_up;
    std::vector<std::string> errors;
    comm::run_threads(kRanks, [&](const std::shared_ptr<comm::Communicator>& world) {
        Stream compute = Stream::make_inline();
        PipelineRun run(*world, plan.rank_of_stage(), compute, false);
        world->set_timeout(std::chrono::milliseconds(1500));
        const pipeline::ActionList list = plan.lists(count).ranks[static_cast<std::size_t>(world->rank())];
        std::vector<std::string> done;
        const StageWork work = checked_work(plan.stages(), done, [&](const Action&) {
            if (world->rank() != hang.rank || done.size() != hang.action) return;
            std::unique_lock lock(mutex);
            given_up.wait(lock, [&] { return errors.size() == kRanks - 1; });
            throw Error("it goes on, too late");
        });
        const std::string error = test::error_of([&] { run.run(list, work); });
        world->abort(error);
        if (world->rank() == hang.rank) return;
        const std::lock_guard lock(mutex);
        errors.push_back(error);
        given_up.notify_all();
    });
    return errors;
}

TEST(PipelineRun, ARankThatHangsInAnyActionIsNamed) {
    std::vector<Hang> hangs;
    for (const char* schedule : {"1F1B", "GPipe", "Interleaved1F1B", "ZBVZeroBubble"}) {
        const pipeline::Plan plan = plan_of(schedule, 3);
        for (int rank = 0; rank < 3; ++rank) {
            const auto list =
                compute_of(plan.lists(plan.microbatches(3)).ranks[static_cast<std::size_t>(rank)]);
            // The others need what it makes; not so of the last weights' gradients, or of the first rank's last backward.
            for (const std::size_t action : {std::size_t{0}, list.size() / 3, list.size() / 2})
                hangs.push_back({schedule, rank, action});
        }
    }
    std::vector<std::vector<std::string>> found(hangs.size());
    run_on_threads(hangs.size(), "of a job", [&](std::size_t i) { found[i] = errors_beside(hangs[i]); });
    for (std::size_t i = 0; i < hangs.size(); ++i) {
        ASSERT_EQ(found[i].size(), 2U);
        const std::string late = "rank " + std::to_string(hangs[i].rank);
        for (const std::string& error : found[i]) {
            EXPECT_THAT(error,
                        ::testing::MatchesRegex("(stage [0-9], micro-batch [0-9], .*|what rank [0-9] .*)"))
                << hangs[i].schedule;
            EXPECT_THAT(error, HasSubstr(late)) << hangs[i].schedule << " " << hangs[i].action;
        }
    }
}

}  // namespace
}  // namespace tandem::trainer::testing
