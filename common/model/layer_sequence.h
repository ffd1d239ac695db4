// What a decoder layer does, in which order, told once. Trainer and engine bring the steps, each with its own memory, attention
// and way to keep what it will need again, and so compute the same.
#pragma once

#include <array>

#include "common/model/parameters.h"
#include "common/tensor/tensor.h"

namespace tandem::model {

// x + attention(norm(x)), then x + mlp(norm(x)). x [rows, hidden]. Steps:
//   Tensor normed(Role norm, const Tensor& x)
//   Tensor attention(const Tensor& h), Tensor mlp(const Tensor& h)   // the two below
//   Tensor added(const Tensor& x, const Tensor& update)              // either's memory may be the result's
template <typename Steps>
Tensor run_attention_half(Steps&& steps, const Tensor& x) {
    return steps.added(x, steps.attention(steps.normed(Role::input_norm, x)));
}

template <typename Steps>
Tensor run_layer(Steps&& steps, const Tensor& x) {
    const Tensor x1 = run_attention_half(steps, x);
    return steps.added(x1, steps.mlp(steps.normed(Role::post_norm, x1)));
}

// Several projections of x: in one call of steps that offer
//   std::array<Tensor, N> projected(const std::array<Role, N>& projections, const Tensor& x)
// and one after the other by those that do not.
template <typename Steps, std::size_t N>
std::array<Tensor, N> run_projections(Steps& steps, const std::array<Role, N>& roles, const Tensor& x) {
    if constexpr (requires { steps.projected(roles, x); }) {
        return steps.projected(roles, x);
    } else {
        std::array<Tensor, N> result;
        for (std::size_t i = 0; i < N; ++i) result[i] = steps.projected(roles[i], x);
        return result;
    }
}

// Grouped-query attention with RoPE: h [rows, hidden] -> [rows, hidden]. Steps:
//   Tensor projected(Role projection, const Tensor& x)        // with its bias; q, k, v: [rows, heads, head_dim]
//   bool norms_heads(), Tensor head_normed(Role norm, const Tensor& heads)
//   void rotate(const Tensor& heads)                          // in place, by each row's position
//   Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v)   // like q
template <typename Steps>
Tensor run_attention(Steps&& steps, const Tensor& h) {
    auto [q, k, v] = run_projections(steps, std::array{Role::q, Role::k, Role::v}, h);
    if (steps.norms_heads()) {
        q = steps.head_normed(Role::q_norm, q);
        k = steps.head_normed(Role::k_norm, k);
    }
    steps.rotate(q);
    steps.rotate(k);
    return steps.projected(Role::o, steps.attended(q, k, v));
}

// down(silu(gate(h)) * up(h)). Steps: projected, and Tensor activated(const Tensor& gate, const Tensor& up)
template <typename Steps>
Tensor run_mlp(Steps&& steps, const Tensor& h) {
    const auto [gate, up] = run_projections(steps, std::array{Role::gate, Role::up}, h);
    return steps.projected(Role::down, steps.activated(gate, up));
}

}  // namespace tandem::model
