// The scheduler's passes of prefill: which pieces of which prompts, and what becomes of samples whose prompt
// is through.
#include <algorithm>

#include "common/error.h"
#include "engine_adapter/embedded/scheduler.h"

namespace tandem::engine {

std::vector<std::size_t> Scheduler::unfinished_prefills() const {
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < running_.size(); ++i) {
        const auto& prefill = running_[i].prefill;
        const auto same = [&](std::size_t first) { return running_[first].prefill == prefill; };
        if (prefill && std::none_of(result.begin(), result.end(), same)) result.push_back(i);
    }
    return result;
}

// As many as prefill_tokens allow, and at least one.
std::vector<Scheduler::Piece> Scheduler::whole_prompts(const std::vector<std::size_t>& prefills) const {
    std::vector<Piece> pieces;
    std::int64_t tokens = 0;
    for (const std::size_t first : prefills) {
        const std::int64_t count = running_[first].prefill->left();
        if (tokens > 0 && tokens + count > options_.prefill_tokens) break;
        tokens += count;
        pieces.push_back({first, count});
    }
    return pieces;
}

// Prompts that need one pass or less, as many as fit into one; or pieces of the longer ones, in turns. A pass
// over long ones is half as long while somebody decodes or has a short prompt.
std::vector<Scheduler::Piece> Scheduler::next_pieces(const std::vector<std::size_t>& prefills) {
    if (!decoder_.cuts_sequences()) return whole_prompts(prefills);
    const double of_pass = budget_.operations();
    std::vector<std::size_t> short_ones, long_ones;
    for (const std::size_t first : prefills) {
        const Prefill& prefill = *running_[first].prefill;
        const bool all = budget_.tokens(prefill.done, prefill.left(), of_pass) == prefill.left();
        (all ? short_ones : long_ones).push_back(first);
    }
    const bool now_short = !short_ones.empty() && (long_ones.empty() || !short_before_);
    short_before_ = now_short && !long_ones.empty();
    if (!now_short)
        return pieces_of_long(long_ones,
                              decode_is_urgent(prefills) || !short_ones.empty() ? of_pass / 2 : of_pass);
    std::vector<Piece> pieces;
    double operations = 0;
    std::int64_t tokens = 0;
    for (const std::size_t first : short_ones) {
        const Prefill& prefill = *running_[first].prefill;
        operations += budget_.cost(prefill.done, prefill.left());
        tokens += prefill.left();
        if (!pieces.empty() && (operations > of_pass || tokens > options_.prefill_tokens)) break;
        pieces.push_back({first, prefill.left()});
    }
    return pieces;
}

// Half of the pass for the one that has least before it, so that it need not wait for all of the oldest,
// which has the rest.
std::vector<Scheduler::Piece> Scheduler::pieces_of_long(const std::vector<std::size_t>& prefills,
                                                        double operations) const {
    const auto left = [&](std::size_t first) { return running_[first].prefill->left(); };
    const std::size_t oldest = prefills.front();
    const std::size_t shortest = *std::min_element(
        prefills.begin(), prefills.end(), [&](std::size_t a, std::size_t b) { return left(a) < left(b); });
    const double each = shortest == oldest ? operations : operations / 2;
    const auto piece = [&](std::size_t first) {
        return Piece{first, budget_.tokens(running_[first].prefill->done, left(first), each)};
    };
    std::vector<Piece> pieces{piece(oldest)};
    if (shortest != oldest) pieces.push_back(piece(shortest));
    return pieces;
}

void Scheduler::prefill(const std::vector<Piece>& pieces, std::int64_t version) {
    std::vector<PrefillSequence> sequences;
    for (const Piece& piece : pieces) {
        const Sample& sample = running_[piece.first];
        const Prefill& prefill = *sample.prefill;
        const auto begin = prefill.tokens.begin() + static_cast<std::ptrdiff_t>(prefill.done);
        sequences.push_back({{begin, begin + static_cast<std::ptrdiff_t>(piece.count)},
                             sample.pages,
                             prefill.done,
                             piece.count == prefill.left()});
        operations_ += budget_.cost(prefill.done, piece.count);
        counts_.prefill_tokens += static_cast<std::uint64_t>(piece.count);
    }
    const Tensor logits = decoder_.prefill(sequences);
    std::vector<std::size_t> samples, rows;
    for (const Piece& piece : pieces) {
        Prefill& prefill = *running_[piece.first].prefill;
        prefill.done += piece.count;
        if (prefill.left() > 0) continue;
        const std::size_t row = rows.empty() ? 0 : rows.back() + 1;
        end_prefill(piece.first, version, samples);
        rows.resize(samples.size(), row);
    }
    if (!samples.empty()) advance(samples, rows, logits);
}

void Scheduler::end_prefill(std::size_t first, std::int64_t version, std::vector<std::size_t>& samples) {
    const std::shared_ptr<Prefill> ended = running_[first].prefill;
    const std::int32_t last_page = running_[first].pages.back();
    for (std::size_t i = first; i < running_.size(); ++i) {
        Sample& sample = running_[i];
        if (sample.prefill != ended) continue;
        if (sample.pages.back() != last_page)
            cache_.copy_page(decoder_.stream(), last_page, sample.pages.back());
        sample.prefill.reset();
        sample.cached = static_cast<std::int64_t>(ended->tokens.size());
        sample.out().version = version;
        samples.push_back(i);
    }
}

}  // namespace tandem::engine
