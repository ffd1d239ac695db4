#include "trainer/policy/token_buffer.h"

namespace tandem::trainer {

TokenBuffer::TokenBuffer(const std::vector<Sample>& samples, std::size_t kinds, MemoryPool& pool)
    : samples_(samples), flat_(Tensor::zeros({total(kinds)}, DType::float32, "logprobs", pool)) {}

std::int64_t TokenBuffer::total(std::size_t kinds) {
    for (const Sample& sample : samples_) {
        begins_.push_back(tokens_);
        tokens_ += sample.tokens.size();
    }
    return static_cast<std::int64_t>(kinds * tokens_);
}

void TokenBuffer::put(std::size_t kind, const MicroBatch::Owner& owner, float value) {
    const std::size_t begin = begins_[static_cast<std::size_t>(owner.sample)];
    flat_.values<float>()[kind * tokens_ + begin + static_cast<std::size_t>(owner.index)] = value;
}

void TokenBuffer::reduce(comm::Communicator& world) {
    if (flat_.numel() > 0) world.all_reduce(flat_.span(), DType::float32);
}

Scores::PerToken TokenBuffer::get(std::size_t kind) const {
    Scores::PerToken result;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
        const auto part =
            flat_.values<float>().subspan(kind * tokens_ + begins_[i], samples_[i].tokens.size());
        result.emplace_back(part.begin(), part.end());
    }
    return result;
}

}  // namespace tandem::trainer
