#include "trainer/policy/stage_run.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "common/error.h"

namespace tandem::trainer {
namespace {

using pipeline::Action;
using pipeline::ActionKind;

// Sends and receives that wait for their batch, and the tensors that they are of.
class Transfers {
  public:
    Transfers(comm::Communicator& pipeline, Stream& compute) : pipeline_(pipeline), compute_(compute) {}

    void send(int peer, Tensor tensor) { add(comm::P2POp::Kind::send, peer, std::move(tensor)); }
    void receive(int peer, Tensor tensor) { add(comm::P2POp::Kind::recv, peer, std::move(tensor)); }
    void run() {
        if (!ops_.empty()) compute_.wait(pipeline_.p2p(ops_, compute_).event());
        ops_.clear();
        tensors_.clear();
    }

  private:
    void add(comm::P2POp::Kind kind, int peer, Tensor tensor) {
        ops_.push_back({kind, peer, tensor.span()});
        tensors_.push_back(std::move(tensor));
    }
    comm::Communicator& pipeline_;
    Stream& compute_;
    std::vector<comm::P2POp> ops_;
    std::vector<Tensor> tensors_;
};

}  // namespace

void run_stage(const pipeline::ActionList& list, comm::Communicator& pipeline, Stream& compute,
               const StageWork& work) {
    const int here = pipeline.rank(), end = pipeline.size();
    Transfers transfers(pipeline, compute);
    for (const Action& action : list) {
        const bool forward = action.kind == ActionKind::forward;
        enforce((forward || action.kind == ActionKind::full_backward) && action.stage == here,
                "stage {} is asked for {}", here, to_string(action));
        const int from = forward ? here - 1 : here + 1, to = forward ? here + 1 : here - 1;
        const auto is_stage = [&](int stage) { return stage >= 0 && stage < end; };
        Tensor received;
        if (is_stage(from)) {
            received = work.room(action.microbatch);
            transfers.receive(from, received);
        }
        try {
            transfers.run();
        } catch (const TransportError& error) {
            throw Error(fmt::format("stage {} before {}: {}", here, to_string(action), error.what()));
        }
        Tensor made = forward ? work.forward(action.microbatch, std::move(received))
                              : work.backward(action.microbatch, std::move(received));
        if (is_stage(to)) transfers.send(to, std::move(made));
    }
    transfers.run();
}

}  // namespace tandem::trainer
