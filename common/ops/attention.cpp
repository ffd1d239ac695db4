// The checks that hold on every device, then the way to the backend.
#include "common/ops/attention.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "common/ops/aliased_attention.h"
#include "common/ops/check.h"
#include "common/ops/dispatch.h"

namespace tandem::ops {
namespace {

// q [rows, heads, head_dim] with k and v [..., kv_heads, head_dim].
void check_operands(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
    detail::check_floating(op, "q", q);
    detail::check_ndim(op, "q", q, 3);
    detail::check_dtype(op, "k", k, q.dtype());
    detail::check_dtype(op, "v", v, q.dtype());
    detail::check_shape(op, "v", v, k.shape());
    require(q.dim(2) > 0 && k.dim(-1) == q.dim(2), [&] {
        return fmt::format("{}: head_dim of q {} and k {} differ", op, to_string(q.shape()),
                           to_string(k.shape()));
    });
    const std::int64_t heads = q.dim(1), kv_heads = k.dim(-2);
    require(kv_heads > 0 && heads % kv_heads == 0, "{}: {} heads do not divide over {} kv heads", op, heads,
            kv_heads);
}

// Segments lie inside q and share no row of it.
template <typename Segment>
void check_q_rows(const char* op, const Tensor& q, const std::vector<Segment>& segments) {
    const std::int64_t q_rows = q.dim(0);
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    for (const Segment& segment : segments) {
        require(segment.q_begin >= 0 && segment.q_len >= 0 && segment.q_len <= q_rows - segment.q_begin, [&] {
            return fmt::format("{}: segment of q rows {} + {} is outside q {}", op, segment.q_begin,
                               segment.q_len, to_string(q.shape()));
        });
        if (segment.q_len > 0) ranges.emplace_back(segment.q_begin, segment.q_begin + segment.q_len);
    }
    std::sort(ranges.begin(), ranges.end());
    for (std::size_t i = 1; i < ranges.size(); ++i) {
        require(ranges[i].first >= ranges[i - 1].second, "{}: two segments share q row {}", op,
                ranges[i].first);
    }
}

void check_segments(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                    const std::vector<AttentionSegment>& segments) {
    detail::check_ndim(op, "k", k, 3);
    check_operands(op, q, k, v);
    check_q_rows(op, q, segments);
    const std::int64_t k_rows = k.dim(0);
    for (const AttentionSegment& segment : segments) {
        require(segment.k_begin >= 0 && segment.k_len >= 0 && segment.k_len <= k_rows - segment.k_begin, [&] {
            return fmt::format("{}: segment of k rows {} + {} is outside k {}", op, segment.k_begin,
                               segment.k_len, to_string(k.shape()));
        });
    }
}

void check_caches(const char* op, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache) {
    detail::check_ndim(op, "k_cache", k_cache, 4);
    check_operands(op, q, k_cache, v_cache);
    require(k_cache.dim(1) > 0, [&] {
        return fmt::format("{}: k_cache {} has pages of no size", op, to_string(k_cache.shape()));
    });
}

// Sequence b has pages for its first `length` positions.
void check_table(const char* op, const Tensor& k_cache, std::size_t b, std::int64_t length,
                 const std::vector<std::int32_t>& table) {
    const std::int64_t pages = k_cache.dim(0), page_size = k_cache.dim(1);
    const std::int64_t needed = (length + page_size - 1) / page_size;
    require(length >= 0 && needed <= static_cast<std::int64_t>(table.size()),
            "{}: sequence {} has length {} but {} pages of {}", op, b, length, table.size(), page_size);
    for (std::int64_t i = 0; i < needed; ++i) {
        const std::int32_t page = table[static_cast<std::size_t>(i)];
        require(page >= 0 && page < pages, "{}: page {} of sequence {} is outside the {} pages", op, page, b,
                pages);
    }
}

void check_tables(const char* op, const Tensor& q, const Tensor& k_cache,
                  const std::vector<std::vector<std::int32_t>>& block_tables,
                  const std::vector<std::int32_t>& lengths) {
    const auto batch = static_cast<std::size_t>(q.dim(0));
    require(block_tables.size() == batch && lengths.size() == batch, [&] {
        return fmt::format("{}: {} block tables and {} lengths for q {}", op, block_tables.size(),
                           lengths.size(), to_string(q.shape()));
    });
    for (std::size_t b = 0; b < batch; ++b) check_table(op, k_cache, b, lengths[b], block_tables[b]);
}

// Tables on the device: their contents cannot be read here.
void check_tables(const char* op, const Tensor& pages, const Tensor& lengths, std::int64_t batch) {
    detail::check_ndim(op, "pages", pages, 2);
    detail::check_dtype(op, "pages", pages, DType::int32);
    detail::check_shape(op, "lengths", lengths, {batch});
    detail::check_dtype(op, "lengths", lengths, DType::int32);
    require(pages.dim(0) == batch, "{}: pages {} for {} sequences", op, to_string(pages.shape()), batch);
}

void check_out(const char* op, const Tensor& q, const Tensor& out) {
    detail::check_shape(op, "out", out, q.shape());
    require(out.dtype() == q.dtype() || out.dtype() == DType::float32, "{}: out is {} for q {}", op,
            dtype_name(out.dtype()), dtype_name(q.dtype()));
}

// One float32 for each row of q and head.
void check_of_rows(const char* op, const char* name, const Tensor& tensor, const Tensor& q) {
    detail::check_shape(op, name, tensor, {q.dim(1), q.dim(0)});
    detail::check_dtype(op, name, tensor, DType::float32);
}

void check_writes(const char* op, const Stream& stream, const Tensor& out, const ForwardWrites& writes) {
    const bool rounds = writes.rounded.defined();
    if (writes.merge || rounds) detail::check_dtype(op, "out", out, DType::float32);
    if (!rounds) return;
    detail::check_shape(op, "rounded", writes.rounded, out.shape());
    detail::check_dtype(op, "rounded", writes.rounded, DType::bfloat16);
    detail::check_device(op, stream.device(), writes.rounded);
}

}  // namespace

// Found by the way to the backend (dispatch.h).
static ForwardWrites aliased(ForwardWrites writes) {
    writes.rounded = host_alias(writes.rounded);
    return writes;
}

std::vector<AttentionSegment> packed_segments(const std::vector<std::int32_t>& cu_seqlens, bool causal) {
    std::vector<AttentionSegment> result;
    for (std::size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
        const std::int64_t begin = cu_seqlens[i];
        const std::int64_t length = cu_seqlens[i + 1] - begin;
        require(begin >= 0 && length >= 0,
                "packed_segments: cu_seqlens must not fall, but entry {} is {} after {}", i + 1,
                cu_seqlens[i + 1], begin);
        result.push_back({begin, length, begin, length, causal});
    }
    return result;
}

void attention_forward(Stream& stream, const Tensor& q, const Tensor& k, const Tensor& v,
                       const std::vector<AttentionSegment>& segments, float scale, Tensor out, Tensor lse,
                       ForwardWrites writes) {
    constexpr const char* kOp = "attention_forward";
    check_segments(kOp, q, k, v, segments);
    check_out(kOp, q, out);
    check_of_rows(kOp, "lse", lse, q);
    check_writes(kOp, stream, out, writes);
    TANDEM_ROUTE_OR(attention_forward, detail::aliased_attention.forward, q, k, v, segments, scale, out, lse,
                    writes);
}

void attention_delta(Stream& stream, const Tensor& dout, const Tensor& out, Tensor delta) {
    detail::check_floating("attention_delta", "dout", dout);
    detail::check_floating("attention_delta", "out", out);
    detail::check_ndim("attention_delta", "out", out, 3);
    detail::check_shape("attention_delta", "dout", dout, out.shape());
    detail::check_shape("attention_delta", "delta", delta, {out.dim(1), out.dim(0)});
    detail::check_dtype("attention_delta", "delta", delta, DType::float32);
    TANDEM_ROUTE_OR(attention_delta, detail::aliased_attention.delta, dout, out, delta);
}

void attention_backward(Stream& stream, const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& lse, const Tensor& delta, const std::vector<AttentionSegment>& segments,
                        float scale, Tensor dq, Tensor dk, Tensor dv, GradientWrites writes) {
    constexpr const char* kOp = "attention_backward";
    check_segments(kOp, q, k, v, segments);
    detail::check_floating(kOp, "dout", dout);
    detail::check_shape(kOp, "dout", dout, q.shape());
    check_of_rows(kOp, "lse", lse, q);
    check_of_rows(kOp, "delta", delta, q);
    detail::check_shape(kOp, "dq", dq, q.shape());
    detail::check_dtype(kOp, "dq", dq, DType::float32);
    detail::check_shape(kOp, "dk", dk, k.shape());
    detail::check_dtype(kOp, "dk", dk, DType::float32);
    detail::check_shape(kOp, "dv", dv, v.shape());
    detail::check_dtype(kOp, "dv", dv, DType::float32);
    TANDEM_ROUTE_OR(attention_backward, detail::aliased_attention.backward, dout, q, k, v, lse, delta,
                    segments, scale, dq, dk, dv, writes);
}

void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const std::vector<std::vector<std::int32_t>>& block_tables,
                            const std::vector<std::int32_t>& lengths, float scale, Tensor out) {
    constexpr const char* kOp = "paged_attention_decode";
    check_caches(kOp, q, k_cache, v_cache);
    check_tables(kOp, q, k_cache, block_tables, lengths);
    check_out(kOp, q, out);
    TANDEM_ROUTE_OR(paged_attention_decode, detail::aliased_attention.decode, q, k_cache, v_cache,
                    block_tables, lengths, scale, out);
}

