#include "trainer/memory/predict.h"

#include <algorithm>
#include <vector>

#include "common/dtensor/placement.h"
#include "trainer/memory/shard_ledger.h"
#include "trainer/nn/decoder_parameters.h"
#include "trainer/offload/in_chunks.h"
#include "trainer/tensor_parallel/gradient_sums.h"

namespace tandem::trainer::memory {
namespace {

constexpr const char* kPassing = "speed of light";  // measured once, and not kept
constexpr std::int64_t kScoreKinds = 3;  // log-probs, entropies, values: policy_passes.cpp's buffer holds all

// Decoder and LmHead on paper.
class Passes {
  public:
    Passes(const model::ModelConfig& model, const PolicyOptions& options, int tp, Ledger& ledger,
           ShardLedger& shards)
        : model_(model),
          options_(options),
          tensor_{tp, tp > 1 && options.sequence_parallel},
          ledger_(ledger),
          shards_(shards) {}

    void score(const PassShape& pass) {
        LayerLedger layer(ledger_, model_, options_.compute_dtype, pass, tensor_);
        std::vector<LayerLedger::Saved> none;
        const Block x = forward(layer, none);
        if (options_.value_head) shards_.unshard(value_group(), GroupHooks::kNone);
        if (pass.targets == 0) return;
        LayerLedger::NormSaved norm;
        const Block selected = select(layer, pass, norm);
        const Block logits = this->logits(pass, DType::float32);
        score_chunk(layer, pass, 2);
    }

    void loss(const PassShape& pass) {
        LayerLedger layer(ledger_, model_, options_.compute_dtype, pass, tensor_);
        std::vector<LayerLedger::Saved> saved(static_cast<std::size_t>(model_.num_hidden_layers));
        Block dx;
        {
            const Block x = forward(layer, saved);
            shards_.begin_gradients(head_group());
            if (options_.value_head) {
                shards_.unshard(value_group(), GroupHooks::kNone);
                shards_.begin_gradients(value_group());
            }
            dx = layer.sum(head(layer, pass));
            if (options_.value_head) shards_.after_backward(value_group());
        }
        if (!tied()) shards_.after_backward(head_group());
        for (int i = static_cast<int>(saved.size()); i-- > 0;) {
            shards_.unshard(i + 1, i > 0 ? i : GroupHooks::kNone);
            shards_.begin_gradients(i + 1);
            auto& of_layer = saved[static_cast<std::size_t>(i)];
            layer.recompute(of_layer, options_.checkpointing);
            layer.backward(dx, std::move(of_layer));
            of_layer = {};
            shards_.after_backward(i + 1);
        }
        if (!tied()) shards_.begin_gradients(0);
        layer.all_rows(dx);
        shards_.after_backward(0);
    }

  private:
    bool tied() const { return model_.tie_word_embeddings; }
    int layers() const { return static_cast<int>(model_.num_hidden_layers); }
    int head_group() const { return tied() ? 0 : layers() + 1; }
    int value_group() const { return layers() + (tied() ? 1 : 2); }

    Block forward(LayerLedger& layer, std::vector<LayerLedger::Saved>& saved) {
        const bool training = !saved.empty();
        shards_.unshard(0, 1);
        Block x = layer.sum(layer.hidden());
        if (!tied()) shards_.after_forward(0);
        for (int i = 0; i < layers(); ++i) {
            const bool last = i + 1 == layers();
            shards_.unshard(i + 1, !last ? i + 2 : tied() ? GroupHooks::kNone : head_group());
            LayerLedger::Saved of_layer;
            x = layer.forward(x, of_layer);
            if (training) {
                layer.drop(of_layer, options_.checkpointing);
                saved[static_cast<std::size_t>(i)] = std::move(of_layer);
            }
            if (!last || !training) shards_.after_forward(i + 1);
        }
        if (!tied()) shards_.unshard(head_group(), GroupHooks::kNone);
        return layer.all_rows(x);
    }

    Block select(LayerLedger& layer, const PassShape& pass, LayerLedger::NormSaved& norm) {
        const std::int64_t numel = pass.targets * model_.hidden_size;
        return layer.norm(pass.targets, numel, layer.compute(numel), norm);
    }

    std::int64_t chunk_rows(const PassShape& pass) const {
        return std::min(options_.logits_chunk_rows, pass.targets);
    }
    // Of this rank's part of the vocabulary.
    std::int64_t logits_numel(const PassShape& pass) const {
        return chunk_rows(pass) * padded_shard_size(model_.vocab_size, tensor_.ranks);
    }
    Block logits(const PassShape& pass, DType dtype) {
        return ledger_.take("logits", logits_numel(pass) * static_cast<std::int64_t>(dtype_size(dtype)));
    }

    // cut_vocabulary.cpp; `kinds` numbers of a row are gathered. Then the values.
    void score_chunk(LayerLedger& layer, const PassShape& pass, std::int64_t kinds) {
        if (tensor_.ranks > 1 && options_.loss_parallel) {
            ledger_.take("logits", kinds * chunk_rows(pass) * 4);
        } else if (tensor_.ranks > 1) {
            const Block parts = ledger_.take("logits", tensor_.ranks * logits_numel(pass) * 4);
            const Block whole = ledger_.take("logits", chunk_rows(pass) * model_.vocab_size * 4);
        }
        if (options_.value_head) layer.wide(chunk_rows(pass));
    }

