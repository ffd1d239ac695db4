// The function of amx_probe.h over whichever tiles the including source is compiled with.
using namespace ops::detail;

void multiply_arrays(const std::uint32_t* a, const std::uint32_t* b, float* sum) {
    configure_tiles();
    load_tile<0>(sum, kTileRows);
    load_tile<1>(a, kTileRows);
    load_tile<7>(b, kTileRows);
    multiply_tiles<0, 1, 7>();
    store_tile<0>(sum, kTileRows);
    release_tiles();
}
