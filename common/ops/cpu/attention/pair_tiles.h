// Tiles of queries and keys of bfloat16, multiplied as pairs (forward_pairs.h): the counterparts of FloatTiles.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ops/cpu/attention/forward_pairs.h"
#include "common/ops/cpu/attention/page_rows.h"
#include "common/ops/cpu/attention/tile.h"

namespace tandem::ops::detail {

// Whether attention on the CPU multiplies such queries as pairs. Trainer and engine ask alike.
bool multiplies_pairs(const Tensor& q);
// Whether the queries that share keys then lie in rows (PairRowTiles): where they are few. Else in lanes, as many do.
bool takes_pair_rows(const AttentionShape& shape);
// What multiplies them: pairs, or tiles of AMX.
const ForwardPairs& forward_pairs();

// How the scale of scores goes into powers of two above 0: by its size and by what is done to the queries' signs.
struct PairScale {
    explicit PairScale(float scale);
    float powers;
    std::uint32_t flip;
    bool zero;
};

// Many queries of a head.
class PairTiles {
  public:
    static constexpr std::int64_t kQueries = kLaneQueries;
    struct KeyTile {
        const std::uint16_t* k[kKeyTile];
        const std::uint32_t* v_t;
    };

    PairTiles(const AttentionShape& shape, float scale) : shape_(shape), scale_(scale) {}

    std::int64_t tile_floats() const { return kLaneQueries * (lane_pairs(shape_.head_dim) + shape_.width); }
    std::int64_t scratch_floats() const;
    QueryTile place(float* tile, float* scratch) const;
    void load(QueryTile& tile, const Tensor& q, std::int64_t begin, std::int64_t rows,
              std::int64_t head) const;
    // The query heads [first, first + rows) of one row.
    void load_heads(QueryTile& tile, const Tensor& q, std::int64_t row, std::int64_t first,
                    std::int64_t rows) const;
    // On the thread that holds `keys`, a Segment's or a Page's, while it lives.
    void attend(QueryTile& tile, std::int64_t rows, const KeyTile& keys, const SeenKeys& seen) const;
    void finish(QueryTile& tile, std::int64_t rows) const;

    class Segment {
      public:
        Segment(const PairTiles& tiles, const Tensor& k, const Tensor& v, std::int64_t begin,
                std::int64_t count, std::int64_t kv_head);
        KeyTile tile(std::int64_t key) const;

      private:
        AttentionShape shape_;
        const std::uint16_t* k_;
        std::int64_t count_;
        std::uint32_t* v_t_;
        UnitInUse in_use_{forward_pairs().use};
    };
    class Page {
      public:
        explicit Page(const PairTiles& tiles);
        void read(const Tensor& k_cache, const Tensor& v_cache, const PagesInTurn& pages, std::int64_t key,
                  std::int64_t count) {
            read_pages(k_cache, v_cache, pages, key, count);
        }
        KeyTile load(const Tensor& k_cache, const Tensor& v_cache, const std::vector<std::int32_t>& pages,
                     std::int64_t key, std::int64_t count, std::int64_t kv_head);

      private:
        AttentionShape shape_;
        std::uint32_t* v_t_;
        UnitInUse in_use_{forward_pairs().use};
    };

  private:
    void load_rows(QueryTile& tile, const std::uint16_t* from, std::int64_t stride, std::int64_t rows) const;

    AttentionShape shape_;
    PairScale scale_;
};

// The few queries that share the keys of a sequence: the heads of a group.
class PairRowTiles {
  public:
    static constexpr std::int64_t kQueries = 16;
    using KeyTile = KeyRows;

    PairRowTiles(const AttentionShape& shape, float scale) : shape_(shape), scale_(scale) {}

    std::int64_t tile_floats() const;
    std::int64_t scratch_floats() const { return kQueries * row_width(shape_.head_dim); }
    QueryTile place(float* tile, float* scratch) const;
    void load_heads(QueryTile& tile, const Tensor& q, std::int64_t row, std::int64_t first,
                    std::int64_t rows) const;
    void attend(QueryTile& tile, std::int64_t rows, const KeyTile& keys, const SeenKeys& seen) const;
    void finish(QueryTile& tile, std::int64_t rows) const;

    struct Page : PageRows {
        explicit Page(const PairRowTiles& tiles) : PageRows(tiles.shape_) {}
    };

  private:
    AttentionShape shape_;
    PairScale scale_;
};

}  // namespace tandem::ops::detail
