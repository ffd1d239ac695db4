#include "engine_adapter/embedded/scheduler.h"

#include <algorithm>

#include "common/error.h"
#include "common/ops/sampling.h"
#include "engine_adapter/embedded/random.h"

namespace tandem::engine {

Scheduler::Scheduler(const SchedulerOptions& options, Decoder& decoder, KvCache& cache)
    : options_(options),
      decoder_(decoder),
      cache_(cache),
      budget_(decoder.config(), cache.page_size(), options.prefill_tokens, options.piece_tokens) {}

std::vector<std::int32_t> Scheduler::Sample::tokens() const {
    std::vector<std::int32_t> all = prompt().tokens;
    all.insert(all.end(), out().tokens.begin(), out().tokens.end());
    return all;
}

void Scheduler::Held::add(const Sample& sample) {
    if (!sample.job->small) return;
    ++samples;
    pages += static_cast<std::int64_t>(sample.pages.size());
}

void Scheduler::add(const std::shared_ptr<Job>& job) {
    job->small = job->request.small();
    for (std::size_t p = 0; p < job->request.prompts.size(); ++p) {
        const Prompt& prompt = job->request.prompts[p];
        for (std::int64_t i = 0; i < prompt.params.n; ++i) {
            SampleOutput& output = job->outputs.emplace_back();
            output.prompt = p;
            if (prompt.params.max_new_tokens == 0) {
                output.finish = Finish::length;
                continue;
            }
            ++job->unfinished;
            Sample sample;
            sample.job = job;
            sample.output = job->outputs.size() - 1;
            sample.order = next_order_++;
            sample.stream = prompt.first_stream + static_cast<std::uint64_t>(i);
            queue_of(*job).push_back(std::move(sample));
        }
    }
}

void Scheduler::remove(const Job& job) {
    drop(job, [](std::size_t) { return true; });
}

void Scheduler::abort(Job& job, const std::vector<bool>& prompts) {
    job.unfinished -= drop(job, [&](std::size_t prompt) { return prompts[prompt]; });
}

template <typename Wanted>
std::size_t Scheduler::drop(const Job& job, const Wanted& wanted) {
    const auto belongs = [&](const Sample& sample) {
        return sample.job.get() == &job && wanted(sample.out().prompt);
    };
    for (Sample& sample : running_) {
        if (!belongs(sample)) continue;
        sample.out().finish = Finish::abort;
        release_pages(sample);
    }
    Queue& queue = queue_of(job);
    for (const Sample& sample : queue) {
        if (belongs(sample)) sample.out().finish = Finish::abort;
    }
    return std::erase_if(running_, belongs) + std::erase_if(queue, belongs);
}

// On the CPU a step of decode comes after every pass of prefill where it is urgent; else after the last.
void Scheduler::step(std::int64_t version) {
    operations_ = 0;
    admit();
    const std::vector<std::size_t> prefills = unfinished_prefills();
    decode_turn_ =
        prefills.empty() || (decode_turn_ && decoder_.cuts_sequences() && decode_is_urgent(prefills));
    if (decode_turn_) {
        decode();
    } else {
        prefill(next_pieces(prefills), version);
    }
    decode_turn_ = !decode_turn_;
}

bool Scheduler::decode_is_urgent(const std::vector<std::size_t>& prefills) const {
    return std::any_of(running_.begin(), running_.end(), [&](const Sample& one) {
        const auto same_job = [&](std::size_t first) { return running_[first].job == one.job; };
        return !one.prefill && std::none_of(prefills.begin(), prefills.end(), same_job);
    });
}

bool Scheduler::has_share(const Held& small) const {
    return small.samples < std::max<std::int64_t>(options_.max_running / 2, 1) &&
           small.pages < std::max(cache_.pool().total() / 2, 1);
}

// Whose head is admitted next; nullptr: nobody waits.
Scheduler::Queue* Scheduler::next_queue(const Held& small) {
    Queue &large_ones = waiting_[0], &small_ones = waiting_[1];
    if (!small_ones.empty() && (large_ones.empty() || has_share(small))) return &small_ones;
    return large_ones.empty() ? nullptr : &large_ones;
}

// Admits samples from the heads of the queues, as many as fit. A sample whose tokens equal those of the one
// before it (n samples of a prompt) takes part in its prefill, while that is not through: it shares its full
// pages and gets a page of its own for the rest.
void Scheduler::admit() {
    Held small;
    for (const Sample& sample : running_) small.add(sample);
    while (Queue* const queue = next_queue(small)) {
        Sample& next = queue->front();
        const auto preempt_for_it = [&] {
            const auto victim = next.job->small && has_share(small) ? youngest_large() : std::nullopt;
            if (victim) preempt(*victim);
            return victim.has_value();
        };
        if (static_cast<std::int64_t>(running_.size()) >= options_.max_running && !preempt_for_it()) break;
        std::vector<std::int32_t> tokens = next.tokens();
        const auto length = static_cast<std::int64_t>(tokens.size());
        const auto shares = [&] {
            return !running_.empty() && running_.back().prefill && running_.back().prefill->tokens == tokens;
        };
        const std::int64_t full_pages = length / cache_.page_size();
        // Reserve a page for each running sample, so that admitting does not preempt at once.
        const auto fits = [&] {
            const std::int64_t needed = cache_.pages_for(length) - (shares() ? full_pages : 0);
            return needed + static_cast<std::int64_t>(running_.size()) <= cache_.pool().free();
        };
        bool enough = fits();
        while (!enough && preempt_for_it()) enough = fits();
        if (!enough) break;
        if (shares()) {
            const Sample& before = running_.back();
            next.prefill = before.prefill;
            next.pages.assign(before.pages.begin(), before.pages.begin() + full_pages);
            for (const std::int32_t page : next.pages) cache_.pool().share(page);
        } else {
            next.prefill = std::make_shared<Prefill>(Prefill{std::move(tokens)});
        }
        while (static_cast<std::int64_t>(next.pages.size()) < cache_.pages_for(length)) {
            next.pages.push_back(cache_.pool().allocate());
        }
        small.add(next);
        running_.push_back(std::move(next));
        queue->pop_front();
    }
}

void Scheduler::decode() {
    make_room_for_next_tokens();
    DecodeBatch batch;
    std::vector<std::size_t> samples, rows;
    for (std::size_t i = 0; i < running_.size(); ++i) {
        const Sample& sample = running_[i];
        if (sample.prefill) continue;
        batch.tokens.push_back(sample.out().tokens.back());
        batch.lengths.push_back(static_cast<std::int32_t>(sample.cached + 1));
        batch.block_tables.push_back(sample.pages);
        rows.push_back(rows.size());
        samples.push_back(i);
    }
    if (samples.empty()) return;  // all had to make room
    const Tensor logits = decoder_.decode(batch);
    for (const std::size_t i : samples) ++running_[i].cached;
    counts_.decode_tokens += samples.size();
    advance(samples, rows, logits);
}

// Oldest first. The oldest is never preempted while another runs, so that it ends.
void Scheduler::make_room_for_next_tokens() {
    std::size_t i = 0;
    while (i < running_.size()) {
        Sample& sample = running_[i];
        if (sample.prefill ||
            cache_.pages_for(sample.cached + 1) <= static_cast<std::int64_t>(sample.pages.size())) {
            ++i;
        } else if (cache_.pool().free() > 0) {
            sample.pages.push_back(cache_.pool().allocate());
        } else {
            const std::size_t victim = youngest_large().value_or(running_.size() - 1);
            preempt(victim);
            if (victim < i) --i;
        }
    }
}

// None when fewer than two samples of large requests run.
std::optional<std::size_t> Scheduler::youngest_large() const {
    std::optional<std::size_t> youngest;
    for (std::size_t i = running_.size(); i-- > 0;) {
        if (running_[i].job->small) continue;
        if (youngest) return youngest;
        youngest = i;
    }
    return std::nullopt;
}

void Scheduler::preempt(std::size_t index) {
    Sample sample = std::move(running_[index]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    retract(std::move(sample));
    ++counts_.preemptions;
}

void Scheduler::retract(Sample sample) {
    release_pages(sample);
    Queue& queue = queue_of(*sample.job);
    const auto at = std::find_if(queue.begin(), queue.end(),
                                 [&](const Sample& other) { return other.order > sample.order; });
    queue.insert(at, std::move(sample));
}

void Scheduler::retract_all() {
    for (Sample& sample : running_) retract(std::move(sample));
    running_.clear();
}

void Scheduler::restart_all() {
    retract_all();
    for (Queue& queue : waiting_) {
        for (Sample& sample : queue) {
            sample.out().tokens.clear();
            sample.out().logprobs.clear();
        }
    }
}

void Scheduler::advance(const std::vector<std::size_t>& samples, const std::vector<std::size_t>& rows,
                        const Tensor& logits) {
    std::vector<ops::Sampling> how;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const Sample& sample = running_[samples[i]];
        const SampleOutput& out = sample.out();
        const SamplingParams& params = sample.prompt().params;
        how.push_back({.row = static_cast<std::int32_t>(rows[i]),
                       .temperature = params.temperature,
                       .top_k = params.top_k,
                       .top_p = params.top_p,
                       .min_p = params.min_p,
                       .uniform = uniform(sample.job->seeds[out.prompt], sample.stream, out.tokens.size()),
                       .logprob = sample.job->request.return_logprob});
    }
    std::vector<std::int32_t> chosen(how.size());
    std::vector<float> logprobs(how.size());
    ops::sample_tokens(decoder_.stream(), logits, how, chosen, logprobs);
    decoder_.stream().synchronize();
    if (std::find(chosen.begin(), chosen.end(), ops::kNoToken) != chosen.end())
        throw Error("the model's logits are not finite");
    for (std::size_t i = 0; i < samples.size(); ++i) {
        Sample& sample = running_[samples[i]];
        sample.out().tokens.push_back(chosen[i]);
        if (how[i].logprob) sample.out().logprobs.push_back(logprobs[i]);
        if (!finished(sample)) continue;
        release_pages(sample);
        --sample.job->unfinished;
        sample.job.reset();
    }
    std::erase_if(running_, [](const Sample& sample) { return sample.job == nullptr; });
}

// Sets how it finished, if it did.
bool Scheduler::finished(const Sample& sample) const {
    SampleOutput& out = sample.out();
    const SamplingParams& params = sample.prompt().params;
    const auto among = [&](const std::vector<std::int32_t>& ids) {
        return std::find(ids.begin(), ids.end(), out.tokens.back()) != ids.end();
    };
    if (!params.ignore_eos && (among(options_.eos_token_ids) || among(params.stop_token_ids))) {
        out.finish = Finish::stop;
        out.matched = out.tokens.back();
        return true;
    }
    if (static_cast<std::int64_t>(out.tokens.size()) < params.max_new_tokens) return false;
    out.finish = Finish::length;
    return true;
}

void Scheduler::release_pages(Sample& sample) {
    for (const std::int32_t page : sample.pages) cache_.pool().release(page);
    sample.pages.clear();
    sample.prefill.reset();
    sample.cached = 0;
}

SchedulerCounts Scheduler::counts() const {
    SchedulerCounts counts = counts_;
    counts.waiting = waiting();
    counts.running = running_.size();
    counts.graphs = decoder_.graphs();
    return counts;
}

}  // namespace tandem::engine
