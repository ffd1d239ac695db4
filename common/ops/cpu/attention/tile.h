// Tiles of queries of one head with their running softmax: how attention_forward, prefill and decode multiply them
// with tiles of keys in fp32. pair_tiles.h has the same for bfloat16.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ops/cpu/attention/page_rows.h"

namespace tandem::ops::detail {

inline constexpr std::int64_t kMostQueries = 64;  // of a tile

struct QueryTile {
    float* q;        // the queries, packed
    float* acc;      // their sums; once finished [rows, width]
    float* scratch;  // of one tile at a time; a finished tile's rows may lie in it
    float max[kMostQueries];
    float sum[kMostQueries];
};

// No key seen yet; `acc_floats` of acc are in use.
void start_tile(QueryTile& tile, std::int64_t acc_floats);

// Query i of a tile sees the first visible + i * step of a tile's `keys` keys.
struct SeenKeys {
    std::int64_t visible, step, keys;
};

class FloatTiles {
  public:
    static constexpr std::int64_t kQueries = kQueryTile;
    struct KeyTile {
        const float *k_t, *v;
    };

    FloatTiles(const AttentionShape& shape, float scale) : shape_(shape), scale_(scale) {}

    std::int64_t tile_floats() const { return kQueryTile * 2 * shape_.width; }
    std::int64_t scratch_floats() const { return kQueryTile * kKeyTile; }
    QueryTile place(float* tile, float* scratch) const;

    // Rows [begin, begin + rows) of a head; empty sums.
    void load(QueryTile& tile, const Tensor& q, std::int64_t begin, std::int64_t rows,
              std::int64_t head) const;
    // The query heads [first, first + rows) of one row.
    void load_heads(QueryTile& tile, const Tensor& q, std::int64_t row, std::int64_t first,
                    std::int64_t rows) const;
    void attend(QueryTile& tile, std::int64_t rows, const KeyTile& keys, const SeenKeys& seen) const;
    void finish(QueryTile& /*tile*/, std::int64_t /*rows*/) const {}  // nothing lies otherwise

    // The keys of one kv head of a segment.
    class Segment {
      public:
        Segment(const FloatTiles& tiles, const Tensor& k, const Tensor& v, std::int64_t begin,
                std::int64_t count, std::int64_t kv_head);
        KeyTile tile(std::int64_t key) const { return {keys_.k_t(key), keys_.v(key)}; }

      private:
        PackedKeys keys_;
    };
    // One tile of the keys in a sequence's pages; in this thread's memory.
    class Page {
      public:
        explicit Page(const FloatTiles& tiles);
        // Where all kv heads of the keys are loaded then.
        void read(const Tensor& k_cache, const Tensor& v_cache, const PagesInTurn& pages, std::int64_t key,
                  std::int64_t count) {
            read_pages(k_cache, v_cache, pages, key, count);
        }
        KeyTile load(const Tensor& k_cache, const Tensor& v_cache, const std::vector<std::int32_t>& pages,
                     std::int64_t key, std::int64_t count, std::int64_t kv_head);

      private:
        PackedPage page_;
    };

  protected:
    // Its keys are not there yet.
    ForwardTile forward_tile(QueryTile& tile, std::int64_t rows, const SeenKeys& seen) const;

    AttentionShape shape_;
    float scale_;
};

// The few queries that share the keys of a sequence, which are read where they lie: the bits of FloatTiles.
class FloatRowTiles : public FloatTiles {
  public:
    using KeyTile = KeyRows;

    using FloatTiles::FloatTiles;
    // By the kernels' columns.
    static bool takes(const AttentionShape& shape) { return shape.head_dim % kRowColumns == 0; }

    std::int64_t scratch_floats() const { return FloatTiles::scratch_floats() + shape_.width * kKeyTile; }
    void attend(QueryTile& tile, std::int64_t rows, const KeyTile& keys, const SeenKeys& seen) const;

    struct Page : PageRows {
        explicit Page(const FloatRowTiles& tiles) : PageRows(tiles.shape_) {}
    };
};

// Writes row `row` of a finished tile to element `offset` of out: acc / sum. Returns the log-sum-exp.
float finish_tile_row(const QueryTile& tile, std::int64_t row, std::int64_t width, const Tensor& out,
                      std::int64_t offset, std::int64_t head_dim);
// Merges the row, weighted by log-sum-exp, into a result over other keys, out [head_dim] and lse; a row that saw
// no key changes nothing.
void merge_tile_row(const QueryTile& tile, std::int64_t row, std::int64_t width, float* out,
                    std::int64_t head_dim, float& lse);

}  // namespace tandem::ops::detail
