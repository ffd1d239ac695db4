#include "common/ops/cpu/product_library.h"

#include <map>
#include <utility>

namespace tandem::ops::detail {
namespace {

constexpr std::size_t kMaxKernels = 4096;  // per thread; past it the cache is cleared

}  // namespace

ProductKernel* product_kernel(const ProductLibrary& library, const Product& product) {
    thread_local std::map<std::pair<const ProductLibrary*, Product>, std::unique_ptr<ProductKernel>> cache;
    const std::pair key(&library, product);
    const auto found = cache.find(key);
    if (found != cache.end()) return found->second.get();
    if (cache.size() >= kMaxKernels) cache.clear();
    return cache.emplace(key, library.make(product)).first->second.get();
}

}  // namespace tandem::ops::detail
