// nn/ on paper: what a layer's forward and backward hold, step by step as decoder_layer.cpp, attention.cpp,
// mlp.cpp and context/ take and drop it.
#pragma once

#include "common/model/model_config.h"
#include "common/tensor/dtype.h"
#include "trainer/memory/ledger.h"
#include "trainer/nn/checkpointing.h"

namespace tandem::trainer::memory {

// One pass of one rank.
struct PassShape {
    std::int64_t rows = 0;     // of hidden states on this rank
    std::int64_t targets = 0;  // of them that predict something
    int cp = 1;
    bool zigzag = false;
};

// How the ranks of the tp axis cut the layers.
struct TensorCutShape {
    int ranks = 1;
    bool cuts_rows = false;  // of hidden states, between the blocks
};

class LayerLedger {
  public:
    struct NormSaved {
        Block x, rstd;
    };
    struct AttentionSaved {
        Block x;
        NormSaved q_norm, k_norm;
        Block q, k, v, out, lse, k_full, v_full;
    };
    struct Saved {
        NormSaved input_norm;
        AttentionSaved attention;
        NormSaved post_attention_norm;
        Block mlp_x, gate, up;
    };

    LayerLedger(Ledger& ledger, const model::ModelConfig& config, DType dtype, const PassShape& pass,
                const TensorCutShape& tensor = {});

    Block hidden() { return compute(rows_ * hidden_); }  // [rows, hidden], or its terms
    // tensor_parallel/tensor_parallel.cpp: between [rows, hidden] and the rows that a rank keeps of it.
    Block all_rows(const Block& kept);
    Block sum(const Block& terms);
    Block forward(const Block& x, Saved& saved);
    void drop(Saved& saved, Checkpointing checkpointing) const;
    void recompute(Saved& saved, Checkpointing checkpointing);
    void backward(const Block& dy, Saved saved);
    Block norm(std::int64_t rows, std::int64_t numel, const Block& x, NormSaved& saved);  // y
    Block compute(std::int64_t numel) { return block(numel * element_); }
    Block wide(std::int64_t numel) { return block(numel * 4); }

  private:
    Block block(std::int64_t bytes) { return ledger_.take("activations", bytes); }
    std::int64_t gathered_rows() const { return kept_rows_ * tensor_.ranks; }  // with padding
    bool narrow() const { return element_ != 4; }

    Block attention(const Block& x, AttentionSaved& saved);
    void attend(AttentionSaved& saved);
    Block attention_backward(const Block& dy, const AttentionSaved& saved);
    void expand(const Block& x, Saved& saved);
    Block mlp(const Block& x, Saved& saved);
    Block mlp_backward(const Block& dy);

    Ledger& ledger_;
    std::int64_t element_;
    TensorCutShape tensor_;
    std::int64_t rows_, kept_rows_, hidden_;
    // This rank's; queries_ and keys_ are elements of a row.
    std::int64_t ffn_, heads_, kv_heads_, queries_, keys_;
    int cp_;
    bool zigzag_;
    bool qk_norm_;
};

}  // namespace tandem::trainer::memory
