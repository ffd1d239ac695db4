// Products of warpgroups at the worst moment allowed: they read their tiles and write their sums when a warp waits
// for them. Until then the sums' registers hold a NaN that must stay, tiles are being read, and a's registers must
// stay as they were. Each warp does its sixteen rows; what it reads is an actor of its own (kernel_clocks.h).
#include "tests/support/kernels_on_host_products.h"
#include "tests/support/kernel_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <utility>
#include <vector>

#include "common/error.h"
#include "tests/support/kernel_mutations.h"
#include "tests/support/kernel_races.h"
#include "tests/support/kernels_on_host_counts.h"
#include "tests/support/kernels_on_host_rules.h"
#include "tests/support/tensor_core.h"

namespace fibers {
namespace {

using races::place_of;

constexpr std::uint32_t kUnderWay = 0x7f9eadedu;  // a signalling NaN: arithmetic makes another one of it
constexpr std::uintptr_t kPattern = 1024;         // swizzles begin anew
constexpr unsigned kLanes = 32;

// What a lane leaves.
struct Issue {
    float* d;
    const std::uint32_t* a;
    int columns;
    std::uint64_t tile_a, tile_b;
    bool transposed_b, add;
    const void* site;
};

using Registers = std::vector<float>;

struct Product {
    std::array<Issue, kLanes> lanes;
    std::array<std::array<std::uint32_t, 4>, kLanes> a;  // as it was at the issue
};

// The products of a warp.
struct Warp {
    std::vector<Product> open;
    std::vector<std::vector<Product>> groups;  // that have been committed and not waited for
    std::uint32_t waited = 0;                  // groups
    bool fenced = false;
    // Registers of sums: what those under way hold in truth, and what others held at the last fence or wait.
    std::map<float*, Registers> under_way, known;
    std::uint16_t actor = 0;
};

thread_local std::map<unsigned, Warp> warps;

Warp& my_warp() {
    Warp& warp = warps[here().thread.x / kLanes];
    if (warp.actor == 0) {
        races::use_clocks();
        warp.actor = races::new_actor();
    }
    return warp;
}

// An operand in shared memory.
struct Tile {
    std::uintptr_t start, leading, stride, swizzle;
    explicit Tile(std::uint64_t bits)
        : start(origin() + (bits & 0x3fff) * 16),
          leading((bits >> 16 & 0x3fff) * 16),
          stride((bits >> 32 & 0x3fff) * 16),
          swizzle(bits >> 62 == 1   ? 128
                  : bits >> 62 == 2 ? 64
                                    : 0) {
        if (swizzle == 0) throw tandem::Error("a tile of products is swizzled over 64 or 128 bytes");
    }
    static std::uintptr_t origin() {
        return reinterpret_cast<std::uintptr_t>(shared_memory()) / kPattern * kPattern;
    }
    // Of a row (or column of b) and a term: rows of terms, or, transposed, terms of rows.
    const std::byte* at(std::uintptr_t row, std::uintptr_t term, bool transposed) const {
        const std::uintptr_t width = swizzle / 2;
        const std::uintptr_t address = transposed ? start + row % width * 2 + row / width * leading +
                                                        term % 8 * swizzle + term / 8 * stride
                                                  : start + row % 8 * swizzle + row / 8 * stride + 2 * term;
        return reinterpret_cast<const std::byte*>(address ^ (address >> 7 & (swizzle / 16 - 1)) << 4);
    }
    // Sixteen terms of a row.
    void read(std::uintptr_t row, std::uint16_t (&terms)[16]) const {
        for (std::uintptr_t term = 0; term < 16; term += 8)
            std::memcpy(terms + term, at(row, term, false), 16);
    }
    // … of the eight rows from a multiple of eight on, which lie side by side, term by term.
    void read_transposed(std::uintptr_t row, std::uint16_t (&terms)[8][16]) const {
        for (std::uintptr_t term = 0; term < 16; ++term) {
            std::uint16_t rows[8];
            std::memcpy(rows, at(row, term, true), 16);
            for (std::size_t i = 0; i < 8; ++i) terms[i][term] = rows[i];
        }
    }
};

const Issue& issue_of(const std::uint64_t* all, unsigned lane) {
    return *reinterpret_cast<const Issue*>(all[lane]);
}

std::size_t sums(const Issue& issue) {
    return static_cast<std::size_t>(issue.columns) / 2;
}

unsigned first_row(const Issue&) {
    return here().thread.x / kLanes % 4 * 16;
}

// Tells the racecheck what of the tiles this warp reads, in chunks of 16 bytes.
void read_tiles(const Issue& issue, const Warp& warp) {
    const races::Actor actor{warp.actor, warp.waited + static_cast<std::uint32_t>(warp.groups.size()) + 1};
    const races::Clock seen = races::seen_by_warp();
    const auto read = [&](const std::byte* chunk) {
        check_shared_row(chunk, "a tile of a product", issue.site);
        races::read_by(actor, chunk, 16, seen, issue.site);
    };
    const Tile b(issue.tile_b);
    for (std::uintptr_t column = 0; column < static_cast<std::uintptr_t>(issue.columns); ++column) {
        if (issue.transposed_b) {
            for (std::uintptr_t term = 0; column % 8 == 0 && term < 16; ++term)
                read(b.at(column, term, true));
        } else {
            for (std::uintptr_t term = 0; term < 16; term += 8) read(b.at(column, term, false));
        }
    }
    if (issue.a != nullptr) return;
    const Tile a(issue.tile_a);
    for (std::uintptr_t row = 0; row < 16; ++row) {
        for (std::uintptr_t term = 0; term < 16; term += 8) read(a.at(first_row(issue) + row, term, false));
    }
}

// The sums' registers go under way, unless they are.
void take_registers(const Issue& issue, Warp& warp) {
    if (warp.under_way.contains(issue.d)) return;
    const Registers now(issue.d, issue.d + sums(issue));
    const auto known = warp.known.find(issue.d);
    if (known != warp.known.end() &&
        std::memcmp(known->second.data(), now.data(), sums(issue) * sizeof(float)) != 0) {
        throw tandem::Error("a product's sums have changed since the last fence of products: " +
                            place_of(issue.site));
    }
    warp.under_way[issue.d] = now;
    std::fill_n(issue.d, sums(issue), std::bit_cast<float>(kUnderWay));
}

void issue_all(const std::uint64_t* all) {
    const Issue& first = issue_of(all, 0);
    Warp& warp = my_warp();
    if (!warp.fenced) throw tandem::Error("products need a fence of products first: " + place_of(first.site));
    if (first.columns % 8 != 0 || first.columns < 8 || first.columns > 256) {
        throw tandem::Error(fmt::format("a product of {} columns, not a multiple of 8 up to 256: {}",
                                        first.columns, place_of(first.site)));
    }
    read_tiles(first, warp);
    Product product;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        const Issue& issue = issue_of(all, lane);
        if (issue.tile_b != first.tile_b || issue.tile_a != first.tile_a)
            throw tandem::Error("lanes of a warp name different tiles: " + place_of(first.site));
        product.lanes[lane] = issue;
        if (issue.a != nullptr) std::copy_n(issue.a, 4, product.a[lane].begin());
        take_registers(issue, warp);
    }
    ++counts.group_products;
    warp.open.push_back(std::move(product));
}

void check_untouched(const Product& product) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        const Issue& issue = product.lanes[lane];
        const bool sums_stand = std::all_of(issue.d, issue.d + sums(issue), [](float value) {
            return std::bit_cast<std::uint32_t>(value) == kUnderWay;
        });
        if (!sums_stand)
            throw tandem::Error("a product's sums were touched before it was waited for: " +
                                place_of(issue.site));
        if (issue.a != nullptr && !std::equal(issue.a, issue.a + 4, product.a[lane].begin()))
            throw tandem::Error("a product's registers have changed under way: " + place_of(issue.site));
    }
}

