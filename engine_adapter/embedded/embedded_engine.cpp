#include "engine_adapter/embedded/embedded_engine.h"

#include <algorithm>
#include <future>
#include <memory>
#include <utility>

#include "common/device/devices.h"
#include "common/error.h"
#include "common/log.h"
#include "common/mix.h"

namespace tandem::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kGonePoll = std::chrono::milliseconds(100);
constexpr auto kBeginTimeout =
    std::chrono::seconds(60);  // for the step or work under way when an update begins

// Called when the weights have been allocated.
std::int64_t decide_kv_tokens(const model::ModelConfig& config, const EmbeddedOptions& options) {
    std::int64_t tokens = options.kv_tokens;
    if (tokens <= 0) {
        double bytes = std::size_t{1} << 30;
        std::int64_t most = 65536;
        if (options.device.type == DeviceType::cuda) {
            bytes = options.kv_fraction * static_cast<double>(free_bytes(options.device));
            most = options.max_running * config.max_position_embeddings;  // no more could be filled
        }
        const auto of_one = static_cast<double>(KvCache::bytes_per_token(config, options.dtype));
        tokens = std::clamp(static_cast<std::int64_t>(bytes / of_one), options.page_size,
                            std::max(most, options.page_size));
    }
    return (tokens + options.page_size - 1) / options.page_size * options.page_size;
}

SchedulerOptions scheduler_options(const model::ModelConfig& config, const EmbeddedOptions& options) {
    SchedulerOptions result{.max_running = options.max_running,
                            .prefill_tokens = options.prefill_tokens,
                            .piece_tokens = options.piece_tokens,
                            .eos_token_ids = config.more_eos_token_ids};
    if (config.eos_token_id >= 0) result.eos_token_ids.push_back(config.eos_token_id);
    return result;
}

}  // namespace

// --- its life

EmbeddedEngine::EmbeddedEngine(const model::ModelConfig& config, const EmbeddedOptions& options)
    : config_(config),
      options_(options),
      stream_(Stream::make_compute(options.device)),
      weights_(config, options.dtype, stream_),
      cache_(config, options.dtype, options_.kv_tokens = decide_kv_tokens(config, options), options.page_size,
             options.device),
      decoder_(config_, weights_, cache_, stream_, options.packed_weights, !options.disable_cuda_graph,
               options.sum_parts),
      scheduler_(scheduler_options(config, options), decoder_, cache_),
      pages_total_(cache_.pool().total()),
      pages_free_(pages_total_) {
    stream_.synchronize();  // a receiver may write to the weights from here on
    log_info("the KV cache holds {} tokens in {:.2f} GiB", options_.kv_tokens,
             static_cast<double>(options_.kv_tokens) *
                 static_cast<double>(KvCache::bytes_per_token(config, options.dtype)) / 0x1p30);
}

EmbeddedEngine::~EmbeddedEngine() {
    stop();
}

void EmbeddedEngine::load(const std::string& directory, std::int64_t version) {
    weights_.load(config_, directory, stream_);
    const std::lock_guard lock(mutex_);
    state_ = WeightState::whole;
    version_ = version;
    reason_.clear();
}

void EmbeddedEngine::start() {
    thread_ = Thread("of the engine", [this] { run(); });
}

void EmbeddedEngine::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

// --- requests, and what the queue has room for

bool EmbeddedEngine::has_room(const GenerateRequest& request) const {
    if (live_.empty()) return true;
    Queued all = queued_, large = queued_large_;
    all.add(request, 1);
    large.add(request, 1);
    return all.within(options_.max_queued_samples, options_.max_queued_tokens) &&
           (request.small() || large.within(options_.max_queued_samples / 2, options_.max_queued_tokens / 2));
}

void EmbeddedEngine::Queued::add(const GenerateRequest& request, std::int64_t sign) {
    samples += sign * request.samples();
    tokens += sign * request.prompt_tokens();
}

bool EmbeddedEngine::Queued::within(std::int64_t most_samples, std::int64_t most_tokens) const {
    return samples <= most_samples && tokens <= most_tokens;
}

void EmbeddedEngine::count(const GenerateRequest& request, std::int64_t sign) {
    queued_.add(request, sign);
    if (!request.small()) queued_large_.add(request, sign);
}

