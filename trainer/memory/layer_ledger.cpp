#include "trainer/memory/layer_ledger.h"

#include <vector>

#include "trainer/context/context_parallel.h"

namespace tandem::trainer::memory {

LayerLedger::LayerLedger(Ledger& ledger, const model::ModelConfig& config, DType dtype, const PassShape& pass)
    : ledger_(ledger),
      element_(static_cast<std::int64_t>(dtype_size(dtype))),
      rows_(pass.rows),
      hidden_(config.hidden_size),
      ffn_(config.intermediate_size),
      heads_(config.num_attention_heads),
      kv_heads_(config.num_key_value_heads),
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
    const Block block = wide(queries);
    const Block block_lse = wide(rows_ * heads_);
    saved.lse = wide(rows_ * heads_);
    const Block ring = compute(4 * keys);
    saved.out = narrow() ? compute(queries) : out;
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
    const Block h = norm(rows_, rows_ * hidden_, x, saved.input_norm);
    const Block x1 = attention(h, saved.attention);
    const Block h1 = norm(rows_, rows_ * hidden_, x1, saved.post_attention_norm);
    return mlp(h1, saved);
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
    const Block h = norm(rows_, rows_ * hidden_, saved.input_norm.x, saved.input_norm);
    if (checkpointing == Checkpointing::full) {
        saved.post_attention_norm.x = attention(h, saved.attention);
    } else {
        saved.attention.x = h;
        if (qk_norm_) {
            saved.attention.q = compute(rows_ * queries_);
            saved.attention.k = compute(rows_ * keys_);
        }
    }
    const Block x1 = saved.post_attention_norm.x;
    expand(norm(rows_, rows_ * hidden_, x1, saved.post_attention_norm), saved);
}

Block LayerLedger::mlp_backward() {
    const Block product = compute(rows_ * ffn_);
    Block dproduct = compute(rows_ * ffn_);
    const Block dup = compute(rows_ * ffn_);
    dproduct = {};
    return hidden();
}

void LayerLedger::attention_backward(const AttentionSaved& saved) {
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
    const Block dx = hidden();
}

void LayerLedger::backward(Saved saved) {
    {
        const Block dh1 = mlp_backward();
        saved.mlp_x = saved.gate = saved.up = {};
        saved.post_attention_norm = {};
    }
    attention_backward(saved.attention);
}

}  // namespace tandem::trainer::memory
