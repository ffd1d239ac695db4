// What is behind Policy: the parts, and where its state is between calls. For policy*.cpp only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/device/tier.h"
#include "common/log.h"
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

    // --- what is where between calls

    void park(FlatState& state) { state.park(options.offload.directory); }

    // Everything where it belongs when nobody holds it: offloaded or asleep in the tier, else in memory.
    void settle();
    void place(FlatState& state, bool parked) { parked ? park(state) : state.fetch(); }
    // Of a GPU: what may be asked to leave memory has pages that go.
    static Pages pages_of(bool may_leave) { return may_leave ? Pages::go : Pages::stay; }
    bool parameters_may_leave() const {
        return options.offload.parameters || options.deepest_sleep == Sleep::all;
    }

    void sleep(Sleep wanted);

    // Keeps what is offloaded or asleep in memory while it lives.
    class Hold {
      public:
        Hold(Impl& impl, bool optimizer) : impl_(impl), optimizer_(optimizer) {
            impl_.hold(+1, optimizer_);
            impl_.compute.synchronize();
        }
        ~Hold() {
            try {
                impl_.hold(-1, optimizer_);
            } catch (const std::exception& error) {
                log_error("state stays in memory: {}", error.what());
            }
        }
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;

      private:
        Impl& impl_;
        bool optimizer_;
    };

    void check_resident() {
        require(fsdp.state().resident(), "the parameters are in the tier: hold a Policy::Residence");
    }

    void hold(int change, bool with_optimizer);

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

    // At most this much may sleep from here on.
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
    std::optional<FlatState>
        reference;  // flat, like fsdp.state(), in the compute dtype; from when it is asked for
    Sleep level = Sleep::none;
    int holders = 0;  // Residences; of them with the optimizer
    int optimizer_holders = 0;
    bool gradients_in_use = false;  // accumulated and not applied
    bool gradients_released = false;
    std::vector<std::pair<std::string, DTensor>> parameters;
    std::vector<std::pair<std::string, DTensor>> extra_parameters;
};

}  // namespace tandem::trainer