void EmbeddedEngine::generate(GenerateRequest request, Done done, std::function<bool()> gone) {
    auto job = std::make_shared<Job>();
    job->request = std::move(request);
    const std::lock_guard lock(mutex_);
    if (!has_room(job->request)) {
        GenerateResult full;
        full.status = {Code::unavailable,
                       fmt::format("the queue is full: {} samples of {} prompt tokens are waiting or running",
                                   queued_.samples, queued_.tokens)};
        answers_.push_back({std::move(done), std::move(full)});
        changed_.notify_all();
        return;
    }
    count(job->request, 1);
    const std::uint64_t own = mix(options_.random_seed ^ mix(requests_++));
    for (const Prompt& prompt : job->request.prompts) job->seeds.push_back(prompt.params.seed.value_or(own));
    live_.push_back({std::move(job), std::move(done), std::move(gone), Clock::now()});
    changed_.notify_all();
}

void EmbeddedEngine::abort(const std::string& id) {
    const std::lock_guard lock(mutex_);
    aborts_.push_back(id);
    changed_.notify_all();
}

void EmbeddedEngine::when_idle(Deadline deadline, std::function<void(bool)> done) {
    const std::lock_guard lock(mutex_);
    idle_waiters_.push_back({deadline, std::move(done)});
    changed_.notify_all();
}

// --- pauses, work between two steps, how things stand

void EmbeddedEngine::pause_generation(PauseMode mode, std::function<void()> paused) {
    const std::lock_guard lock(mutex_);
    paused_ = true;
    pauses_.push_back({mode, std::move(paused)});
    changed_.notify_all();
}

void EmbeddedEngine::continue_generation() {
    const std::lock_guard lock(mutex_);
    paused_ = false;
    changed_.notify_all();
}

// Samples that run start again on the new weights.
void EmbeddedEngine::pause(Deadline deadline) {
    auto paused = std::make_shared<std::promise<void>>();
    auto ready = paused->get_future();
    bool was_held = false;
    {
        const std::lock_guard lock(mutex_);
        was_held = std::exchange(held_, true);
        pauses_.push_back({PauseMode::retract, [paused] { paused->set_value(); }});
        changed_.notify_all();
    }
    if (ready.wait_until(deadline.at()) == std::future_status::ready) return;
    if (!was_held) resume();  // an earlier pause holds on
    throw DeadlineExceeded("the engine", "pause", "the step under way did not end in time");
}

void EmbeddedEngine::resume() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
}

double EmbeddedEngine::packed_ms() const {
    const std::lock_guard lock(mutex_);
    return packed_ms_;
}

void EmbeddedEngine::between_steps(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
}

EngineState EmbeddedEngine::state() const {
    const std::lock_guard lock(mutex_);
    return {state_, version_, refusal(), paused_ || held_, held_, counts_, pages_free_, pages_total_};
}

std::int64_t EmbeddedEngine::version() const {
    const std::lock_guard lock(mutex_);
    return state_ == WeightState::none || state_ == WeightState::broken ? 0 : version_;
}

// --- versions: WeightTarget

void EmbeddedEngine::begin_update(std::int64_t version) {
    std::unique_lock lock(mutex_);
    const auto paused = [this] { return paused_ || held_; };
    enforce(paused(), "version {} cannot begin: generation is not paused", version);
    enforce(state_ != WeightState::updating, "version {} cannot begin: version {} is being written", version,
            next_version_);
    enforce(!weights_.released(), "version {} cannot begin: the weights' memory is released", version);
    ++updates_waiting_;  // before anything else that is to be done between two steps
    const bool quiet = changed_.wait_for(lock, kBeginTimeout, [this] { return !busy_; });
    --updates_waiting_;
    changed_.notify_all();
    enforce(quiet && paused() && !weights_.released() && state_ != WeightState::updating,
            "version {} cannot begin: the engine did not come to rest", version);
    state_ = WeightState::updating;
    next_version_ = version;
    changed_.notify_all();
}

// While an update is open nothing is generated (begin_update waited for that), so nothing reads the weights.
void EmbeddedEngine::point_weights(const std::vector<Span>& memory, std::shared_ptr<const void> owner) {
    const std::lock_guard lock(mutex_);
    enforce(state_ == WeightState::updating, "the weights can only be moved while an update is open");
    weights_.point(memory, std::move(owner));
}

void EmbeddedEngine::withhold(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    state_ = WeightState::broken;
    version_ = 0;
    reason_ = reason;
    changed_.notify_all();
}

