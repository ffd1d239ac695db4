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

# tandem_library(NAME [COLD] SOURCES a.cpp … DEPS …): one static library a folder, explicit source lists.
# COLD: as tandem_cold says.
# CUDA_SOURCES (.cu and .cpp) and CUDA_DEPS count with TANDEM_CUDA; a library that names any of them sees
# TANDEM_WITH_CUDA as 1 or 0.
# CI, the quickstart and the sanitizer builds join the sources of a target into one where they can (CMAKE_UNITY_BUILD),
# which halves a build from nothing and lengthens one after a change: the presets dev and cpu do not. So names in the unnamed
# namespaces of a folder differ. Of the sources for CUDA those of CUDA_JOINED are joined, into what NAME_joined then names; the
# others stay alone: nvcc reads the headers of each four times, which takes longer than what a small kernel is made of.
function(tandem_library name)
  cmake_parse_arguments(ARG "COLD" "" "SOURCES;DEPS;PRIVATE_DEPS;CUDA_SOURCES;CUDA_JOINED;CUDA_DEPS" ${ARGN})
  if(ARG_CUDA_JOINED AND CMAKE_UNITY_BUILD)
    list(TRANSFORM ARG_CUDA_JOINED REPLACE "(.+)" "#include \"${CMAKE_CURRENT_SOURCE_DIR}/\\1\"\n" OUTPUT_VARIABLE text)
    string(CONCAT text ${text})
    set(joined ${CMAKE_CURRENT_BINARY_DIR}/${name}_joined.cu)
    file(CONFIGURE OUTPUT ${joined} CONTENT "${text}")
    list(APPEND ARG_CUDA_SOURCES ${joined})
    set(${name}_joined ${joined} PARENT_SCOPE)
  else()
    list(APPEND ARG_CUDA_SOURCES ${ARG_CUDA_JOINED})
  endif()
  set(with_cuda 0)
  if(TANDEM_CUDA)
    set(with_cuda 1)
    list(APPEND ARG_SOURCES ${ARG_CUDA_SOURCES})
    list(APPEND ARG_PRIVATE_DEPS ${ARG_CUDA_DEPS})
    if(ARG_CUDA_SOURCES)
      list(APPEND ARG_PRIVATE_DEPS CUDA::cudart_static)
    endif()
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  set_source_files_properties(${ARG_CUDA_SOURCES} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
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
if(NOT TANDEM_SANITIZE)
  list(APPEND TANDEM_TEST_OPTIONS $<$<CONFIG:Release>:-g0>)  # a sixth faster; what fails in a test says where by itself
endif()
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
  # A folder's tests in a few joined sources: one would leave a core idle, and take the compiler gibibytes.
  set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 6)
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
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} GTest::gmock)
  tandem_as_test(${name} ${ARG_COMPUTES})
endfunction()

# tandem_is_built(OUT LABELS …): whether this build has tests of these labels. A sanitizer's has those of its list, and
# what needs a GPU needs TANDEM_CUDA.
function(tandem_is_built out)
  set(built TRUE)
  if((TANDEM_SANITIZE STREQUAL address AND NOT asan IN_LIST ARGN) OR (TANDEM_SANITIZE STREQUAL thread AND NOT tsan IN_LIST ARGN)
     OR (gpu IN_LIST ARGN AND NOT TANDEM_CUDA))
    set(built FALSE)
  endif()
  set(${out} ${built} PARENT_SCOPE)
endfunction()

# tandem_entry(NAME COMMAND … [LABELS unit …] [TIMEOUT s] [PROCESSORS n] [ENVIRONMENT KEY=VALUE …]): what CTest runs, the only
# place where it is told so. TIMEOUT: what it may take on a machine at rest; one that is busy, old or under a sanitizer has
# three times that. Labels: tests/README.md.
function(tandem_entry name)
  cmake_parse_arguments(ARG "" "TIMEOUT;PROCESSORS" "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  tandem_is_built(built ${ARG_LABELS})
  if(NOT built)
    return()
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND} COMMAND_EXPAND_LISTS)
  math(EXPR deadline "3 * ${ARG_TIMEOUT}")
  # Those that take long begin first, so that none is left alone at the end. More run at once than there are cores: a thread
  # that waits for its team gives its core away.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${deadline} COST ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" PROCESSORS ${ARG_PROCESSORS}
                       ENVIRONMENT "OMP_WAIT_POLICY=passive;${ARG_ENVIRONMENT}")
