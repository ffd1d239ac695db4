// Instructions of all lanes of a warp: each leaves its operands, the last one to arrive does the work of all.
// Not instrumented: what a lane reads of shared memory is told to the racecheck here.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "tests/support/kernel_places.h"
#include "tests/support/kernel_races.h"
#include "tests/support/kernels_on_host.h"
#include "tests/support/kernels_on_host_counts.h"
#include "tests/support/kernels_on_host_rules.h"
#include "tests/support/tensor_core.h"

namespace fibers {
namespace {

struct Load {
    std::uintptr_t row;
    std::uint32_t into[4];
};

struct Product {
    Four<float> c;
    Four<std::uint32_t> a;
    std::uint32_t b[2];
};

template <typename Operands>
Operands& operands(const std::uint64_t* all, unsigned lane) {
    return *reinterpret_cast<Operands*>(all[lane]);
}

// Eight rows of 16 bytes come in one turn where they lie in different banks, or are the same.
std::int64_t conflicts(const std::uint64_t* all) {
    std::uint64_t different[8][8];
    int count[8] = {};
    for (unsigned lane = 0; lane < 8; ++lane) {
        const std::uint64_t row = operands<Load>(all, lane).row;
        const std::uint64_t bank = row / 16 % 8;
        if (std::find(different[bank], different[bank] + count[bank], row) == different[bank] + count[bank])
            different[bank][count[bank]++] = row;
    }
    return *std::max_element(count, count + 8) - 1;
}

void count_load(const std::uint64_t* all) {
    ++counts.matrix_loads;
    for (int i = 0; i < 4; ++i) counts.bank_conflicts += conflicts(all + 8 * i);
}

// Lane 4 g + t gets row g, columns 2t and 2t + 1 of each matrix.
void load_all(const std::uint64_t* all) {
    count_load(all);
    std::uint32_t rows[32][4];
    for (unsigned lane = 0; lane < 32; ++lane)
        std::memcpy(rows[lane], reinterpret_cast<const void*>(operands<Load>(all, lane).row), 16);
    for (unsigned lane = 0; lane < 32; ++lane) {
        for (unsigned i = 0; i < 4; ++i) operands<Load>(all, lane).into[i] = rows[8 * i + lane / 4][lane % 4];
    }
}

// Lane 4 g + t gets rows 2t and 2t + 1, column g of each.
void load_all_transposed(const std::uint64_t* all) {
    count_load(all);
    std::uint16_t rows[32][8];
    for (unsigned lane = 0; lane < 32; ++lane)
        std::memcpy(rows[lane], reinterpret_cast<const void*>(operands<Load>(all, lane).row), 16);
    for (unsigned lane = 0; lane < 32; ++lane) {
        for (unsigned i = 0; i < 4; ++i) {
            const std::uint16_t* const first = rows[8 * i + 2 * (lane % 4)];
            operands<Load>(all, lane).into[i] = first[lane / 4] | std::uint32_t{first[8 + lane / 4]} << 16;
        }
    }
}

// As instructions.cuh says who holds what.
void multiply_all(const std::uint64_t* all) {
    ++counts.products;
    std::uint16_t a[16][16], b[8][16];
    float c[16][8];
    for (unsigned lane = 0; lane < 32; ++lane) {
        const Product& product = operands<Product>(all, lane);
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < 4; ++i)
            std::memcpy(&a[g + 8 * (i % 2)][2 * t + 8 * (i / 2)], &product.a.of[i], 4);
        for (unsigned i = 0; i < 2; ++i) {
            std::memcpy(&b[g][2 * t + 8 * i], &product.b[i], 4);
            std::memcpy(&c[g + 8 * i][2 * t], &product.c.of[2 * i], 8);
        }
    }
    tensor_core_product(a, b, c);
    for (unsigned lane = 0; lane < 32; ++lane) {
        for (unsigned i = 0; i < 2; ++i)
            std::memcpy(&operands<Product>(all, lane).c.of[2 * i], &c[lane / 4 + 8 * i][2 * (lane % 4)], 8);
    }
}

}  // namespace

thread_local constinit Counts counts;

Counts take_counts() {
    return std::exchange(counts, {});
}

void check_multiple_of_16(const void* address, const char* what, const void* site) {
    if (reinterpret_cast<std::uintptr_t>(address) % 16 == 0) return;
    throw tandem::Error(
        fmt::format("{} is at {}, no multiple of 16: {}", what, fmt::ptr(address), races::place_of(site)));
}

void check_shared_row(const void* row, const char* what, const void* site) {
    check_multiple_of_16(row, what, site);
    if (races::in_shared_memory(row, 16)) return;
    throw tandem::Error(
        fmt::format("{} is at {}, not in shared memory: {}", what, fmt::ptr(row), races::place_of(site)));
}

Four<std::uint32_t> load_matrices(std::uintptr_t row, bool transposed) {
    const void* const site = __builtin_return_address(0);
    check_shared_row(reinterpret_cast<const void*>(row), "a row of a matrix", site);
    races::touched(reinterpret_cast<const void*>(row), 16, races::Kind::read, site);
    Load load{row, {}};
    together(&load, transposed ? load_all_transposed : load_all, site);
    return {{load.into[0], load.into[1], load.into[2], load.into[3]}};
}

Four<float> multiply(Four<float> c, Four<std::uint32_t> a, std::uint32_t b0, std::uint32_t b1) {
    Product product{c, a, {b0, b1}};
    together(&product, multiply_all, __builtin_return_address(0));
    return product.c;
}

}  // namespace fibers
