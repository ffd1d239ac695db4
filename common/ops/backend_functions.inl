// The functions that every backend of the ops defines, as the headers of this folder document them. Included
// in each backend's namespace.

void adamw(Stream& stream, Tensor param, const Tensor& grad, Tensor exp_avg, Tensor exp_avg_sq,
           const AdamWParams& params);
double sum_of_squares(Stream& stream, const Tensor& values);

void attention_forward(Stream& stream, const Tensor& q, const Tensor& k, const Tensor& v,
                       const std::vector<AttentionSegment>& segments, float scale, Tensor out, Tensor lse);
void attention_delta(Stream& stream, const Tensor& dout, const Tensor& out, Tensor delta);
void attention_backward(Stream& stream, const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& lse, const Tensor& delta, const std::vector<AttentionSegment>& segments,
                        float scale, Tensor dq, Tensor dk, Tensor dv);
void attention_merge(Stream& stream, const Tensor& block_out, const Tensor& block_lse, std::int64_t row_begin,
                     Tensor out, Tensor lse);
void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const std::vector<std::vector<std::int32_t>>& block_tables,
                            const std::vector<std::int32_t>& lengths, float scale, Tensor out);

void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const Tensor& pages, const Tensor& lengths, float scale, Tensor out);
void write_pages(Stream& stream, const Tensor& k, const Tensor& v, const Tensor& pages, const Tensor& lengths,
                 Tensor k_cache, Tensor v_cache);

void batched_copy(Stream& stream, std::span<const CopyItem> items);
Checksum copy_checksum(Stream& stream, const CopyItem& item);

void token_logprobs(Stream& stream, const Tensor& logits, std::span<const std::int32_t> targets,
                    float temperature, std::span<float> logprobs, std::span<float> lse,
                    std::span<float> entropies);
void token_logprobs_backward(Stream& stream, Tensor logits, std::span<const std::int32_t> targets,
                             float temperature, std::span<const float> lse, std::span<const float> dlogprobs,
                             std::span<const float> entropies, std::span<const float> dentropies);

void cast(Stream& stream, const Tensor& from, Tensor to);
void add(Stream& stream, Tensor a, const Tensor& b);
void scale(Stream& stream, Tensor a, float factor);
void fill_zero(Stream& stream, Tensor a);

DeltaResult delta_encode(Stream& stream, const DeltaSource& source, Span base, Span to);

void delta_apply(Stream& stream, DeltaCodec codec, ConstSpan encoded, std::size_t width, std::int64_t rows,
                 std::int64_t row_elements, std::byte* to, std::size_t stride);

void embedding(Stream& stream, const Tensor& table, const Tensor& ids, Tensor y);
void embedding(Stream& stream, const Tensor& table, std::span<const std::int32_t> ids, Tensor y);
void embedding_backward(Stream& stream, const Tensor& dy, std::span<const std::int32_t> ids, Tensor dtable);

void matmul(Stream& stream, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
            Tensor c, bool accumulate);
void linear(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor y);
void linear_backward_input(Stream& stream, const Tensor& dy, const Tensor& weight, Tensor dx,
                           bool accumulate);
void linear_backward_weight(Stream& stream, const Tensor& dy, const Tensor& x, Tensor dweight);
void linear_backward_bias(Stream& stream, const Tensor& dy, Tensor dbias);

void accumulate_amax(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<float> amax);
Checksum quantize(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<const float> scales,
                  Span to);

void rms_norm(Stream& stream, const Tensor& x, const Tensor& weight, float eps, Tensor y, Tensor rstd);
void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, Tensor dx, Tensor dweight, bool accumulate_dx);

void rope(Stream& stream, Tensor x, std::span<const std::int32_t> positions, const RopeTable& table);
void rope(Stream& stream, Tensor x, const Tensor& positions, std::int64_t limit, const RopeTable& table);
void rope_backward(Stream& stream, Tensor dx, std::span<const std::int32_t> positions,
                   const RopeTable& table);

void sample_tokens(Stream& stream, const Tensor& logits, std::span<const Sampling> samples,
                   std::span<std::int32_t> tokens, std::span<float> logprobs);

void swiglu(Stream& stream, const Tensor& gate, const Tensor& up, Tensor y);
void swiglu_backward(Stream& stream, const Tensor& dy, const Tensor& gate, const Tensor& up, Tensor dgate,
                     Tensor dup);
