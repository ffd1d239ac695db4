#include "trainer/memory/layer_ledger.h"

#include <algorithm>
#include <vector>

#include "common/dtensor/placement.h"

#include "trainer/context/context_parallel.h"

namespace tandem::trainer::memory {

LayerLedger::LayerLedger(Ledger& ledger, const model::ModelConfig& config, DType dtype, const PassShape& pass,
                         const TensorCutShape& tensor)
    : ledger_(ledger),
      element_(static_cast<std::int64_t>(dtype_size(dtype))),
      tensor_(tensor),
      rows_(pass.rows),
      kept_rows_(tensor.cuts_rows ? padded_shard_size(pass.rows, tensor.ranks) : pass.rows),
      hidden_(config.hidden_size),
      ffn_(padded_shard_size(config.intermediate_size, tensor.ranks)),
      heads_(config.num_attention_heads / tensor.ranks),
      kv_heads_(std::max<std::int64_t>(config.num_key_value_heads / tensor.ranks, 1)),
      queries_(heads_ * config.head_dim),
      keys_(kv_heads_ * config.head_dim),
      cp_(pass.cp),
      zigzag_(pass.zigzag),
      qk_norm_(config.qk_norm) {}

Block LayerLedger::norm(std::int64_t rows, std::int64_t numel, const Block& x, NormSaved& saved) {
    Block y = compute(numel);
    saved.x = x;
    saved.rstd = wide(rows);
    return y;
}

Block LayerLedger::all_rows(const Block& kept) {
    return tensor_.cuts_rows ? compute(gathered_rows() * hidden_) : kept;
}

Block LayerLedger::sum(const Block& terms) {
    if (!tensor_.cuts_rows) return terms;
    Block padded;
    if (gathered_rows() != rows_) padded = compute(gathered_rows() * hidden_);
    return compute(kept_rows_ * hidden_);
}

// context/: local.cpp, packed.cpp, zigzag.cpp
void LayerLedger::attend(AttentionSaved& saved) {
    const std::int64_t queries = rows_ * queries_;
    const std::int64_t keys = rows_ * keys_;
    if (cp_ == 1 || !zigzag_) {
        Block k, v;
        if (cp_ > 1) {
            k = compute(keys * cp_);
            v = compute(keys * cp_);
        }
        saved.out = compute(queries);
        saved.lse = wide(rows_ * heads_);
        if (2 * keys * cp_ * element_ <= static_cast<std::int64_t>(kKeepGatheredBytes)) {
            saved.k_full = k;
            saved.v_full = v;
        }
        return;
    }
    const Block out = wide(queries);
    saved.out = narrow() ? compute(queries) : out;
    saved.lse = wide(rows_ * heads_);
    const Block ring = compute(4 * keys);
}

Block LayerLedger::attention(const Block& x, AttentionSaved& saved) {
    saved.x = x;
    const Block q = compute(rows_ * queries_);
    saved.q = qk_norm_ ? norm(rows_ * heads_, rows_ * queries_, q, saved.q_norm) : q;
    saved.k = compute(rows_ * keys_);
    saved.v = compute(rows_ * keys_);
    if (qk_norm_) {
        saved.k_norm.x = compute(rows_ * keys_);
        saved.k_norm.rstd = wide(rows_ * kv_heads_);
    }
    attend(saved);
    return hidden();
}

void LayerLedger::expand(const Block& x, Saved& saved) {
    saved.mlp_x = x;
    saved.gate = compute(rows_ * ffn_);
    saved.up = compute(rows_ * ffn_);
}

Block LayerLedger::mlp(const Block& x, Saved& saved) {
    expand(x, saved);
    const Block product = compute(rows_ * ffn_);
    return hidden();
}

Block LayerLedger::forward(const Block& x, Saved& saved) {
    const Block h = all_rows(norm(kept_rows_, kept_rows_ * hidden_, x, saved.input_norm));
    const Block x1 = sum(attention(h, saved.attention));
    const Block h1 = all_rows(norm(kept_rows_, kept_rows_ * hidden_, x1, saved.post_attention_norm));
    return sum(mlp(h1, saved));
}

void LayerLedger::drop(Saved& saved, Checkpointing checkpointing) const {
    if (checkpointing == Checkpointing::none) return;
    saved.mlp_x = saved.gate = saved.up = {};
    if (checkpointing == Checkpointing::full) {
        saved.attention = {};
        saved.post_attention_norm = {};
        return;
    }
    saved.attention.x = {};
    if (qk_norm_) saved.attention.q = saved.attention.k = {};
}

void LayerLedger::recompute(Saved& saved, Checkpointing checkpointing) {
    if (checkpointing == Checkpointing::none) return;
    const Block h = all_rows(norm(kept_rows_, kept_rows_ * hidden_, saved.input_norm.x, saved.input_norm));
    if (checkpointing == Checkpointing::full) {
        saved.post_attention_norm.x = sum(attention(h, saved.attention));
    } else {
        saved.attention.x = h;
        if (qk_norm_) {
            saved.attention.q = compute(rows_ * queries_);
            saved.attention.k = compute(rows_ * keys_);
        }
    }
    const Block x1 = saved.post_attention_norm.x;
    expand(all_rows(norm(kept_rows_, kept_rows_ * hidden_, x1, saved.post_attention_norm)), saved);
}

Block LayerLedger::mlp_backward(const Block& /*dy*/) {
    const Block product = compute(rows_ * ffn_);
    Block dproduct = compute(rows_ * ffn_);
    const Block dup = compute(rows_ * ffn_);
    dproduct = {};
    return hidden();
}

Block LayerLedger::attention_backward(const Block& /*dy*/, const AttentionSaved& saved) {
    const std::int64_t queries = rows_ * queries_;
    const std::int64_t keys = rows_ * keys_;
    const Block dout = compute(queries);
    std::vector<Block> grads;
    {
        std::vector<Block> temporary;
        if (cp_ > 1 && !zigzag_ && !saved.k_full) temporary.push_back(compute(2 * keys * cp_));
        temporary.push_back(wide(rows_ * heads_));                                // delta
        if (cp_ > 1 && !zigzag_) temporary.push_back(wide(2 * keys * cp_));       // dk_full, dv_full
        if (cp_ > 1 && zigzag_) temporary.push_back(block(4 * keys * element_));  // the ring of keys
        if (cp_ > 1 && zigzag_) temporary.push_back(wide(4 * keys));              // two blocks of gradients
        grads.push_back(wide(queries));
        grads.push_back(wide(2 * keys));
    }
    const auto unrotate = [&](std::int64_t numel, bool normed) {
        Block dnormed = narrow() ? compute(numel) : Block{};
        return normed ? compute(numel) : dnormed;
    };
    const Block dq = unrotate(queries, qk_norm_);
    const Block dk = unrotate(keys, qk_norm_);
    const Block dv = unrotate(keys, false);
    return hidden();
}

void LayerLedger::backward(const Block& dy, Saved saved) {
    {
        const Block dh1 = sum(mlp_backward(all_rows(dy)));
        saved.mlp_x = saved.gate = saved.up = {};
        saved.post_attention_norm = {};
    }
    const Block dh = sum(attention_backward(all_rows(dy), saved.attention));
}

}  // namespace tandem::trainer::memory
