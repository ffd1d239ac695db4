// The engine that ships: owns weights, cache and decoder, runs the scheduler in a thread of its own, and
// refuses to generate from mixed weights. Every public call is thread-safe.
//
//   weights    what they hold                   generate requests         left by
//   none       no version, or memory released   refused with the reason   begin_update
//   whole      one version                      run, wait while paused    begin_update
//                                                                         lose_weights → broken
//                                                                         release_memory → none
//   updating   mixed: parts of two versions     wait                      commit_update → whole
//                                                                         abort_update → as before, or broken
//   broken     mixed: an update failed          refused with the reason   begin_update
//              half-way; or lost
//
// withhold takes whole weights to broken too: they are one version, but not to be served.
//
// Generation is paused for whoever asked (pause_generation) and for the trainer that pushes (pause); each ends its own. A forward pass only ever runs on whole weights and while not paused. commit_update makes every unfinished
// sample start again from its prompt, so no sample holds tokens of two versions.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/thread.h"
#include "engine_adapter/embedded/scheduler.h"

namespace tandem::engine {

struct EmbeddedOptions {
    Device device;
    DType dtype = DType::float32;
    bool packed_weights = true;       // a copy of the matrices that matmuls read faster (packed_weights.h)
    int sum_parts = 1;                // of o and down, as a trainer's ranks of tp sum them (decoder.h)
    bool disable_cuda_graph = false;  // on a GPU: decode steps are launched kernel by kernel (decode_steps.h)
    // 0: on the CPU as many as fit in 1 GiB, at most 65536; on a GPU as many as fit in kv_fraction of what is
    // free when the weights have their memory, at most what max_running samples of full length hold.
    std::int64_t kv_tokens = 0;
    double kv_fraction = 0.8;
    std::int64_t page_size = 16;
    std::int64_t max_running = 256;
    std::int64_t prefill_tokens = 4096;  // scheduler.h
    std::int64_t piece_tokens = 0;  // scheduler.h; for tests: where prompts are cut does not follow the time
    // Requests without a seed: their seed follows from this and from how many requests came before. Engines that serve
    // together need one each.
    std::uint64_t random_seed = 0;
    std::chrono::milliseconds request_timeout{600'000};  // from arrival to the last token, waiting included
    // Of all requests that are not answered yet. More are answered "unavailable", unless the engine is idle. Large
    // requests (scheduler.h) fill at most half, so that small ones are taken whatever large ones wait.
    std::int64_t max_queued_samples = 131'072;
    std::int64_t max_queued_tokens = std::int64_t{16} << 20;  // of prompts
};

enum class PauseMode : std::uint8_t {
    abort,     // running and waiting requests are answered with what they have
    retract,   // running samples go back to the queue and lose their cache
    in_place,  // running samples stay as they are
};

enum class WeightState : std::uint8_t { none, whole, updating, broken };

struct EngineState {
    WeightState weights = WeightState::none;
    std::int64_t version = 0;  // of the last whole version; 0: none
    std::string reason;        // why requests are refused; empty when they are not
    bool paused = false;       // for anybody
    bool paused_for_trainer = false;
    SchedulerCounts counts;
    std::int32_t pages_free = 0;
    std::int32_t pages_total = 0;
};

class EmbeddedEngine final : public WeightTarget {
  public:
    using Done = std::function<void(GenerateResult)>;

    EmbeddedEngine(const model::ModelConfig& config, const EmbeddedOptions& options);
    ~EmbeddedEngine() override;  // stop()
    EmbeddedEngine(const EmbeddedEngine&) = delete;
    EmbeddedEngine& operator=(const EmbeddedEngine&) = delete;

    void load(const std::string& directory, std::int64_t version);  // before start(); throws ConfigError
    void start();
    void stop();  // unfinished requests are answered "the engine is shutting down"

    // Queues a request that was checked (request_json.h). `done` is called once, from the engine's thread;
    // `gone` is asked now and then whether the client has gone away.
    void generate(GenerateRequest request, Done done, std::function<bool()> gone = {});
    // Ends the prompts whose id begins with this one, or is this one where it is ours (GenerateRequest::named), with the
    // tokens that they have; the others of their requests go on. Empty: all.
    void abort(const std::string& id);
    // Calls `done` from the engine's thread between two steps: true once no request is there, false when the deadline
    // passes before, or the engine stops.
    void when_idle(Deadline deadline, std::function<void(bool)> done);
    // `paused` is called from the engine's thread when no forward pass runs and none will start before
    // continue_generation().
    void pause_generation(PauseMode mode, std::function<void()> paused);
    void continue_generation();
    // Runs `work` in the engine's thread, between two steps: while it runs nothing is generated and no update
    // begins.
    void between_steps(std::function<void()> work);
    // Release the pages of the cache or of the weights to the system, and restore them, at the same
    // addresses. Call from between_steps, while there are no requests. Requests are refused until the cache
    // is restored and, after a release of the weights, until a version has been committed: what they held is
    // lost. Throw InvalidArgument.
    void release_memory(bool kv_cache, bool weights);
    void restore_memory(bool kv_cache, bool weights);

