// Instructions of all lanes of a warp: each leaves its operands, the last one to arrive does the work of all.
// Not instrumented: what a lane reads of shared memory is told to the racecheck here.
#include <fmt/core.h>

#include "common/error.h"
#include "tests/support/kernel_races.h"
#include "tests/support/kernels_on_host.h"

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

void check_multiple_of_16(std::uintptr_t address, const char* what, const void* site) {
    if (address % 16 == 0) return;
    throw tandem::Error(
        fmt::format("{} at {:#x}, which is no multiple of 16: {}", what, address, races::place_of(site)));
}

// Lane 4 g + t gets row g, columns 2t and 2t + 1 of each matrix.
void load_all(const std::uint64_t* all) {
    std::uint32_t rows[32][4];
    for (unsigned lane = 0; lane < 32; ++lane)
        std::memcpy(rows[lane], reinterpret_cast<const void*>(operands<Load>(all, lane).row), 16);
    for (unsigned lane = 0; lane < 32; ++lane) {
        for (unsigned i = 0; i < 4; ++i) operands<Load>(all, lane).into[i] = rows[8 * i + lane / 4][lane % 4];
    }
}

// Lane 4 g + t gets rows 2t and 2t + 1, column g of each.
void load_all_transposed(const std::uint64_t* all) {
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

float half(std::uint32_t pair, unsigned which) {
    const std::uint32_t bits = which == 0 ? pair << 16 : pair & 0xffff0000u;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

void multiply_all(const std::uint64_t* all) {
    float a[16][16], b[8][16];  // [row][k], [column][k]
    for (unsigned lane = 0; lane < 32; ++lane) {
        const Product& product = operands<Product>(all, lane);
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned h = 0; h < 2; ++h) {
            for (unsigned i = 0; i < 4; ++i)
                a[g + 8 * (i % 2)][2 * t + h + 8 * (i / 2)] = half(product.a.of[i], h);
            for (unsigned i = 0; i < 2; ++i) b[g][2 * t + h + 8 * i] = half(product.b[i], h);
        }
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
        for (unsigned i = 0; i < 4; ++i) {
            const float* const row = a[lane / 4 + 8 * (i / 2)];
            const float* const column = b[2 * (lane % 4) + i % 2];
            float& sum = operands<Product>(all, lane).c.of[i];
            for (unsigned k = 0; k < 16; ++k) sum += row[k] * column[k];
        }
    }
}

struct Turn {
    std::uint32_t from, to;
};

void transpose_all(const std::uint64_t* all) {
    for (unsigned lane = 0; lane < 32; ++lane) {
        const unsigned g = lane / 4, t = lane % 4;
        const auto element = [&](unsigned row) {
            return operands<Turn>(all, row * 4 + g / 2).from >> (16 * (g % 2)) & 0xffffu;
        };
        operands<Turn>(all, lane).to = element(2 * t) | element(2 * t + 1) << 16;
    }
}

}  // namespace

Four<std::uint32_t> load_matrices(std::uintptr_t row, bool transposed) {
    const void* const site = __builtin_return_address(0);
    check_multiple_of_16(row, "a matrix has a row", site);
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

std::uint32_t transpose(std::uint32_t pair) {
    Turn turn{pair, 0};
    together(&turn, transpose_all, __builtin_return_address(0));
    return turn.to;
}

void copy_ahead(std::uintptr_t to, const void* from, bool there) {
    const void* const site = __builtin_return_address(0);
    check_multiple_of_16(to, "a copy has its target", site);
    check_multiple_of_16(reinterpret_cast<std::uintptr_t>(from), "a copy has its source", site);
    void* const target = reinterpret_cast<void*>(to);
    races::touched(target, 16, races::Kind::write, site);
    if (!there) {
        std::memset(target, 0, 16);
        return;
    }
    races::touched(from, 16, races::Kind::read, site);
    std::memcpy(target, from, 16);
}

void commit_ahead() {}
void wait_ahead(int) {}

}  // namespace fibers
