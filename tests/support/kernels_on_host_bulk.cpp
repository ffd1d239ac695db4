// Bulk copies are on their way until all threads of their block wait; then one of them, any, has arrived.
#include "tests/support/kernels_on_host_bulk.h"
#include "tests/support/kernel_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "common/error.h"
#include "tests/support/kernel_races.h"
#include "tests/support/kernels_on_host_rules.h"

namespace fibers {
namespace {

using races::place_of;

constexpr std::int64_t kMostBox = 256, kPiece = 16;

struct Bulk {
    std::vector<std::byte*> pieces;          // of 16 bytes, where they go
    std::function<void(std::size_t)> bring;  // the piece of that number
    std::uintptr_t mbarrier;
    const void* site;
};

bool hopper = false;
thread_local std::vector<Bulk> under_way;
thread_local std::minstd_rand any;

void refuse_unless(bool right, const char* rule) {
    if (!right) throw tandem::Error(fmt::format("a tensor map: {}", rule));
}

void check_multiple(std::uintptr_t value, std::uintptr_t of, const char* what, const void* site) {
    if (value % of == 0) return;
    throw tandem::Error(fmt::format("{} is {:#x}, no multiple of {}: {}", what, value, of, place_of(site)));
}

// From here on nobody else may touch its target.
void issue(Bulk bulk) {
    for (std::byte* const piece : bulk.pieces) {
        check_shared_row(piece, "a bulk copy's target", bulk.site);
        races::copy_begins(piece, bulk.site);
        std::memset(piece, 0xff, kPiece);
    }
    under_way.push_back(std::move(bulk));
}

// The address in whose chunk of 16 bytes a swizzled tile has this address.
std::uintptr_t swizzled(std::uintptr_t address, int bytes) {
    if (bytes == 0) return address;
    const auto chunks = static_cast<std::uintptr_t>(bytes) / 16;
    return address ^ (address >> 7 & (chunks - 1)) << 4;
}

// The row of a box, null where the tensor has none.
const std::byte* row_of(const TensorMap& map, std::int64_t y, std::int64_t z) {
    if (y < 0 || y >= map.size[1] || z < 0 || z >= map.size[2]) return nullptr;
    return map.base + y * map.strides[0] + z * map.strides[1];
}

struct Box {
    TensorMap map;
    std::int64_t x, y, z;
    std::int64_t pieces_of_row() const { return std::int64_t{2} * map.box[0] / kPiece; }
    const std::byte* row(std::int64_t number) const {
        return row_of(map, y + number % map.box[1], z + number / map.box[1]);
    }
    void bring(std::size_t piece, std::byte* to) const {
        const auto number = static_cast<std::int64_t>(piece);
        const std::byte* const from = row(number / pieces_of_row());
        for (std::int64_t i = 0; i < kPiece / 2; ++i) {
            const std::int64_t column = x + number % pieces_of_row() * (kPiece / 2) + i;
            const bool there = from != nullptr && column >= 0 && column < map.size[0];
            if (there) {
                std::memcpy(to + 2 * i, from + 2 * column, 2);
            } else {
                std::memset(to + 2 * i, 0, 2);
            }
        }
    }
    // The thread reads what of the tensor is in the box.
    void read(const void* site) const {
        const std::int64_t begin = std::max<std::int64_t>(x, 0), end = std::min(x + map.box[0], map.size[0]);
        if (begin >= end) return;
        for (std::int64_t number = 0; number < std::int64_t{map.box[1]} * map.box[2]; ++number) {
            const std::byte* const from = row(number);
            if (from == nullptr) continue;
            races::touched(from + 2 * begin, static_cast<std::size_t>(2 * (end - begin)), races::Kind::read,
                           site);
        }
    }
};

}  // namespace

bool as_hopper() {
    return hopper;
}
void set_as_hopper(bool yes) {
    hopper = yes;
}

TensorMap tensor_map(const void* base, std::array<std::int64_t, 3> size, std::array<std::int64_t, 2> strides,
                     std::array<int, 3> box, int swizzle) {
    refuse_unless(reinterpret_cast<std::uintptr_t>(base) % 16 == 0, "the tensor begins at a multiple of 16");
    for (const std::int64_t dimension : size)
        refuse_unless(dimension >= 1 && dimension <= std::int64_t{1} << 32, "dimensions are 1 to 2^32");
    for (const std::int64_t stride : strides)
        refuse_unless(stride > 0 && stride % 16 == 0 && stride < std::int64_t{1} << 40,
                      "strides are multiples of 16 bytes below 2^40");
    for (const int length : box) refuse_unless(length >= 1 && length <= kMostBox, "boxes are 1 to 256 long");
    refuse_unless(2 * box[0] % 16 == 0, "a box's rows are multiples of 16 bytes");
    refuse_unless(swizzle == 0 || swizzle == 32 || swizzle == 64 || swizzle == 128,
                  "swizzles are 0, 32, 64 and 128");
    refuse_unless(swizzle == 0 || 2 * box[0] <= swizzle, "a box's rows are no longer than the swizzle");
    return {static_cast<const std::byte*>(base), size, strides, box, swizzle};
}

void begin_bulk(std::size_t block) {
    under_way.clear();
    any.seed(static_cast<unsigned>(block) + 1);
}

void end_bulk() {
    if (under_way.empty()) return;
    throw tandem::Error(fmt::format("a block ends with {} bulk copies on their way, the first from {}",
                                    under_way.size(), place_of(under_way.front().site)));
}

bool end_one_bulk() {
    if (under_way.empty()) return false;
    const auto chosen = under_way.begin() + static_cast<std::ptrdiff_t>(any() % under_way.size());
    const Bulk bulk = std::move(*chosen);
    under_way.erase(chosen);
    const races::Actor actor = actor_of(bulk.mbarrier);
    for (std::size_t i = 0; i < bulk.pieces.size(); ++i) {
        races::copy_arrives(bulk.pieces[i], actor, bulk.site);
        bulk.bring(i);
    }
    bytes_arrive(bulk.mbarrier, bulk.pieces.size() * kPiece, actor);
    return true;
}

void bring_box(std::uintptr_t to, const TensorMap& map, std::uintptr_t mbarrier, int x, int y, int z) {
    const void* const site = __builtin_return_address(0);
    check_multiple(to, 128, "a box's target", site);
    check_mbarrier(mbarrier, site);
    const Box box{map, x, y, z};
    box.read(site);
    std::vector<std::byte*> pieces;
    for (std::int64_t at = 0; at < map.box_bytes(); at += kPiece)
        pieces.push_back(
            reinterpret_cast<std::byte*>(swizzled(to + static_cast<std::uintptr_t>(at), map.swizzle)));
    issue({pieces, [box, pieces](std::size_t i) { box.bring(i, pieces[i]); }, mbarrier, site});
}

void bring_bulk(std::uintptr_t to, const void* from, unsigned bytes, std::uintptr_t mbarrier) {
    const void* const site = __builtin_return_address(0);
    check_multiple(to, 16, "a bulk copy's target", site);
    check_multiple(reinterpret_cast<std::uintptr_t>(from), 16, "a bulk copy's source", site);
    check_multiple(bytes, 16, "the size of a bulk copy", site);
    check_mbarrier(mbarrier, site);
    races::touched(from, bytes, races::Kind::read, site);
    std::vector<std::byte*> pieces;
    for (unsigned at = 0; at < bytes; at += 16) pieces.push_back(reinterpret_cast<std::byte*>(to + at));
    const auto* const source = static_cast<const std::byte*>(from);
    issue({pieces, [source, pieces](std::size_t i) { std::memcpy(pieces[i], source + kPiece * i, kPiece); },
           mbarrier, site});
}

}  // namespace fibers