void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const Tensor& pages, const Tensor& lengths, float scale, Tensor out) {
    constexpr const char* kOp = "paged_attention_decode";
    check_caches(kOp, q, k_cache, v_cache);
    check_out(kOp, q, out);
    check_tables(kOp, pages, lengths, q.dim(0));
    TANDEM_ROUTE_OR(paged_attention_decode, detail::aliased_attention.decode_by_tensors, q, k_cache, v_cache,
                    pages, lengths, scale, out);
}

void rotate_and_decode(Stream& stream, Tensor q, Tensor k, const Tensor& v, Tensor k_cache, Tensor v_cache,
                       const std::vector<std::vector<std::int32_t>>& block_tables,
                       const std::vector<std::int32_t>& lengths, const RopeTable& table, float scale,
                       Tensor out) {
    constexpr const char* kOp = "rotate_and_decode";
    check_caches(kOp, q, k_cache, v_cache);
    check_tables(kOp, q, k_cache, block_tables, lengths);
    check_out(kOp, q, out);
    const Shape fresh = {q.dim(0), k_cache.dim(2), q.dim(2)};
    detail::check_shape(kOp, "k", k, fresh);
    detail::check_dtype(kOp, "k", k, q.dtype());
    detail::check_shape(kOp, "v", v, fresh);
    detail::check_dtype(kOp, "v", v, q.dtype());
    for (const std::int32_t length : lengths)
        require(length > 0, "{}: a sequence of length {} has no new token", kOp, length);
    require(table.head_dim() == q.dim(2), [&] {
        return fmt::format("{}: a table of head_dim {} for q {}", kOp, table.head_dim(),
                           to_string(q.shape()));
    });
    require(stream.device().type == DeviceType::cpu,
            "{}: runs on the CPU only; on a GPU call rope, write_pages and paged_attention_decode", kOp);
    for (const Tensor& tensor : std::initializer_list<Tensor>{q, k, v, k_cache, v_cache, out})
        detail::check_device(kOp, stream.device(), tensor);
    if (only_counts()) return;
    cpu::rotate_and_decode(stream, q, k, v, k_cache, v_cache, block_tables, lengths, table, scale, out);
}