    EngineState state() const;
    // As the engine reads them now; valid between two steps (between_steps) or while nothing runs.
    std::vector<WeightSlot> current_weights() const { return weights_.current(); }
    const model::ModelConfig& config() const { return config_; }
    const EmbeddedOptions& options() const { return options_; }  // with kv_tokens decided

    // WeightTarget
    const std::vector<WeightSlot>& weights() const override { return weights_.slots(); }
    std::int64_t version() const override;
    void pause(Deadline deadline) override;
    void resume() override;
    double packed_ms() const override;
    void begin_update(std::int64_t version) override;
    void commit_update(std::int64_t version) override;
    void abort_update(const std::string& reason, bool dirty) override;
    Device device() const override { return options_.device; }
    std::optional<model::Architecture> architecture() const override { return model::Architecture(config_); }
    std::int64_t context_length() const override { return config_.max_position_embeddings; }
    bool can_alias() const override { return true; }
    void point_weights(const std::vector<Span>& memory, std::shared_ptr<const void> owner) override;
    void withhold(const std::string& reason) override;
    void lose_weights(const std::string& reason) override;

  private:
    struct Live {
        std::shared_ptr<Job> job;
        Done done;
        std::function<bool()> gone;
        std::chrono::steady_clock::time_point arrived;
    };
    struct Answer {
        Done done;
        GenerateResult result;
    };
    struct Pause {
        PauseMode mode;
        std::function<void()> paused;
    };

    struct IdleWaiter {
        Deadline deadline;
        std::function<void(bool)> done;
    };

    void run();
    // With the lock held and no step running (embedded_engine_requests.cpp). Returns what to call without the
    // lock.
    std::vector<std::function<void()>> serve_requests();
    void apply_aborts();
    void serve_idle_waiters(std::vector<std::function<void()>>& calls);
    void drop_late_and_gone();
    bool may_step() const;
    std::string refusal() const;
    // What requests that are not answered yet take of the queue.
    struct Queued {
        std::int64_t samples = 0;
        std::int64_t tokens = 0;  // of prompts
        void add(const GenerateRequest& request, std::int64_t sign);
        bool within(std::int64_t most_samples, std::int64_t most_tokens) const;
    };
    bool has_room(const GenerateRequest& request) const;
    void count(const GenerateRequest& request, std::int64_t sign);
    void answer(std::list<Live>::iterator live, Status status);
    void answer_all(const Status& status);

    const model::ModelConfig config_;
    EmbeddedOptions options_;
    Stream stream_;  // used by the scheduler's thread; before start(), by load()
    ModelWeights weights_;
    KvCache cache_;
    Decoder decoder_;
    Scheduler scheduler_;  // used by the engine's thread while busy_, else under mutex_

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::list<Live> live_;
    Queued queued_;  // live_
    Queued queued_large_;
    std::vector<Answer> answers_;
    std::vector<Pause> pauses_;
    std::vector<std::string> aborts_;
    std::vector<IdleWaiter> idle_waiters_;
    std::deque<std::function<void()>> work_;
    SchedulerCounts counts_;
    const std::int32_t pages_total_;
    std::int32_t pages_free_;
    std::uint64_t requests_ = 0;
    bool paused_ = false;      // by pause_generation
    bool held_ = false;        // by pause, for a trainer
    int updates_waiting_ = 0;  // for the engine's thread to come to rest
    bool busy_ = false;        // the engine's thread works outside the lock
    bool stopping_ = false;
    bool restart_ = false;  // a commit happened
    WeightState state_ = WeightState::none;
    std::int64_t version_ = 0;
    std::int64_t next_version_ = 0;
    double packed_ms_ = 0;  // what packing the version took; 0: not yet used
    std::string reason_ = "no weights have been loaded yet";
    Thread thread_;
};

}  // namespace tandem::engine
