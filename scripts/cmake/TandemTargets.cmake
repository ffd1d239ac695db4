# tandem_cold(TARGET): a target whose sources read and write text. It is built with -O1, under a sanitizer with -O0, and the
# headers that such sources include are compiled once where a build starts from nothing (joined, see below): together
# three fifths of the time.
set(TANDEM_COLD_OPTIONS $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
if(TANDEM_SANITIZE)
  set(TANDEM_COLD_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:-O0>)
endif()
set(CMAKE_PCH_WARN_INVALID OFF)
if(CMAKE_UNITY_BUILD)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/cold_headers.cpp CONTENT "// see TandemTargets.cmake\n")
  add_library(tandem_cold_headers OBJECT ${CMAKE_BINARY_DIR}/cold_headers.cpp)
  target_link_libraries(tandem_cold_headers PRIVATE nlohmann_json::nlohmann_json fmt::fmt)
  target_compile_options(tandem_cold_headers PRIVATE ${TANDEM_COLD_OPTIONS})
  target_precompile_headers(tandem_cold_headers PRIVATE <nlohmann/json.hpp> <fmt/core.h> <atomic> <chrono> <filesystem>
                            <fstream> <functional> <mutex> <optional> <set> <span> <thread>)
endif()
function(tandem_cold target)
  target_compile_options(${target} PRIVATE ${TANDEM_COLD_OPTIONS})
  if(CMAKE_UNITY_BUILD)
    target_precompile_headers(${target} REUSE_FROM tandem_cold_headers)
  endif()
endfunction()

