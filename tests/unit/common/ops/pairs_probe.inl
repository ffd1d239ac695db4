// The functions of pairs_probe.h over whichever primitives the including source is compiled with.
using namespace ops::detail;

void probe_dot(const std::uint32_t* a, const std::uint32_t* b, const float* sum, float* to) {
    store_floats(to, dot_pairs(load_pairs(a), load_pairs(b), load_floats(sum)));
}
void probe_narrow(const float* first, const float* second, std::uint32_t* to) {
    store_pairs(to, narrow_pairs(load_floats(first), load_floats(second)));
}
void probe_power(const float* x, float* to) {
    store_floats(to, power_of_two(load_floats(x)));
}
void probe_compare(const float* a, const float* b, float* most, float* chosen, float* fused) {
    const Floats x = load_floats(a), y = load_floats(b);
    store_floats(most, larger(x, y));
    store_floats(chosen, select_lanes(where_greater(x, y), x, y));
    store_floats(fused, fused_floats(x, y, x));
}
void probe_load(const std::uint32_t* from, std::uint16_t lanes, std::uint32_t* to) {
    store_pairs(to,
                select_lanes(static_cast<LaneMask>(~lanes), all_lanes_pair(from), load_pairs(from, lanes)));
}
