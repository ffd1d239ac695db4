// Copies with casts and checksums: bytes and digests equal the CPU's.
#include <cstring>

#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

using ops::Checksum;
using ops::CopyItem;

struct CopyCase {
    DType from, to;
    std::int64_t rows, columns, from_columns, to_columns, offset;
};

// Lengths around every border of the hash, strided and packed, aligned and not.
std::vector<CopyCase> copy_cases() {
    std::vector<CopyCase> result;
    const DType f = DType::float32, b = DType::bfloat16, h = DType::float16, u = DType::uint8;
    for (const std::int64_t bytes : {0,   1,    3,    8,    16,   17,   128,  129,   240,   241,   255,
                                     256, 1023, 1024, 1025, 1088, 2048, 2049, 33000, 70016, 200001}) {
        result.push_back({u, u, 1, bytes, bytes, bytes, 0});
        result.push_back({u, u, 1, bytes, bytes, bytes, 3});
    }
    result.push_back({u, u, 5, 48, 64, 80, 0});
    result.push_back({u, u, 7, 333, 340, 333, 1});
    result.push_back(
        {u, u, 9, 5008, 5024, 6000, 0});  // rows through the middle of what a warp copies at once
    result.push_back({f, b, 5, 4104, 4112, 4120, 0});
    result.push_back({b, f, 5, 4104, 4120, 4108, 0});
    result.push_back({f, h, 5, 4104, 4112, 4120, 0});
    result.push_back({h, f, 5, 4104, 4120, 4108, 0});
    for (const std::int64_t columns : {1, 7, 8, 64, 1000}) {
        result.push_back({f, b, 3, columns, columns + 8, columns, 0});
        result.push_back({f, b, 3, columns, columns, columns + 8, 1});
        result.push_back({b, f, 3, columns, columns, columns, 0});
        result.push_back({b, f, 4, columns, columns + 4, columns + 4, 1});
        result.push_back({b, b, 9, columns, 2 * columns, columns, 0});
        for (const auto& [from, to] : {std::pair(f, h), std::pair(h, f), std::pair(b, h), std::pair(h, b)}) {
            result.push_back({from, to, 3, columns, columns, columns + 8, 0});
            result.push_back({from, to, 3, columns, columns + 4, columns, 1});
        }
    }
    return result;
}

TEST(GpuCopy, BytesAndDigestsAreTheCpus) {
    const std::vector<CopyCase> all = copy_cases();
    std::vector<Tensor> from, to, from_there, to_there;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const CopyCase& c = all[i];
        const auto bytes = [](DType dtype, std::int64_t elements) {
            return elements * static_cast<std::int64_t>(dtype_size(dtype));
        };
        const auto plain = [&](std::int64_t size) { return Tensor::empty({size}, DType::uint8, "test"); };
        Tensor source = plain(bytes(c.from, c.offset + c.rows * c.from_columns));
        if (c.from == c.to) {
            const auto ids = random_ids(source.numel(), 256, i);
            for (std::size_t k = 0; k < ids.size(); ++k)
                source.values<std::uint8_t>()[k] = static_cast<std::uint8_t>(ids[k]);
        } else {
            const Tensor values = with_dtype(random({c.offset + c.rows * c.from_columns}, i), c.from);
            std::memcpy(source.raw(), values.raw(), source.bytes());
        }
        Tensor target = plain(bytes(c.to, c.offset + c.rows * c.to_columns));
        std::memset(target.raw(), 0x5a, target.bytes());
        from.push_back(source);
        to.push_back(target);
        from_there.push_back(to_tested(source));
        to_there.push_back(to_tested(target));
    }
    std::vector<Checksum> wanted(all.size()), found(all.size());
    const auto items = [&](const std::vector<Tensor>& sources, const std::vector<Tensor>& targets,
                           std::vector<Checksum>& checksums) {
        std::vector<CopyItem> result;
        for (std::size_t i = 0; i < all.size(); ++i) {
            const CopyCase& c = all[i];
            const std::size_t from_size = dtype_size(c.from), to_size = dtype_size(c.to);
            const auto count = [](std::int64_t x) { return static_cast<std::size_t>(x); };
            CopyItem item;
            item.from = {sources[i].raw() + count(c.offset) * from_size, count(c.columns) * from_size};
            item.to = {targets[i].raw() + count(c.offset) * to_size, count(c.columns) * to_size};
            item.from_dtype = c.from;
            item.to_dtype = c.to;
            item.rows = c.rows;
            item.from_stride = count(c.from_columns) * from_size;
            item.to_stride = count(c.to_columns) * to_size;
            if (i % 5 != 4) item.checksum = &checksums[i];
            result.push_back(item);
        }
        return result;
    };
    Stream cpu = Stream::make_inline();
    ops::batched_copy(cpu, items(from, to, wanted));
    const std::vector<CopyItem> there = items(from_there, to_there, found);
    tested::batched_copy(tested_stream(), there);
    tested_stream().synchronize();
    for (std::size_t i = 0; i < all.size(); ++i) {
        SCOPED_TRACE("item " + std::to_string(i) + " of " + std::to_string(all[i].columns) + " columns");
        EXPECT_EQ(to_host(to_there[i]).to_vector<std::uint8_t>(), to[i].to_vector<std::uint8_t>());
        EXPECT_EQ(ops::to_hex(found[i]), ops::to_hex(wanted[i]));
        if (i % 5 == 4) continue;
        CopyItem read = there[i];
        Checksum alone;
        read.to.data = nullptr;
        read.checksum = &alone;
        tested::batched_copy(tested_stream(), {&read, 1});
        tested_stream().synchronize();
        EXPECT_EQ(ops::to_hex(alone), ops::to_hex(wanted[i]));
    }
}

TEST(GpuCopy, InPlace) {
    Tensor values = random({3000}, 1);
    const Tensor there = to_tested(values);
    Checksum found;
    const std::vector<CopyItem> items = {{.from = there.span(), .to = there.span(), .checksum = &found}};
    tested::batched_copy(tested_stream(), items);
    tested_stream().synchronize();
    EXPECT_EQ(found, ops::checksum(values.span()));
    expect_close(to_host(there), values, 0.0);
}

TEST(GpuCopy, AnItemWithoutTargetOnlyGivesItsChecksum) {
    const Tensor read = random({6, 700}, 2), copied = random({5000}, 3);
    Tensor packed = Tensor::empty({6, 500}, DType::uint8, "test");  // the first 500 bytes of each row
    for (std::size_t row = 0; row < 6; ++row)
        std::memcpy(packed.raw() + row * 500, read.raw() + row * 2800, 500);
    const Tensor read_there = to_tested(read), from = to_tested(copied), to = to_tested(zeros({5000}));
    Checksum of_read, of_copied;
    const std::vector<CopyItem> items = {{.from = {read_there.raw(), 500},
                                          .to = {nullptr, 500},
                                          .checksum = &of_read,
                                          .rows = 6,
                                          .from_stride = 2800},
                                         {.from = from.span(), .to = to.span(), .checksum = &of_copied}};
    tested::batched_copy(tested_stream(), items);
    tested_stream().synchronize();
    EXPECT_EQ(of_read, ops::checksum(packed.span()));
    EXPECT_EQ(of_copied, ops::checksum(copied.span()));
    expect_close(to_host(read_there), read, 0.0);
    expect_close(to_host(to), copied, 0.0);
}

TEST(GpuCopy, NoItems) {
    tested::batched_copy(tested_stream(), {});
    tested_stream().synchronize();
}

}  // namespace
}  // namespace tandem::tests