endfunction()

# tandem_which(OUT [OF a_test.cpp …] [FILTER Suite.* …]): the argument by which a test program runs these alone; FILTER counts.
function(tandem_which out)
  cmake_parse_arguments(ARG "" "" "OF;FILTER" ${ARGN})
  set(which)
  if(ARG_FILTER)
    list(JOIN ARG_FILTER : filter)
    set(which --gtest_filter=${filter})
  elseif(ARG_OF)
    list(JOIN ARG_OF , of)
    set(which --of=${of})
  endif()
  set(${out} ${which} PARENT_SCOPE)
endfunction()

# tandem_test(LEAF [ALONE] [COMPUTES] SOURCES … DEPS … [FILTER Suite.*] [USES tandem-train …] [LABELS …] [TIMEOUT s] [PROCESSORS n]
#             [ENVIRONMENT KEY=VALUE …])
# An entry of CTest: the tests of these sources, in the one program of the folder (unit.sync), which runs them by --of
# (tests/support/run_tests.h). FILTER, GoogleTest's, takes its place where tests of one source belong to several entries.
# USES: programs that the tests start. A source is given once: others that need it name the first entry's helpers by a library.
# ALONE: a program of its own, by the entry's name, for what cannot share one: definitions, flags, a main of another kind; or
# a library's work for long: of an inline function the linker keeps the first copy, which is -O0's where tests of -O0 share it.
# OWN_MAIN: the sources have the main, which calls run_tests.
function(tandem_test leaf)
  cmake_parse_arguments(ARG "ALONE;COMPUTES;OWN_MAIN" "TIMEOUT;PROCESSORS" "SOURCES;DEPS;FILTER;USES;LABELS;ENVIRONMENT" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tandem_test(${leaf}): what is ${ARG_UNPARSED_ARGUMENTS}?")
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  tandem_is_built(built ${ARG_LABELS})
  if(NOT built)
    return()
  endif()
  tandem_test_name(${leaf} name)
  set(program ${name})
  if(NOT ARG_ALONE)
    get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
    tandem_test_name(${folder} program)
  endif()
  if(NOT TARGET ${program})
    add_executable(${program} ${CMAKE_BINARY_DIR}/test_headers.cpp)  # for a folder all of whose tests compute
    target_link_libraries(${program} PRIVATE GTest::gmock)
    tandem_as_test(${program} FALSE)
    target_link_libraries(${program} PRIVATE $<IF:$<BOOL:${ARG_OWN_MAIN}>,test_run,test_main>)
  endif()
  set(objects ${program})
  if(ARG_COMPUTES)
    set(objects ${program}.computes)
    if(NOT TARGET ${objects})
      add_library(${objects} OBJECT EXCLUDE_FROM_ALL)
      target_link_libraries(${objects} PRIVATE GTest::gmock)
      tandem_as_test(${objects} TRUE)
      target_link_libraries(${program} PRIVATE ${objects})
    endif()
  endif()
  target_sources(${objects} PRIVATE ${ARG_SOURCES})
  target_link_libraries(${objects} PRIVATE ${ARG_DEPS})
  target_link_libraries(${program} PRIVATE ${ARG_DEPS})
  foreach(list asan tsan gpu)
    if(list IN_LIST ARG_LABELS)
      add_dependencies(tandem_${list}_tests ${program})
    endif()
  endforeach()
  if(ARG_USES)
    add_dependencies(${program} ${ARG_USES})
  endif()

  list(FILTER ARG_SOURCES INCLUDE REGEX "_test\\.(cpp|cu)$")
  tandem_which(which OF ${ARG_SOURCES} FILTER ${ARG_FILTER})
  tandem_entry(${name} COMMAND ${program} ${which} LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_PROCESSORS}
               ENVIRONMENT ${ARG_ENVIRONMENT})
endfunction()