void read_a(const Product& product, std::uint16_t (&a)[16][16]) {
    const Issue& first = product.lanes[0];
    if (first.a == nullptr) {
        const Tile tile(first.tile_a);
        for (unsigned row = 0; row < 16; ++row) tile.read(first_row(first) + row, a[row]);
        return;
    }
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        for (unsigned i = 0; i < 4; ++i)
            std::memcpy(&a[lane / 4 + 8 * (i % 2)][2 * (lane % 4) + 8 * (i / 2)], &product.a[lane][i], 4);
    }
}

// Eight columns, as m16n8k16 has them.
void multiply_columns(const Product& product, const std::array<float*, kLanes>& sums,
                      const std::uint16_t (&a)[16][16], unsigned tile) {
    const Issue& first = product.lanes[0];
    const Tile from(first.tile_b);
    std::uint16_t b[8][16];
    if (first.transposed_b) from.read_transposed(8 * tile, b);
    for (unsigned column = 0; column < 8 && !first.transposed_b; ++column)
        from.read(8 * tile + column, b[column]);
    float c[16][8] = {};
    const auto of_lane = [&](unsigned lane) { return sums[lane] + 4 * tile; };
    for (unsigned lane = 0; lane < kLanes && first.add; ++lane) {
        for (unsigned i = 0; i < 2; ++i)
            std::memcpy(&c[lane / 4 + 8 * i][2 * (lane % 4)], of_lane(lane) + 2 * i, 8);
    }
    tensor_core_product(a, b, c);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        for (unsigned i = 0; i < 2; ++i)
            std::memcpy(of_lane(lane) + 2 * i, &c[lane / 4 + 8 * i][2 * (lane % 4)], 8);
    }
}