# tandem_library(NAME [COLD] SOURCES a.cpp … [SEPARATE b.cpp …] DEPS …): one static library a folder, explicit source lists.
# COLD: as tandem_cold says.
# CUDA_SOURCES (.cu and .cpp) and CUDA_DEPS count with TANDEM_CUDA; a library that names any of them sees
# TANDEM_WITH_CUDA as 1 or 0.
# CI, the quickstart and the sanitizer builds join the sources of a target into one where they can (CMAKE_UNITY_BUILD),
# which halves a build from nothing and lengthens one after a change: the presets dev and cpu do not. SEPARATE, and those
# for CUDA, are sources that stay alone: their unnamed namespaces have a name in common with a neighbour's.
function(tandem_library name)
  cmake_parse_arguments(ARG "COLD" "" "SOURCES;SEPARATE;DEPS;PRIVATE_DEPS;CUDA_SOURCES;CUDA_DEPS" ${ARGN})
  set(with_cuda 0)
  if(TANDEM_CUDA)
    set(with_cuda 1)
    list(APPEND ARG_SOURCES ${ARG_CUDA_SOURCES})
    list(APPEND ARG_PRIVATE_DEPS ${ARG_CUDA_DEPS})
    if(ARG_CUDA_SOURCES)
      list(APPEND ARG_PRIVATE_DEPS CUDA::cudart_static)
    endif()
  endif()
  add_library(${name} STATIC ${ARG_SOURCES} ${ARG_SEPARATE})
  set_source_files_properties(${ARG_SEPARATE} ${ARG_CUDA_SOURCES} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(ARG_CUDA_SOURCES)
    target_compile_definitions(${name} PRIVATE TANDEM_WITH_CUDA=${with_cuda})
  endif()
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  if(ARG_COLD)
    tandem_cold(${name})
  endif()
endfunction()

# tandem_program(NAME SOURCES … DEPS …): lands in <build>/bin. Its own sources read arguments: cold.
function(tandem_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  tandem_cold(${name})
endfunction()

# GoogleTest's headers, and what most tests read besides, compiled once for all tests. A test with other flags (OpenMP)
# reads the headers themselves.
# Tests are built with -O0, which is a quarter faster than -O1: their own code is not what is measured. Those that compute
# for long themselves, in an oracle, say COMPUTES and get -O1. GCC 12 warns of std::string's own copies in some of them,
# depending on the length of the path that they are built in.
set(TANDEM_TEST_OPTIONS -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
add_custom_target(tandem_asan_tests)
add_custom_target(tandem_tsan_tests)
add_custom_target(tandem_gpu_tests)
if(TANDEM_TESTS)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cpp CONTENT "// see TandemTargets.cmake\n")
  foreach(level 0 1)
    set(headers tandem_test_headers_O${level})
    add_library(${headers} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/test_headers.cpp)
    target_link_libraries(${headers} PRIVATE GTest::gmock nlohmann_json::nlohmann_json fmt::fmt)
    target_compile_options(${headers} PRIVATE -O${level} ${TANDEM_TEST_OPTIONS})
    target_precompile_headers(${headers} PRIVATE <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp> <fmt/core.h>
                              <atomic> <chrono> <filesystem> <fstream> <functional> <random> <thread>)
  endforeach()
endif()

function(tandem_as_test target computes)
  set(level 0)
  if(computes)
    set(level 1)
  endif()
  target_compile_options(${target} PRIVATE -O${level} ${TANDEM_TEST_OPTIONS})
  target_precompile_headers(${target} REUSE_FROM tandem_test_headers_O${level})
  target_compile_definitions(${target} PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             TANDEM_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
endfunction()

# tandem_test_name(LEAF OUT): a test's name is its place: the folders below tests/ and LEAF, with dots between; a LEAF that is
# the last folder's name is not repeated. tests/unit/sync, cost: unit.sync.cost; tests/unit/common/http, http: unit.common.http.
function(tandem_test_name leaf out)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  get_filename_component(last ${folder} NAME)
  string(REPLACE / . name ${folder})
  if(NOT leaf STREQUAL last)
    string(APPEND name .${leaf})
  endif()
  set(${out} ${name} PARENT_SCOPE)
endfunction()

# tandem_test_library(NAME [COMPUTES] SOURCES … DEPS …): what several tests share, compiled once, with their flags; built when one of
# them is.
function(tandem_test_library name)
  cmake_parse_arguments(ARG "COMPUTES" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} GTest::gmock)
  tandem_as_test(${name} ${ARG_COMPUTES})
endfunction()

# tandem_test(LEAF [COMPUTES] SOURCES … [SEPARATE …] DEPS … [LABELS unit|contract|multiproc|gpu|sanitize|asan|tsan] [TIMEOUT s] [PROCESSORS n])
# A test with the label gpu needs a real one: it is built with TANDEM_CUDA only; sanitize beside it lets
# scripts/gpu_check.sh run it under compute-sanitizer too (seconds without it).
# One GoogleTest binary and one ctest entry, both by that name. The labels asan and tsan put it on the list of the sanitizer runs.
function(tandem_test leaf)
  cmake_parse_arguments(ARG "COMPUTES" "TIMEOUT;PROCESSORS" "SOURCES;SEPARATE;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if("gpu" IN_LIST ARG_LABELS AND NOT TANDEM_CUDA)
    return()
  endif()
  tandem_test_name(${leaf} name)
  add_executable(${name} ${ARG_SOURCES} ${ARG_SEPARATE})
  set_source_files_properties(${ARG_SEPARATE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  tandem_as_test(${name} ${ARG_COMPUTES})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  foreach(list asan tsan gpu)
    if(list IN_LIST ARG_LABELS)
      add_dependencies(tandem_${list}_tests ${name})
    endif()
  endforeach()
  # Those that take long begin first, so that none is left alone at the end.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" PROCESSORS ${ARG_PROCESSORS}
                       ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()

# tandem_kernels_on_host(LEAF KERNELS a.cu … [as tandem_test]): a test of CUDA kernels compiled as C++, their threads as
# fibers (tests/support/kernels_on_host.h), under a racecheck that takes the place of the thread sanitizer: without it
# under the address sanitizer, and absent under the thread sanitizer.
function(tandem_kernels_on_host leaf)
  cmake_parse_arguments(ARG "" "TIMEOUT" "KERNELS;SOURCES;SEPARATE;DEPS;LABELS" ${ARGN})
  if(TANDEM_SANITIZE STREQUAL thread)
    return()
  endif()
  set(racecheck -fsanitize=thread --param=tsan-instrument-func-entry-exit=0)
  if(TANDEM_SANITIZE)
    set(racecheck)
  endif()
  set_source_files_properties(${ARG_KERNELS} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
    "-Wno-unknown-pragmas;-Wno-sign-conversion;-fno-strict-aliasing;-Wno-maybe-uninitialized;${racecheck}"
    SKIP_PRECOMPILE_HEADERS ON)  # which have other flags
  set(support fiber_switch.cpp guarded_memory.cpp kernel_races.cpp kernel_races_tsan.cpp kernels_on_host.cpp)
  list(TRANSFORM support PREPEND ${CMAKE_SOURCE_DIR}/tests/support/)
  tandem_test(${leaf} COMPUTES SOURCES ${support} ${ARG_SOURCES} ${ARG_KERNELS} SEPARATE ${ARG_SEPARATE} DEPS ${ARG_DEPS}
              LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT})
  # What common/ops/cuda/portable.cuh includes in the place of CUDA's header.
  tandem_test_name(${leaf} name)
  target_compile_definitions(${name} PRIVATE TANDEM_KERNELS_ON_HOST="tests/support/kernels_on_host.h")
endfunction()

if(TANDEM_TESTS)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/bench_headers.cpp CONTENT "// see TandemTargets.cmake\n")
  add_library(tandem_bench_headers OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/bench_headers.cpp)
  target_link_libraries(tandem_bench_headers PRIVATE benchmark::benchmark CLI11::CLI11 nlohmann_json::nlohmann_json fmt::fmt)
  target_precompile_headers(tandem_bench_headers PRIVATE <benchmark/benchmark.h> <CLI/CLI.hpp> <nlohmann/json.hpp> <fmt/core.h>
                            <atomic> <chrono> <filesystem> <fstream> <functional> <thread>)
endif()

# tandem_bench(NAME SOURCES … DEPS …): a benchmark program; built with the tests, never run by ctest.
function(tandem_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)  # each source has helpers of its own
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark)
  target_precompile_headers(${name} REUSE_FROM tandem_bench_headers)
endfunction()
