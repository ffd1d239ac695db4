// One rank's walk through its list of a pipeline's schedule: does each action when what it needs has come, and lets tensors
// travel meanwhile.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/comm/communicator.h"
#include "common/device/stream.h"
#include "common/tensor/tensor.h"
#include "trainer/pipeline/simulate.h"

namespace tandem::trainer {

// What a rank does of a micro-batch in one of its stages. Tensors are hidden states between stages, or their gradients;
// undefined where no stage is before or behind.
struct StageWork {
    std::function<Tensor(int stage, int microbatch, Tensor x)> forward;
    std::function<Tensor(int stage, int microbatch, Tensor dy)> backward, backward_input;
    std::function<void(int stage, int microbatch)> backward_weight;
    std::function<Tensor(int microbatch)> room;  // for what will be received
};

class PipelineRun {
  public:
    // Splits a group off for each direction between ranks whose stages are neighbours. Collective over `pipeline`, which must
    // outlive this, as must `compute`. `overlaps`: transfers run beside the work, each direction on a stream of its own; else
    // inline, in the order of the lists.
    PipelineRun(comm::Communicator& pipeline, std::vector<int> rank_of_stage, Stream& compute, bool overlaps);

    // Does this rank's list of lowered lists (trainer/pipeline/lower.h). UNSHARD and RESHARD are left to the stages, which
    // gather layer by layer, and REDUCE_GRAD to the last gradient of a stage. Blocking, collective over `pipeline`. Throws what
    // a communicator throws, as Error with stage, micro-batch and action before it.
    void run(const pipeline::ActionList& list, const StageWork& work);
    // When each compute action of the last run began, with its input there, and ended: milliseconds of this host's steady clock,
    // as the host sees them, which on a GPU runs ahead of the work.
    const std::vector<pipeline::Interval>& times() const { return times_; }

  private:
    // From one rank to another, in the order of the lists.
    struct Channel {
        std::shared_ptr<comm::Communicator> group;
        Stream stream;
        int peer;  // in the group
    };
    // A tensor of the list on its way: an input of an action until it is done, an output until it is sent.
    struct Travelling {
        Tensor tensor;
        comm::Work work;
    };
    using Place = std::pair<int, int>;  // stage, micro-batch

    Channel& channel_of(const pipeline::Action& send_or_recv);
    void act(const pipeline::Action& action, const StageWork& work);
    Tensor timed(const pipeline::Action& action, const std::function<Tensor()>& work);
    void send(const pipeline::Action& action);
    void receive(const pipeline::Action& action, Tensor room);
    Tensor input(std::map<Place, Travelling>& inputs, Place place);
    void forward(const pipeline::Action& action, const StageWork& work);
    void backward(const pipeline::Action& action, const std::function<Tensor(int, int, Tensor)>& work);
    bool is_here(int stage) const;
    void finish();

    std::vector<int> rank_of_stage_;
    comm::Communicator& pipeline_;
    Stream& compute_;
    std::map<std::pair<int, int>, Channel> channels_;  // [from, to]
    std::map<Place, Travelling> x_, dy_;               // inputs of forwards and of backwards
    std::map<Place, Tensor> y_, dx_;                   // outputs that are to be sent
    std::deque<Travelling> sent_;
    std::vector<pipeline::Interval> times_;
};

}  // namespace tandem::trainer
