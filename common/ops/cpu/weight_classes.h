// A row's tokens in the order of their weights, without sorting them: counted into classes of about the same weight,
// of which only those are looked at that a search ends in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::ops::cpu {

struct Weighted {
    float weight;
    std::int32_t token;
};

// The likeliest first, the lowest id among equals.
inline bool likelier(const Weighted& a, const Weighted& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

double mass_of(std::span<const Weighted> tokens);

// Where, with the likeliest first, the mass of those before passes from at most `target` to more; the last one
// if it never does. Moves the likelier ones before it, in no order.
struct AtMass {
    std::size_t rank;
    double before;
};
AtMass find_mass(std::span<Weighted> tokens, double target);

class WeightClasses {
  public:
    // weights: of at most 1, which must stay; those below `least` or the smallest normal float are in no class.
    void count(std::span<const float> weights, float least = 0.0f);

    std::size_t size() const { return masses_.size(); }
    std::size_t tokens(std::size_t index) const { return tokens_[index]; }
    double mass(std::size_t index) const { return masses_[index]; }
    // Every weight of the class is at least this.
    float least(std::size_t index) const;
    // The class's tokens, in no order of weight.
    void collect(std::size_t index, std::vector<Weighted>& tokens) const;

  private:
    std::span<const float> weights_;
    float least_ = 0;  // of the last class
    std::vector<std::uint32_t> tokens_;
    std::vector<double> masses_;
};

}  // namespace tandem::ops::cpu
