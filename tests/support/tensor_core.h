// A tensor core's m16n8k16 product of bfloat16 matrices with float32 sums, bit by bit, as microsoft/MMA-Sim
// describes it from measurements and tests/gpu/attention measured on an H100: products are exact; they and c are
// aligned to the largest exponent among them, cut off below some bits, summed, and the sum is cut off to float32.
// So the order within a product is nothing, and zeros leave c as it is (-0 becomes +0). Other than there, a zero has
// no exponent, whatever it is multiplied with, and the largest is at least 2^-133.
#pragma once

#include <cstdint>

namespace fibers {

enum class TensorCore {
    hopper,  // all sixteen products at once, 25 bits of fraction; wgmma is the same
    ampere,  // and Ada: eight products, then the other eight, 24 bits
};
void set_tensor_core(TensorCore which);  // hopper until then; of this thread of the host

// c += a b. A NaN comes out as 0x7fffffff.
void tensor_core_product(const std::uint16_t (&a)[16][16],  // [row][k]
                         const std::uint16_t (&b)[8][16],   // [column][k]
                         float (&c)[16][8]);

}  // namespace fibers
