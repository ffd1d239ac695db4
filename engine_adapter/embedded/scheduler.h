// Continuous batching: which samples wait, which run, whose pages are whose, and one step of work at a time.
// Pure bookkeeping around the decoder; threads, clocks and the versions' state machine are in
// embedded_engine.h.
//
//   waiting ──admit: pages for all of its tokens──▶ running: prefill, decode ──last token──▶ done
//      ▲                                              │
//      └── preempt: no page for the next token, or no room for a small request; the youngest of a large
//          request goes first; keeps its tokens, loses its pages
//
// On the CPU prompts are prefilled in pieces (prefill_budget.h), so that nobody waits for a long one: a step
// is a pass over pieces, and the next one decodes whatever can. Prompts that need a single pass and longer
// ones take turns; of the longer ones the oldest goes on, and shares a pass with the one that has least
// before it. A request of which a prompt is left to prefill does not ask for decode in between: it is answered
// as a whole, and its samples decode fastest side by side.
//
// Small and large requests wait in queues of their own, each first come, first served. The small ones have half of the
// places and pages to themselves when they want them, so that no large request delays them for long; what either
// queue does not use, the other takes. One sample of the large ones always runs on.
//
// A sample's tokens depend on its prompt, its parameters and its seed only, never on what runs beside it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine_adapter/embedded/decoder.h"
#include "engine_adapter/embedded/prefill_budget.h"
#include "engine_adapter/embedded/request.h"

namespace tandem::engine {

// A request in work. Samples are numbered prompt by prompt.
struct Job {
    GenerateRequest request;
    std::vector<SampleOutput> outputs;
    std::vector<std::uint64_t> seeds;  // of each prompt
    std::size_t unfinished = 0;
    bool small = false;  // Scheduler::add() finds it
};

struct SchedulerOptions {
    std::int64_t max_running = 256;
    std::int64_t prefill_tokens = 4096;  // in one pass; on a GPU: unless a single prompt is longer
    std::int64_t piece_tokens = 0;       // PrefillBudget's fixed_tokens; 0: by time
    std::vector<std::int32_t> eos_token_ids;
};

struct SchedulerCounts {
    std::size_t waiting = 0;
    std::size_t running = 0;
    std::uint64_t prefill_tokens = 0;  // so far
    std::uint64_t decode_tokens = 0;
    std::uint64_t preemptions = 0;
    GraphCounts graphs;  // of decode steps
};

class Scheduler {
  public:
    Scheduler(const SchedulerOptions& options, Decoder& decoder, KvCache& cache);

    // Queues every sample of the job. Each must fit into the cache alone (prompt + max_new_tokens).
    void add(const std::shared_ptr<Job>& job);
    // Drops the job's samples that wait or run, and their pages. They keep their tokens, as Finish::abort.
    void remove(const Job& job);
    // The same of some of its prompts, by their index: the others' samples go on.
    void abort(Job& job, const std::vector<bool>& prompts);

    bool has_work() const { return waiting() > 0 || !running_.empty(); }
    // One pass of prefill or one decode step with weights of this version, which must be the one of the
    // pieces before: see restart_all. A sample that starts now carries it. May throw; the jobs can then still
    // be removed.
    void step(std::int64_t version);
    // How long the last step took: later pieces are cut by that.
    void took(double seconds) { budget_.took(operations_, seconds); }
    // Sends the running samples back to the queue, without their pages. They keep their tokens.
    void retract_all();
    // After a change of weights: unfinished samples go back to the queue and forget their tokens.
    void restart_all();

    SchedulerCounts counts() const;

  private:
    // Tokens on their way into the cache, for all samples that begin with them.
    struct Prefill {
        std::vector<std::int32_t> tokens;
        std::int64_t done = 0;  // are in the pages: up to the end of one
        std::int64_t left() const { return static_cast<std::int64_t>(tokens.size()) - done; }
    };
    struct Sample {
        std::shared_ptr<Job> job;
        std::size_t output = 0;    // index in job->outputs
        std::uint64_t order = 0;   // of arrival
        std::uint64_t stream = 0;  // of random numbers
        std::vector<std::int32_t> pages;
        std::shared_ptr<Prefill> prefill;  // while it is running and not all of its tokens are in the pages
        std::int64_t cached = 0;           // positions whose k and v are in the pages, once prefill has ended

        SampleOutput& out() const { return job->outputs[output]; }
        const Prompt& prompt() const { return job->request.prompts[out().prompt]; }
        std::vector<std::int32_t> tokens() const;  // prompt and output so far
    };
    using Queue = std::deque<Sample>;  // by order
    // What samples of small requests hold.
    struct Held {
        std::int64_t samples = 0;
        std::int64_t pages = 0;
        void add(const Sample& sample);
    };
    // The next tokens of a prefill; `first`: of its samples in running_, the first.
    struct Piece {
        std::size_t first = 0;
        std::int64_t count = 0;
    };

    std::size_t waiting() const { return waiting_[0].size() + waiting_[1].size(); }
    Queue& queue_of(const Job& job) { return waiting_[job.small ? 1 : 0]; }
    bool has_share(const Held& small) const;
    Queue* next_queue(const Held& small);
    void admit();
    std::vector<std::size_t> unfinished_prefills() const;  // the first sample of each, in running_
    // Whether a sample can decode whose request has none among `prefills`.
    bool decode_is_urgent(const std::vector<std::size_t>& prefills) const;
    std::vector<Piece> whole_prompts(const std::vector<std::size_t>& prefills) const;
    std::vector<Piece> next_pieces(const std::vector<std::size_t>& prefills);
    std::vector<Piece> pieces_of_long(const std::vector<std::size_t>& prefills, double operations) const;
    void prefill(const std::vector<Piece>& pieces, std::int64_t version);
    // Its tokens are in the pages of its first sample: the others take what they do not share.
    void end_prefill(std::size_t first, std::int64_t version, std::vector<std::size_t>& samples);
    void decode();
    void make_room_for_next_tokens();
    std::optional<std::size_t> youngest_large() const;
    void preempt(std::size_t index);
    void retract(Sample sample);
    // Gives each of these samples of running_ its next token, from its row of logits, and drops the finished
    // ones.
    void advance(const std::vector<std::size_t>& samples, const std::vector<std::size_t>& rows,
                 const Tensor& logits);
    bool finished(const Sample& sample) const;
    void release_pages(Sample& sample);
    // Those of one job that wait or run and are of `wanted` prompts. Returns how many there were.
    template <typename Wanted>
    std::size_t drop(const Job& job, const Wanted& wanted);

    SchedulerOptions options_;
    Decoder& decoder_;
    KvCache& cache_;
    std::array<Queue, 2> waiting_;  // of large requests, of small ones
    std::vector<Sample> running_;   // by admission
    std::uint64_t next_order_ = 0;
    PrefillBudget budget_;
    double operations_ = 0;      // of the last step's prefill
    bool decode_turn_ = false;   // the last step was prefill
    bool short_before_ = false;  // the last pass of prefill left long prompts waiting
    SchedulerCounts counts_;
};

}  // namespace tandem::engine
