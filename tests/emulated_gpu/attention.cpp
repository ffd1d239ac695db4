// Attention of the emulated GPU by the CUDA kernels, compiled for the host: TANDEM_EMULATED_ATTENTION in the environment.
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include "common/ops/aliased_attention.h"
#include "tests/support/kernels_on_host_bulk.h"

// decode.cu once more, with another kPart (CMakeLists.txt).
namespace tandem::ops::other_parts {
detail::AliasedAttention::Decode paged_attention_decode;
detail::AliasedAttention::DecodeByTensors paged_attention_decode;
}  // namespace tandem::ops::other_parts

namespace tandem::emulated {
namespace {

using ops::detail::AliasedAttention;

// Kernels of one thread of the host at a time: their shared memory is static.
std::mutex running;

template <auto* kOp>
struct Alone;
template <typename... Args, void (*kOp)(Stream&, Args...)>
struct Alone<kOp> {
    static void run(Stream& stream, Args... args) {
        const std::lock_guard lock(running);
        kOp(stream, std::move(args)...);
    }
};

AliasedAttention kernels_on_host() {
    using namespace ops::on_host;
    AliasedAttention all;
    all.forward = Alone<&attention_forward>::run;
    all.delta = Alone<&attention_delta>::run;
    all.backward = Alone<&attention_backward>::run;
    all.decode = Alone<static_cast<AliasedAttention::Decode*>(&paged_attention_decode)>::run;
    all.decode_by_tensors =
        Alone<static_cast<AliasedAttention::DecodeByTensors*>(&paged_attention_decode)>::run;
    all.prefill = Alone<&paged_attention_prefill>::run;
    return all;
}

AliasedAttention kernels_with_other_parts() {
    using namespace ops::other_parts;
    AliasedAttention all = kernels_on_host();
    all.decode = Alone<static_cast<AliasedAttention::Decode*>(&paged_attention_decode)>::run;
    all.decode_by_tensors =
        Alone<static_cast<AliasedAttention::DecodeByTensors*>(&paged_attention_decode)>::run;
    return all;
}

[[maybe_unused]] const bool kRegistered = [] {
    const char* const value = std::getenv("TANDEM_EMULATED_ATTENTION");
    if (value == nullptr) return false;
    const std::string_view chosen = value;
    if (chosen != "kernels" && chosen != "hopper" && chosen != "other_parts") {
        std::fprintf(stderr, "TANDEM_EMULATED_ATTENTION is %s; use kernels, hopper or other_parts\n", value);
        std::exit(2);
    }
    fibers::set_as_hopper(chosen == "hopper");
    ops::detail::aliased_attention = chosen == "other_parts" ? kernels_with_other_parts() : kernels_on_host();
    return true;
}();

}  // namespace
}  // namespace tandem::emulated