// Refuses first, so that no further step begins; the one that runs may still read the memory.
void EmbeddedEngine::lose_weights(const std::string& reason) {
    std::unique_lock lock(mutex_);
    state_ = WeightState::broken;
    version_ = 0;
    reason_ = reason;
    changed_.notify_all();
    if (!changed_.wait_for(lock, kBeginTimeout, [this] { return !busy_; })) {
        log_error("the step that reads the lost weights does not end: they stay mapped");
        return;
    }
    std::vector<Span> own;
    for (const WeightSlot& slot : weights_.slots()) own.push_back(slot.memory);
    weights_.point(own, nullptr);
}

void EmbeddedEngine::commit_update(std::int64_t version) {
    const std::lock_guard lock(mutex_);
    enforce(state_ == WeightState::updating && version == next_version_,
            "version {} cannot be committed: it was not begun", version);
    weights_.changed();
    log_info("version {} is committed, after version {}", version, version_);
    state_ = WeightState::whole;
    version_ = version;
    packed_ms_ = 0;
    reason_.clear();
    restart_ = true;
    changed_.notify_all();
}

void EmbeddedEngine::abort_update(const std::string& reason, bool dirty) {
    const std::lock_guard lock(mutex_);
    enforce(state_ == WeightState::updating, "there is no update to abort: {}", reason);
    if (dirty) {
        state_ = WeightState::broken;
        version_ = 0;
        reason_ = fmt::format("the update to version {} failed and left no whole version: {}", next_version_,
                              reason);
    } else {
        state_ = reason_.empty() ? WeightState::whole : WeightState::none;  // as it was before
    }
    changed_.notify_all();
}

// --- memory that somebody else has use for

void EmbeddedEngine::release_memory(bool kv_cache, bool weights) {
    const std::lock_guard lock(mutex_);
    enforce(live_.empty(), "{} requests are there: memory is released of an idle engine only", live_.size());
    decoder_.release_graphs();
    if (weights && !weights_.released()) {
        enforce(state_ != WeightState::updating,
                "the weights cannot be released: version {} is being written", next_version_);
        weights_.release();
        decoder_.release_packed();
        state_ = WeightState::none;
        reason_ = "the weights' memory was released: resume it and publish a version";
    }
    if (kv_cache) cache_.release();
    trim_cpu_pool();
    if (device() != Device{}) trim_device_pool(device());
}

void EmbeddedEngine::restore_memory(bool kv_cache, bool weights) {
    const std::lock_guard lock(mutex_);
    if (kv_cache) cache_.restore();
    if (weights && weights_.released()) {
        weights_.restore();
        reason_ = "the weights' memory is back and holds no version yet: publish one";
    }
    changed_.notify_all();
}

// --- the engine's thread

// Why requests are refused now; empty when they run or wait.
std::string EmbeddedEngine::refusal() const {
    if (cache_.released()) return "the cache's memory is released: /resume_memory_occupation brings it back";
    return state_ == WeightState::none || state_ == WeightState::broken ? reason_ : "";
}

bool EmbeddedEngine::may_step() const {
    return !paused_ && !held_ && state_ == WeightState::whole && scheduler_.has_work();
}

void EmbeddedEngine::run() {
    stream_.use_for_allocations();
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return updates_waiting_ == 0 || stopping_; });
        std::vector<std::function<void()>> calls = serve_requests();
        const bool step = !stopping_ && may_step();
        if (calls.empty() && !step) {
            if (stopping_) return;
            if (live_.empty()) {
                changed_.wait(lock);
            } else {
                changed_.wait_for(lock, kGonePoll);
            }
            continue;
        }
        const std::int64_t version = version_;
        busy_ = true;
        lock.unlock();
        for (const auto& call : calls) {
            try {
                call();
            } catch (const std::exception& error) {
                log_error("an answer could not be given: {}", error.what());
            }
        }
        std::string failure;
        if (step) {
            try {
                const auto begun = Clock::now();
                scheduler_.step(version);
                scheduler_.took(std::chrono::duration<double>(Clock::now() - begun).count());
            } catch (const std::exception& error) {
                failure = error.what();
                log_error("generation failed: {}", failure);
            }
        }
        lock.lock();
        busy_ = false;
        if (step) packed_ms_ = decoder_.packed_ms();
        if (!failure.empty()) answer_all({Code::internal, "generation failed: " + failure});
        changed_.notify_all();
    }
}

}  // namespace tandem::engine
