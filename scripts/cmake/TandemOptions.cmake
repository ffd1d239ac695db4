# Compiler settings that every target shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

option(TANDEM_WERROR "Treat warnings as errors" OFF)
option(TANDEM_TESTS "Build tests and benches" ON)
option(TANDEM_FUZZ "Build the libFuzzer targets of tests/fuzz (clang++; scripts/fuzz.sh)" OFF)
option(TANDEM_CUDA "Build for NVIDIA GPUs too (needs the CUDA toolkit, not a GPU)" OFF)
set(TANDEM_SANITIZE "" CACHE STRING "address, thread or empty")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")  # -O3: what loops over elements (common/ops, common/comm/reduce.cpp)

add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wsign-conversion>")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # collects its garbage from half a gibibyte on, not from 128 MiB: a twelfth faster
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
endif()
if(TANDEM_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
# One set of objects serves the programs and libtandem_sync.so. What is hidden costs no more there than in a program.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fPIC;-fvisibility=hidden;-fvisibility-inlines-hidden>"
                    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC>")
if(CMAKE_UNITY_BUILD)  # a joined source takes the unnamed namespaces of its parts for a header's
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
if(TANDEM_SANITIZE)
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")  # line numbers are what a report needs
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
  add_compile_definitions(TANDEM_SANITIZE_${TANDEM_SANITIZE}=1)
  if(TANDEM_SANITIZE STREQUAL address AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # Functions of a thousand accesses call the checks instead of holding them: the copy kernels compile in half the time.
    add_compile_options(--param=asan-instrumentation-with-call-threshold=1000)
  endif()
endif()

if(TANDEM_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "TANDEM_FUZZ needs clang++: -DCMAKE_CXX_COMPILER=clang++")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  add_link_options(-fsanitize=address,undefined)
endif()

# Linking the test programs takes a fraction of the time with LLVM's linker, where it is installed.
find_program(TANDEM_LLD ld.lld)
if(TANDEM_TESTS AND TANDEM_LLD)
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-fuse-ld=lld>)
endif()

# One compiler cache over all build folders, where it is installed.
find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TANDEM_CCACHE})
endif()

include(TandemCuda)