# tandem_test_again(LEAF PROGRAM … [OF a_test.cpp …] [FILTER …] [LABELS …] [TIMEOUT s] [PROCESSORS n] [ENVIRONMENT …]): tests that are
# there, in another environment.
function(tandem_test_again leaf)
  cmake_parse_arguments(ARG "" "PROGRAM;TIMEOUT;PROCESSORS" "OF;FILTER;LABELS;ENVIRONMENT" ${ARGN})
  tandem_which(which OF ${ARG_OF} FILTER ${ARG_FILTER})
  tandem_test_name(${leaf} name)
  tandem_entry(${name} COMMAND ${ARG_PROGRAM} ${which} LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_PROCESSORS}
               ENVIRONMENT ${ARG_ENVIRONMENT})
  if("gpu" IN_LIST ARG_LABELS AND TANDEM_CUDA)
    add_dependencies(tandem_gpu_tests ${ARG_PROGRAM})
  endif()
endfunction()

# tandem_test_on_less(LEAF [as tandem_test_again, without ENVIRONMENT]): tests that are there, as LEAF_on_baseline, LEAF_on_avx2 and
# LEAF_on_avx512: what holds on this CPU holds where our kernels and oneDNN's are of a lesser one. Both cap downwards only.
function(tandem_test_on_less leaf)
  tandem_test_again(${leaf}_on_baseline ${ARGN} ENVIRONMENT TANDEM_INSTRUCTIONS=baseline)
  tandem_test_again(${leaf}_on_avx2 ${ARGN} ENVIRONMENT TANDEM_INSTRUCTIONS=avx2 ONEDNN_MAX_CPU_ISA=AVX2)
  tandem_test_again(${leaf}_on_avx512 ${ARGN} ENVIRONMENT TANDEM_INSTRUCTIONS=avx512 ONEDNN_MAX_CPU_ISA=AVX512_CORE)
endfunction()

# How CUDA kernels are compiled as C++, for the rig of tests/support/kernels_on_host.h (the library test_kernels_on_host).
set(TANDEM_ON_HOST_OPTIONS -Wno-unknown-pragmas -Wno-sign-conversion -fno-strict-aliasing -ffp-contract=off -Wno-maybe-uninitialized)
set(TANDEM_ON_HOST_DEFINITION TANDEM_KERNELS_ON_HOST="tests/support/kernels_on_host.h")  # what common/ops/cuda/portable.cuh includes

# tandem_racechecked(a.cu …): the folder's tests have these kernels as C++, under a racecheck that takes the place of the
# thread sanitizer: without it under the address sanitizer.
function(tandem_racechecked)
  set(racecheck -fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -g1)  # it names lines
  if(TANDEM_SANITIZE)
    set(racecheck)
  endif()
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "${TANDEM_ON_HOST_OPTIONS};${racecheck}"
                              SKIP_PRECOMPILE_HEADERS ON)  # which have other flags
endfunction()

# tandem_kernel_library(NAME KERNELS a.cu … [as tandem_test_library]): racechecked kernels of several tests.
function(tandem_kernel_library name)
  cmake_parse_arguments(ARG "" "" "KERNELS;SOURCES;DEPS" ${ARGN})
  tandem_racechecked(${ARG_KERNELS})
  tandem_test_library(${name} COMPUTES SOURCES ${ARG_KERNELS} ${ARG_SOURCES} DEPS ${ARG_DEPS} test_kernels_on_host)
  target_compile_definitions(${name} PRIVATE ${TANDEM_ON_HOST_DEFINITION})
endfunction()

# tandem_kernels_on_host(LEAF [KERNELS a.cu …] [as tandem_test]): a test of CUDA kernels compiled as C++, their threads as
# fibers. Absent under the thread sanitizer.
function(tandem_kernels_on_host leaf)
  cmake_parse_arguments(ARG "" "TIMEOUT" "KERNELS;SOURCES;DEPS;LABELS" ${ARGN})
  if(TANDEM_SANITIZE STREQUAL thread)
    return()
  endif()
  if(ARG_KERNELS)
    tandem_racechecked(${ARG_KERNELS})
  endif()
  tandem_test(${leaf} ALONE COMPUTES SOURCES ${ARG_SOURCES} ${ARG_KERNELS} DEPS ${ARG_DEPS} test_kernels_on_host
              LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT})
  tandem_test_name(${leaf} name)
  if(NOT TARGET ${name}.computes)  # a sanitizer's build, and not of its list
    return()
  endif()
  target_compile_definitions(${name}.computes PRIVATE ${TANDEM_ON_HOST_DEFINITION})
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