void multiply(const Product& product, Warp& warp) {
    std::uint16_t a[16][16];
    read_a(product, a);
    std::array<float*, kLanes> sums;
    for (unsigned lane = 0; lane < kLanes; ++lane) sums[lane] = warp.under_way[product.lanes[lane].d].data();
    for (unsigned tile = 0; tile < static_cast<unsigned>(product.lanes[0].columns) / 8; ++tile)
        multiply_columns(product, sums, a, tile);
}

// Sums that no product under way adds to are in their registers again.
void give_registers_back(Warp& warp) {
    const auto needed = [&](float* d) {
        const auto adds = [&](const Product& product) {
            return std::any_of(product.lanes.begin(), product.lanes.end(),
                               [&](const Issue& issue) { return issue.d == d; });
        };
        return std::any_of(warp.open.begin(), warp.open.end(), adds) ||
               std::any_of(warp.groups.begin(), warp.groups.end(), [&](const std::vector<Product>& group) {
                   return std::any_of(group.begin(), group.end(), adds);
               });
    };
    for (auto at = warp.under_way.begin(); at != warp.under_way.end();) {
        if (needed(at->first)) {
            ++at;
            continue;
        }
        std::copy(at->second.begin(), at->second.end(), at->first);
        warp.known[at->first] = std::move(at->second);
        at = warp.under_way.erase(at);
    }
}

struct Wait {
    std::size_t pending;
    races::Actor over;
};

void wait_all(const std::uint64_t* all) {
    Warp& warp = my_warp();
    const std::size_t pending = reinterpret_cast<const Wait*>(all[0])->pending;
    for (const auto& group : warp.groups) {
        for (const Product& product : group) check_untouched(product);
    }
    while (warp.groups.size() > pending) {
        for (const Product& product : warp.groups.front()) multiply(product, warp);
        warp.groups.erase(warp.groups.begin());
        ++warp.waited;
    }
    give_registers_back(warp);
    for (unsigned lane = 0; lane < kLanes; ++lane)
        reinterpret_cast<Wait*>(all[lane])->over = {warp.actor, warp.waited};
}

void fence_all(const std::uint64_t*) {
    Warp& warp = my_warp();
    warp.fenced = true;
    for (auto& [d, content] : warp.known) {
        if (!warp.under_way.contains(d)) std::copy_n(d, content.size(), content.begin());
    }
}

void commit_all(const std::uint64_t*) {
    Warp& warp = my_warp();
    warp.groups.push_back(std::exchange(warp.open, {}));
}

}  // namespace

void begin_products() {
    warps.clear();
}

void end_products() {
    for (const auto& [number, warp] : warps) {
        if (warp.under_way.empty()) continue;
        const Product& product = warp.groups.empty() ? warp.open.front() : warp.groups.front().front();
        throw tandem::Error(fmt::format("warp {} ends with products under way, the first from {}", number,
                                        place_of(product.lanes[0].site)));
    }
}

std::uint64_t tile_at(std::uintptr_t address, unsigned leading, unsigned stride, unsigned swizzle) {
    const std::uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : 0;
    return (address - Tile::origin()) / 16 | std::uint64_t{leading / 16} << 16 |
           std::uint64_t{stride / 16} << 32 | mode << 62;
}

void fence_products() {
    const void* const site = __builtin_return_address(0);
    if (left_out(LeftOut::product_fence, site)) return;
    together(nullptr, fence_all, site);
}

void issue_product(float* d, int columns, const std::uint32_t* a, std::uint64_t tile_a, std::uint64_t tile_b,
                   bool transposed_b, bool add) {
    const void* const site = __builtin_return_address(0);
    Issue issue{d, a, columns, tile_a, tile_b, transposed_b, add, site};
    together(&issue, issue_all, site);
}

void commit_products() {
    const void* const site = __builtin_return_address(0);
    if (left_out(LeftOut::product_commit, site)) return;
    together(nullptr, commit_all, site);
}

void wait_for_products(int pending) {
    const void* const site = __builtin_return_address(0);
    if (left_out(LeftOut::product_wait, site)) return;
    if (left_out(LeftOut::last_product_group, site)) ++pending;
    Wait wait{static_cast<std::size_t>(pending), {}};
    together(&wait, wait_all, site);
    races::Clock over;
    over.see(wait.over);
    races::acquire(over);
}

}  // namespace fibers