void paged_attention_prefill(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                             const std::vector<PagedSegment>& segments, float scale, Tensor out) {
    constexpr const char* kOp = "paged_attention_prefill";
    check_caches(kOp, q, k_cache, v_cache);
    check_out(kOp, q, out);
    check_q_rows(kOp, q, segments);
    for (std::size_t s = 0; s < segments.size(); ++s) {
        require(segments[s].q_len <= segments[s].k_len, "{}: sequence {} has {} new rows but length {}", kOp,
                s, segments[s].q_len, segments[s].k_len);
        check_table(kOp, k_cache, s, segments[s].k_len, segments[s].pages);
    }
    TANDEM_ROUTE_OR(paged_attention_prefill, detail::aliased_attention.prefill, q, k_cache, v_cache, segments,
                    scale, out);
}

void write_pages(Stream& stream, const Tensor& k, const Tensor& v, const Tensor& pages, const Tensor& lengths,
                 Tensor k_cache, Tensor v_cache) {
    constexpr const char* kOp = "write_pages";
    detail::check_floating(kOp, "k", k);
    detail::check_ndim(kOp, "k", k, 3);
    detail::check_ndim(kOp, "k_cache", k_cache, 4);
    const Shape cache = {k_cache.dim(0), k_cache.dim(1), k.dim(1), k.dim(2)};
    detail::check_shape(kOp, "v", v, k.shape());
    detail::check_shape(kOp, "k_cache", k_cache, cache);
    detail::check_shape(kOp, "v_cache", v_cache, cache);
    detail::check_dtype(kOp, "v", v, k.dtype());
    detail::check_dtype(kOp, "k_cache", k_cache, k.dtype());
    detail::check_dtype(kOp, "v_cache", v_cache, k.dtype());
    check_tables(kOp, pages, lengths, k.dim(0));
    TANDEM_ROUTE(write_pages, k, v, pages, lengths, k_cache, v_cache);
}

}  // namespace tandem::ops