    Block head(LayerLedger& layer, const PassShape& pass) {
        Block dhidden = layer.hidden();
        if (pass.targets == 0) return dhidden;
        LayerLedger::NormSaved norm;
        const Block selected = select(layer, pass, norm);
        const Block dselected = layer.compute(pass.targets * model_.hidden_size);
        const Block logits = this->logits(pass, DType::float32);
        score_chunk(layer, pass, 3);
        if (options_.compute_dtype != DType::float32) this->logits(pass, options_.compute_dtype);
        const Block drows = layer.compute(pass.targets * model_.hidden_size);
        return dhidden;
    }

    const model::ModelConfig& model_;
    const PolicyOptions& options_;
    TensorCutShape tensor_;
    Ledger& ledger_;
    ShardLedger& shards_;
};

// Gradients that are summed over more ranks than the parameter is sharded over (TermSum).
std::int64_t term_bytes(const DecoderParameters& decoder, const FlatShards& layout, int tp,
                        bool sequence_parallel) {
    std::int64_t numel = 0;
    for (std::size_t i = 0; i < decoder.all.size(); ++i) {
        if (gradient_sum(decoder.all[i], tp, sequence_parallel) != GradientSum::none)
            numel += layout.entry(static_cast<int>(i)).padded_numel();
    }
    return numel * 4;
}

// Before the first step. onloaded: bytes of offloaded shards, which are in memory for as long as it lasts.
void connect(Ledger& ledger, const Workload& work, std::int64_t onloaded) {
    ledger.enter("connect");
    const Block shards = ledger.take("shards", onloaded);
    for (const auto& [tag, bytes] : work.sync) {
        if (tag != kPassing) ledger.grow(tag, bytes);
    }
    if (const auto passing = work.sync.find(kPassing); passing != work.sync.end())
        ledger.take(passing->first, passing->second);
}

void sync(Ledger& ledger, std::int64_t onloaded) {
    ledger.enter("sync");
    ledger.take("shards", onloaded);
}

}  // namespace

Prediction predict(const model::ModelConfig& model, const PolicyOptions& options, const RankShape& rank,
                   const Workload& work) {
    const DecoderParameters decoder(model, {DecoderPart::whole(model)}, options.value_head, rank.tp);
    const FlatShards layout(decoder.all, decoder.groups, rank.shards, 0);
    Ledger ledger;
    const auto& offload = options.offload;
    const bool on_gpu = options.device.type != DeviceType::cpu;
    const bool shards_leave = offload.parameters || options.deepest_sleep == PolicyOptions::Sleep::all;
    ShardLedger shards(ledger, layout, decoder.groups.size(),
                       {options.compute_dtype, options.reshard_after_forward, offload.parameters,
                        shards_leave ? Pages::go : Pages::stay},
                       on_gpu);
    Passes passes(model, options, rank.tp, ledger, shards);

    const std::int64_t flat = layout.numel() * 4;
    const std::int64_t chunk = std::min(chunk_elements(options.device), layout.numel()) * 4;
    const std::int64_t streamed = (offload.optimizer ? 2 : 0) + (offload.parameters ? 1 : 0);
    if (!offload.parameters) ledger.grow("shards", flat);
    ledger.grow("gradients", rank.replicas > 1 ? 2 * flat : flat);
    ledger.grow("gradients", term_bytes(decoder, layout, rank.tp, options.sequence_parallel));
    if (!offload.optimizer) ledger.grow("optimizer", 2 * flat);
    if (work.reference && !offload.parameters) {
        ledger.grow("reference",
                    layout.numel() * static_cast<std::int64_t>(dtype_size(options.compute_dtype)));
    }
    const std::int64_t onloaded = offload.parameters ? flat : 0;
    if (!work.sync.empty()) connect(ledger, work, onloaded);
    // Twice: what a step keeps for the next one is there when it starts.
    for (int step = 0; step < 2; ++step) {
        for (const PassShape& pass : work.scores) {
            ledger.enter("logprobs");
            const Block values = ledger.take("logprobs", work.score_tokens * kScoreKinds * 4);
            passes.score(pass);
            shards.finish();
        }
        for (const PassShape& pass : work.train) {
            ledger.enter("forward_backward");
            for (int i = 0; i < std::min(work.micro_batches, 2); ++i) {
                shards.set_requires_gradient_sync(options.reduce_every_micro_batch ||
                                                  i + 1 == work.micro_batches);
                passes.loss(pass);
            }
            shards.set_requires_gradient_sync(true);
            shards.finish();
            shards.finish_gradients();
        }
        ledger.enter("optimizer");
        if (streamed > 0) ledger.take("offload_chunks", kChunksAlive * streamed * chunk);
        if (!work.sync.empty()) sync(ledger, onloaded);
        if (options.deepest_sleep == PolicyOptions::Sleep::all) shards.free_buffers();
    }
    Prediction result{ledger.phases(), ""};
    result.phases.erase("other");
    for (const auto& [name, peak] : result.phases) {
        if (result.phase.empty() || peak.bytes > result.peak().bytes) result.phase = name;
    }
    return result;
}

}  // namespace tandem::trainer::memory
