# Libraries from the distribution's package manager; README.md's dependency table says why each is here.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
# oneDNN by hand: Debian's CMake file for it asks for OpenCL's development files, which nothing here needs.
find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(tandem_dnnl INTERFACE)
target_include_directories(tandem_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(tandem_dnnl INTERFACE ${DNNL_LIBRARY})
if(TANDEM_FUZZ)  # what is fuzzed computes nothing; clang would want an OpenMP of its own
  add_library(OpenMP::OpenMP_CXX INTERFACE IMPORTED)
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)  # oneDNN's thread pool; we only set its thread count
endif()
find_package(nlohmann_json REQUIRED)
include_directories(BEFORE SYSTEM scripts/cmake/include)  # what takes long to compile, made shorter
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(tomlplusplus REQUIRED)
if(POLICY CMP0167)
  cmake_policy(SET CMP0167 NEW)  # Boost's own CMake file: newer releases of CMake have none for it
endif()
find_package(Boost 1.74 REQUIRED)  # headers: Asio, Beast

find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
add_library(tandem_xxhash INTERFACE)
target_include_directories(tandem_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
target_link_libraries(tandem_xxhash INTERFACE ${XXHASH_LIBRARY})

find_path(PCRE2_INCLUDE_DIR pcre2.h REQUIRED)
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
add_library(tandem_pcre2 INTERFACE)
target_include_directories(tandem_pcre2 SYSTEM INTERFACE ${PCRE2_INCLUDE_DIR})
target_link_libraries(tandem_pcre2 INTERFACE ${PCRE2_LIBRARY})

find_path(SODIUM_INCLUDE_DIR sodium.h REQUIRED)
find_library(SODIUM_LIBRARY sodium REQUIRED)
add_library(tandem_sodium INTERFACE)
target_include_directories(tandem_sodium SYSTEM INTERFACE ${SODIUM_INCLUDE_DIR})
target_link_libraries(tandem_sodium INTERFACE ${SODIUM_LIBRARY})

# Gloo by hand, like the others: one header and one library.
find_path(GLOO_INCLUDE_DIR gloo/config.h REQUIRED)
find_library(GLOO_LIBRARY gloo REQUIRED)
add_library(tandem_gloo INTERFACE)
target_include_directories(tandem_gloo SYSTEM INTERFACE ${GLOO_INCLUDE_DIR})
target_link_libraries(tandem_gloo INTERFACE ${GLOO_LIBRARY})

find_package(ICU REQUIRED COMPONENTS uc)
add_library(tandem_icu INTERFACE)
target_link_libraries(tandem_icu INTERFACE ICU::uc)

if(TANDEM_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
