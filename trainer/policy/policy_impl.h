// Policy's implementation: its parts, and where its state is between calls. For policy*.cpp only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/device/tier.h"
#include "trainer/data/micro_batch.h"
#include "trainer/fsdp/fully_shard.h"
#include "trainer/fsdp/shard_mesh.h"
#include "trainer/nn/decoder.h"
#include "trainer/optim/adamw.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer {

struct Policy::Impl {
    using Sleep = Policy::Sleep;

    Impl(DeviceMesh mesh_in, model::ModelConfig config_in, PolicyOptions options_in);

    // --- where the state is between calls

    // Moves every state to its place: to the tier what is offloaded or asleep and in no OnloadScope, else to
    // memory.
    void place_states();
    void place(FlatState& state, bool offloaded) {
        offloaded ? state.offload(options.offload.directory) : state.onload();
    }
    // Counts an OnloadScope that begins (+1) or ends (-1).
    void count_scope(int change, bool with_optimizer);
    // On a GPU, state that may be asked to leave memory needs pages that go.
    static Pages pages_of(bool may_leave) { return may_leave ? Pages::go : Pages::stay; }
    bool parameters_may_leave() const {
        return options.offload.parameters || options.deepest_sleep == Sleep::all;
    }

    void sleep(Sleep wanted);

    void check_resident() {
        require(fsdp.state().resident(), "the parameters are offloaded: they need a Policy::OnloadScope");
    }

    std::size_t model_parameters() const {
        return decoder.parameters().size() - (options.value_head ? 1 : 0);
    }

    int cp() const { return shard_mesh.context->size(); }

    void initialise();

    // Parameters [first, last) of a flat shard.
    std::vector<std::pair<std::string, DTensor>> as_dtensors(const Tensor& flat, std::size_t first,
                                                             std::size_t last) const;

    // body(compute, pack, batch, is_last) on this rank's part of every micro-batch, in turn.
    template <typename Body>
    int for_each_micro_batch(const std::vector<Sample>& samples, const Body& body);

    Scores score(const std::vector<Sample>& samples, const ScoreOptions& wanted);

    StepStats accumulate(const std::vector<Sample>& samples, const LossOptions& loss);

    void set_reference(const std::function<void()>& load);

    // Wakes whatever sleeps more deeply than `most`.
    void wake_for(Sleep most) {
        if (level > most) sleep(most);
    }

    const Tensor& reduced_gradients() const;

    double apply(double lr);

    void load_parameter(const std::string& name, const Tensor& full);

    DeviceMesh mesh;
    model::ModelConfig config;
    PolicyOptions options;
    ShardMesh shard_mesh;
    Stream compute = Stream::make_compute(options.device);
    Decoder decoder;
    FullyShard fsdp;
    AdamW optimizer;
    Stream ring;
    bool sync = true;
    std::optional<FlatState> reference;  // laid out like fsdp.state(), in the compute dtype; once asked for
    Sleep level = Sleep::none;
    int scopes = 0;                 // OnloadScopes that live
    int optimizer_scopes = 0;       // those of them with the optimizer
    bool gradients_in_use = false;  // accumulated and not applied
    bool gradients_released = false;
    std::vector<std::pair<std::string, DTensor>> parameters;
    std::vector<std::pair<std::string, DTensor>> extra_parameters;
};

}  // namespace tandem::trainer
